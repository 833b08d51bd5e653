"""split: a linear layer or embedding of a static program, its weight in parts on the devices."""

from __future__ import annotations

from collections.abc import Sequence

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.distributed.auto_parallel.layouts import lay_out
from bireme.distributed.auto_parallel.plans import cut, whole
from bireme.distributed.mesh import ProcessMesh, get_mesh
from bireme.distributed.placement import Placement, Replicate, Shard
from bireme.nn import functional as F
from bireme.nn.attributes import ParamAttrLike
from bireme.static.nn.helper import Maker
from bireme.static.program import default_startup_program, in_dynamic_mode


def split(
    x: Tensor,
    size: Sequence[int],
    operation: str,
    axis: int = 0,
    num_partitions: int = 1,
    gather_out: bool = True,
    weight_attr: ParamAttrLike | None = None,
    bias_attr: ParamAttrLike | None = None,
    name: str | None = None,
) -> Tensor:
    """A new "linear" layer or "embedding" with a weight of `size`, cut along `axis`.

    The parts lie on the devices of the mesh dimension "mp", so `num_partitions` is the `mp_degree`
    that `fleet.init` was given. Without `gather_out` the result of a layer cut by columns stays in
    parts. Only for static programs; layers of `fleet.meta_parallel` are for others.
    """
    if not isinstance(size, list | tuple) or len(size) != 2:
        raise InvalidArgument(f"[split] size is a pair of sizes. Received: {size!r}")
    if operation not in ("linear", "embedding"):
        raise InvalidArgument(
            f"[split] operation is 'linear' or 'embedding'. Received: {operation!r}"
        )
    if in_dynamic_mode():
        raise InvalidArgument(
            "[split] makes parameters of a static program; outside of one use "
            "fleet.meta_parallel.VocabParallelEmbedding, RowParallelLinear or ColumnParallelLinear"
        )
    if axis not in (0, 1) or (axis == 1 and operation == "embedding"):
        raise InvalidArgument(
            f"[split] a weight is cut along axis 0, and along 1 in a linear layer. Received: {axis}"
        )
    if size[axis] % num_partitions:
        raise InvalidArgument(
            f"[split] dimension {axis} of the weight {list(size)} does not divide into "
            f"{num_partitions} parts"
        )
    if axis == 0 and not gather_out:
        raise InvalidArgument(
            "[split] gather_out=False belongs to a linear layer cut by columns (axis=1); sums over "
            "devices are always completed"
        )
    mesh = _mesh(num_partitions)
    if operation == "embedding":
        table = Maker("parallel_embedding", name, "float32").weight(list(size), weight_attr)
        _starts_in_parts(table, mesh, 0)
        return F.embedding(x, table)
    maker = Maker("parallel_linear", name, x.dtype)
    weight = maker.weight(list(size), weight_attr)
    bias = maker.bias([size[1]], bias_attr)
    _starts_in_parts(weight, mesh, axis)
    if mesh is None:
        return F.linear(x, weight, bias)
    if axis == 0:
        return whole(F.linear(cut(x, mesh, mp=-1), weight, bias), mesh, -1)
    if bias is not None:
        _starts_in_parts(bias, mesh, 0)
    out = F.linear(x, weight, bias)
    return whole(out, mesh, -1) if gather_out else cut(out, mesh, mp=-1)


def _mesh(parts: int) -> ProcessMesh | None:
    from bireme.distributed.fleet import fleet

    if fleet._role_maker is None:
        raise InvalidArgument("[split] call fleet.init(is_collective=True, strategy=...) first")
    if not isinstance(parts, int) or parts < 1:
        raise TypeMismatch(f"[split] num_partitions is an int, 1 or more. Received: {parts!r}")
    mesh = get_mesh()
    have = 1 if mesh is None or "mp" not in mesh.dim_names else mesh.get_dim_size("mp")
    if have != parts:
        raise InvalidArgument(
            f"[split] {parts} parts want hybrid_configs = {{'mp_degree': {parts}}} in fleet.init's "
            f"strategy. The mesh has {have}"
        )
    return mesh if parts > 1 else None


def _starts_in_parts(param: Tensor, mesh: ProcessMesh | None, dim: int) -> None:
    """Let the startup program lay the parameter out when it gives it its first contents."""
    if mesh is None:
        return
    placements: list[Placement] = [Replicate()] * mesh.ndim
    placements[mesh.dim_names.index("mp")] = Shard(dim)
    default_startup_program()._layouts[param.name] = lambda t: lay_out(t, mesh, placements)
