"""Plans: what `parallelize` does to a layer whose name they are given for.

A plan moves parameters and says how a layer's inputs or results are cut along one dimension of
the mesh; how they are cut along the others stays as the partitioner finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.distributed.auto_parallel.layouts import lay_out, layout_of
from bireme.distributed.mesh import ProcessMesh
from bireme.distributed.placement import Placement, Replicate, Shard
from bireme.host import config, jax_door

if TYPE_CHECKING:
    from bireme.nn.layer.layer import Layer


def _cut_vjp(xp: Any, grad: Any, mesh: Any, cuts: Any) -> tuple[Any]:
    return (_cut_array(xp, grad, mesh, cuts),)


def _cut_array(xp: Any, x: Any, mesh: ProcessMesh, cuts: Any) -> Any:
    if xp is np:
        return x
    jax = jax_door.jax()
    spec = jax.sharding.PartitionSpec
    parts: list[Any] = [spec.UNCONSTRAINED] * x.ndim
    for dim, name in cuts:
        parts[dim] = name
    laid_out = jax.sharding.NamedSharding(mesh.devices(), spec(*parts))
    return jax.lax.with_sharding_constraint(x, laid_out)


@op(name="cut", vjp=_cut_vjp, infer=lambda x, mesh, cuts: x)
def _cut(xp: Any, x: Any, mesh: Any = None, cuts: Any = ()) -> Any:
    """`x`; some of its dimensions are cut along a dimension of the mesh, or whole (None)."""
    return _cut_array(xp, x, mesh, cuts)


def cut(x: Tensor, mesh: ProcessMesh, **by_name: int) -> Tensor:
    """`x`, cut in dimension d along the mesh dimension n for each n=d."""
    return _constrain(x, mesh, {dim: name for name, dim in by_name.items()})


def whole(x: Tensor, mesh: ProcessMesh, *dims: int) -> Tensor:
    """`x`, not cut in these dimensions."""
    return _constrain(x, mesh, dict.fromkeys(dims))


def _constrain(x: Tensor, mesh: ProcessMesh, wanted: dict[int, str | None]) -> Tensor:
    cuts = []
    for dim, name in wanted.items():
        at = dim % x.ndim
        size = x.shape[at]
        if name is not None and isinstance(size, int) and size % mesh.get_dim_size(name):
            continue  # it does not divide, so it stays whole
        cuts.append((at, name))
    config.sharded |= mesh.size > 1
    return _cut(x, mesh, tuple(sorted(cuts))) if cuts else x


def _first(change: Callable[[Tensor], Tensor], given: Any) -> Any:
    """`given` with its first tensor changed."""
    if isinstance(given, tuple | list):
        return type(given)([change(given[0]), *given[1:]])
    return change(given)


def _turned(x: Tensor) -> Tensor:
    return x.transpose([1, 0, *range(2, x.ndim)])


class PlanBase:
    """Base of all plans. A plan of your own overrides `apply`."""

    def apply(
        self, layer: Layer, process_mesh: ProcessMesh, shard_param_list: Sequence[str]
    ) -> None:
        raise TypeMismatch(
            f"[parallelize] {type(self).__name__} has no apply(layer, process_mesh, names); use "
            "ColWiseParallel and the like, or write one"
        )


def _shard_parameter(layer: Layer, name: str, dim: int, mesh: ProcessMesh, who: str) -> None:
    param = getattr(layer, name, None)
    if not isinstance(param, Tensor):
        return
    have = layout_of(param)
    placements: list[Placement] = [Replicate()] * mesh.ndim if have is None else list(have[1])
    axis = _axis(mesh, "mp", who)
    if isinstance(placements[axis], Shard):
        return  # shared with a layer that was here before
    size = mesh.shape[axis]
    if param.shape[dim] % size:
        raise InvalidArgument(
            f"[{who}] {name} of {type(layer).__name__} has shape {list(param.shape)}; dimension "
            f"{dim} does not divide into {size} equal parts"
        )
    placements[axis] = Shard(dim)
    lay_out(param, mesh, placements)


def _axis(mesh: ProcessMesh, name: str, who: str) -> int:
    if name not in mesh.dim_names:
        raise InvalidArgument(
            f"[{who}] cuts along the mesh dimension {name!r}. The mesh has: "
            f"{', '.join(mesh.dim_names)}"
        )
    return mesh.dim_names.index(name)


class ColWiseParallel(PlanBase):
    """Cut a weight by columns and its bias with it; `gather_output` makes the results whole.

    >>> plan = {"mlp.up": ColWiseParallel(), "mlp.down": RowWiseParallel()}
    """

    def __init__(self, gather_output: bool = False) -> None:
        self.gather_output = gather_output

    def apply(
        self, layer: Layer, process_mesh: ProcessMesh, shard_param_list: Sequence[str]
    ) -> None:
        for name in shard_param_list or ("weight", "bias"):
            param = getattr(layer, name, None)
            if isinstance(param, Tensor):
                dim = _matrix_or_vector(param, name, layer)
                _shard_parameter(layer, name, dim, process_mesh, "ColWiseParallel")
        if self.gather_output:
            layer.register_forward_post_hook(
                lambda _, __, out: _first(lambda t: whole(t, process_mesh, -1), out)
            )


def _matrix_or_vector(param: Tensor, name: str, layer: Layer) -> int:
    if param.ndim not in (1, 2):
        raise InvalidArgument(
            f"[ColWiseParallel] {name} of {type(layer).__name__} must have 1 or 2 dimensions. "
            f"Received: {list(param.shape)}"
        )
    return param.ndim - 1


class RowWiseParallel(PlanBase):
    """Cut a weight by rows. Unless `is_input_parallel`, its input is cut to fit first."""

    def __init__(self, is_input_parallel: bool = True) -> None:
        self.is_input_parallel = is_input_parallel

    def apply(
        self, layer: Layer, process_mesh: ProcessMesh, shard_param_list: Sequence[str]
    ) -> None:
        for name in [n for n in shard_param_list if n != "bias"] or ("weight",):
            param = getattr(layer, name, None)
            if isinstance(param, Tensor) and param.ndim != 2:
                raise InvalidArgument(
                    f"[RowWiseParallel] {name} of {type(layer).__name__} must have 2 dimensions. "
                    f"Received: {list(param.shape)}"
                )
            _shard_parameter(layer, name, 0, process_mesh, "RowWiseParallel")
        if not self.is_input_parallel:
            layer.register_forward_pre_hook(
                lambda _, given: _first(lambda t: cut(t, process_mesh, mp=-1), given)
            )


class _Prepare(PlanBase):
    def __init__(self, fn: Callable[..., Any] | None = None) -> None:
        if not callable(fn):
            raise TypeMismatch(
                f"[{type(self).__name__}] fn is a function of process_mesh that returns a hook. "
                f"Received: {type(fn).__name__}"
            )
        self.fn = fn


class PrepareLayerInput(_Prepare):
    """`fn(process_mesh=mesh)` makes a hook of (layer, inputs) that changes a layer's inputs."""

    def apply(
        self, layer: Layer, process_mesh: ProcessMesh, shard_param_list: Sequence[str]
    ) -> None:
        layer.register_forward_pre_hook(self.fn(process_mesh=process_mesh))


class PrepareLayerOutput(_Prepare):
    """`fn(process_mesh=mesh)` makes a hook of (layer, inputs, outputs) that changes its results."""

    def apply(
        self, layer: Layer, process_mesh: ProcessMesh, shard_param_list: Sequence[str]
    ) -> None:
        layer.register_forward_post_hook(self.fn(process_mesh=process_mesh))


class _Sequence(PlanBase):
    """Plans that cut activations in their sequence dimension over "mp"."""

    def __init__(self, need_transpose: bool = True) -> None:
        self.need_transpose = need_transpose

    def _split(self, x: Tensor, mesh: ProcessMesh) -> Tensor:
        _axis(mesh, "mp", type(self).__name__)
        return cut(_turned(x) if self.need_transpose else x, mesh, mp=0)

    def _join(self, x: Tensor, mesh: ProcessMesh) -> Tensor:
        x = whole(x, mesh, 0)
        return _turned(x) if self.need_transpose else x

    def _before(self, layer: Layer, mesh: ProcessMesh, change: Any) -> None:
        layer.register_forward_pre_hook(lambda _, given: _first(lambda t: change(t, mesh), given))

    def _after(self, layer: Layer, mesh: ProcessMesh, change: Any) -> None:
        layer.register_forward_post_hook(lambda _, __, out: _first(lambda t: change(t, mesh), out))


class SequenceParallelBegin(_Sequence):
    """From this layer's result on, [batch, sequence, width] becomes [sequence / mp, batch, width].
    Without `need_transpose` the sequence is the first dimension already."""

    def apply(
        self, layer: Layer, process_mesh: ProcessMesh, shard_param_list: Sequence[str]
    ) -> None:
        self._after(layer, process_mesh, self._split)


class SequenceParallelEnd(_Sequence):
    """Before this layer the sequence is made whole again."""

    def apply(
        self, layer: Layer, process_mesh: ProcessMesh, shard_param_list: Sequence[str]
    ) -> None:
        self._before(layer, process_mesh, self._join)


class SequenceParallelEnable(_Sequence):
    """Only this layer works on parts of the sequence."""

    def __init__(self) -> None:
        super().__init__(True)

    def apply(
        self, layer: Layer, process_mesh: ProcessMesh, shard_param_list: Sequence[str]
    ) -> None:
        self._before(layer, process_mesh, self._split)
        self._after(layer, process_mesh, self._join)


class SequenceParallelDisable(_Sequence):
    """Only this layer works on whole sequences."""

    def apply(
        self, layer: Layer, process_mesh: ProcessMesh, shard_param_list: Sequence[str]
    ) -> None:
        self._before(layer, process_mesh, self._join)
        self._after(layer, process_mesh, self._split)


class ConvParallel(PlanBase):
    """A convolution's input is cut in its width over "mp"; borders are exchanged as needed."""

    def apply(
        self, layer: Layer, process_mesh: ProcessMesh, shard_param_list: Sequence[str]
    ) -> None:
        form = getattr(layer, "_data_format", "NCHW")
        if form not in ("NCHW", "NHWC"):
            raise InvalidArgument(f"[ConvParallel] takes NCHW or NHWC. Received: {form}")
        _axis(process_mesh, "mp", "ConvParallel")
        dim = form.index("W")
        layer.register_forward_pre_hook(
            lambda _, given: _first(lambda t: cut(t, process_mesh, mp=dim), given)
        )


class _Context(PlanBase):
    def __init__(self, backend: str = "p2p") -> None:
        if backend not in ("p2p", "all2all"):
            raise InvalidArgument(
                f"[{type(self).__name__}] backend is 'p2p' or 'all2all'. Received: {backend!r}"
            )
        self.backend = backend


class PrepareContextParallel(_Context):
    """The layer's inputs, [batch, sequence, ...], are cut in the sequence over "sep"."""

    def apply(
        self, layer: Layer, process_mesh: ProcessMesh, shard_param_list: Sequence[str]
    ) -> None:
        _axis(process_mesh, "sep", "PrepareContextParallel")

        def split(x: Any) -> Any:
            deep = isinstance(x, Tensor) and x.ndim > 1
            return cut(x, process_mesh, sep=1) if deep else x

        layer.register_forward_pre_hook(
            lambda _, given: (
                tuple([split(x) for x in given])
                if isinstance(given, tuple | list)
                else split(given)
            )
        )


class ContextParallel(_Context):
    """Attention over a sequence that is cut. The layer is called with query, key and value,
    [batch, sequence, heads, width] each.

    "p2p": every device has its part of the query and sees the whole key and value. "all2all":
    every device has its part of the heads, and whole sequences.
    """

    def apply(
        self, layer: Layer, process_mesh: ProcessMesh, shard_param_list: Sequence[str]
    ) -> None:
        _axis(process_mesh, "sep", "ContextParallel")
        mesh, by_heads = process_mesh, self.backend == "all2all"

        def before(_: Any, given: Any) -> Any:
            changed = []
            for i, x in enumerate(given):
                if i < 3 and isinstance(x, Tensor) and x.ndim == 4:
                    if by_heads:
                        x = cut(whole(x, mesh, 1), mesh, sep=2)
                    else:
                        x = cut(x, mesh, sep=1) if i == 0 else whole(x, mesh, 1)
                changed.append(x)
            return tuple(changed)

        layer.register_forward_pre_hook(before)
        layer.register_forward_post_hook(
            lambda _, __, out: _first(lambda t: cut(t, mesh, sep=1), out)
        )
