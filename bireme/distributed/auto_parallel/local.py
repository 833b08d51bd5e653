"""Between whole tensors and the parts that processes or devices hold."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bireme.capture import graph_io, tree
from bireme.capture.recorder import recording_into
from bireme.capture.subgraph import Body, BodyTrace
from bireme.core import sharding
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.core.trace import Value, state
from bireme.core.value import value_of
from bireme.distributed import dtensor
from bireme.distributed.communication.group import Group
from bireme.distributed.communication.programs import ReduceOp, exchange
from bireme.distributed.environment import get_rank, get_world_size
from bireme.distributed.mesh import ProcessMesh
from bireme.distributed.placement import Partial, Placement, ReduceType, Replicate, Shard
from bireme.host import config, jax_door
from bireme.nn.layer.layer import Layer
from bireme.ops.control_loops import _entered
from bireme.ops.control_record import Out, draw


class DistAttr:
    """A layout by names: for each dimension of a tensor the dimension of the mesh that cuts it.

    >>> DistAttr(mesh, ["x", None]).dims_mapping  # doctest: +SKIP
    [0, -1]
    """

    def __init__(self, mesh: ProcessMesh, sharding_specs: list[str | None]) -> None:
        if not isinstance(mesh, ProcessMesh):
            raise InvalidArgument(
                "[DistAttr] The mesh must be an instance of paddle.distributed.ProcessMesh. "
                f"Received: {type(mesh).__name__}"
            )
        if not isinstance(sharding_specs, list) or not all(
            s is None or isinstance(s, str) for s in sharding_specs
        ):
            raise InvalidArgument(
                "[DistAttr] The sharding_specs must be an instance of list, of names of the mesh's "
                f"dimensions and None. Received: {sharding_specs!r:.100}"
            )
        self.process_mesh = mesh
        self._sharding_specs = sharding_specs
        self.dims_mapping = [-1 if s is None else mesh._axis(s) for s in sharding_specs]

    @property
    def sharding_specs(self) -> list[str | None]:
        return self._sharding_specs

    @property
    def placements(self) -> list[Placement]:
        """The same layout as one placement per dimension of the mesh."""
        found: list[Placement] = [Replicate()] * self.process_mesh.ndim
        for dim, axis in enumerate(self.dims_mapping):
            if axis >= 0:
                found[axis] = Shard(dim)
        return found

    def __repr__(self) -> str:
        return f"DistAttr({self.process_mesh}, sharding_specs={self._sharding_specs})"


def _attribute_of(tensor: Tensor) -> DistAttr | None:
    """The layout of a tensor over devices by the names of the mesh's dimensions."""
    layout = dtensor.layout_of(tensor)
    if layout is None:
        return None
    mesh, placements = layout
    specs: list[str | None] = [None] * len(tensor.shape)
    for name, placement in zip(mesh.dim_names, placements, strict=True):
        if isinstance(placement, Shard):
            specs[placement.dim % len(specs)] = name
    return DistAttr(mesh, specs)


sharding.attribute_of = _attribute_of


def dtensor_from_local(
    local_tensor: Tensor, mesh: ProcessMesh, placements: Sequence[Placement]
) -> Tensor:
    """The tensor whose parts the processes hold. One process that drives all devices of the mesh
    holds the whole of it. Parts that are `Partial()` are reduced over the processes now, so that
    whatever computes with the tensor sees the result.

    >>> x = dtensor_from_local(part, mesh, [Shard(0)])  # doctest: +SKIP
    """
    jax = jax_door.jax()
    if jax.process_count() == 1:
        return dtensor.reshard(local_tensor, mesh, placements)
    if local_tensor._node is not None and not local_tensor.is_leaf:
        raise InvalidArgument(
            "[dtensor_from_local] a result of operations has parts in one process only; detach() "
            "it first"
        )
    given = [*placements, *[Replicate()] * (mesh.ndim - len(placements))]
    laid_out = dtensor._sharding(mesh, tuple(given), local_tensor.ndim)
    config.sharded = True
    own = np.asarray(local_tensor._array())
    for axis, placement in enumerate(given):
        if isinstance(placement, Partial):
            own = _reduced(own, mesh, axis, placement)
    buf = jax.make_array_from_process_local_data(laid_out, own)
    made = Tensor(value_of(aval(tuple(buf.shape), local_tensor.dtype), buf), None)
    made.stop_gradient = local_tensor.stop_gradient
    return dtensor._noted(made, mesh, tuple(given))


def dtensor_to_local(
    dist_tensor: Tensor,
    mesh: ProcessMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> Tensor:
    """The part that this process holds: everything, where one process drives all devices.

    >>> part = dtensor_to_local(x, mesh, [Shard(0)])  # doctest: +SKIP
    """
    if mesh is not None:
        dist_tensor = dtensor.reshard(dist_tensor, mesh, placements or ())
    if jax_door.jax().process_count() == 1:
        return dist_tensor
    own = _own_part(dist_tensor)
    found = dtensor.layout_of(dist_tensor)
    for axis, placement in enumerate(() if found is None else found[1]):
        if found is not None and isinstance(placement, Partial):
            own = _share_of(own, found[0], axis, placement)
    return Tensor(own, None)


# How parts become one over processes. The reduction of truths is that of the type bool.
_OPS = {
    ReduceType.kRedSum: ReduceOp.SUM,
    ReduceType.kRedMax: ReduceOp.MAX,
    ReduceType.kRedMin: ReduceOp.MIN,
    ReduceType.kRedProd: ReduceOp.PROD,
    ReduceType.kRedAvg: ReduceOp.AVG,
    ReduceType.kRedAny: ReduceOp.MAX,
    ReduceType.kRedAll: ReduceOp.MIN,
}


def _line(mesh: ProcessMesh, axis: int) -> Group:
    """The processes that differ from this one along a dimension of the mesh."""
    rank = get_rank()
    at = np.argwhere(mesh.mesh == rank)
    if not len(at) or jax_door.jax().device_count() != get_world_size():
        raise InvalidArgument(
            f"[dtensor_from_local] process {rank} does not have one device of the mesh "
            f"{mesh.process_ids}, so it has no part that is Partial"
        )
    line = tuple(slice(None) if d == axis else int(i) for d, i in enumerate(at[0]))
    ranks = mesh.mesh[line].tolist()
    return Group(ranks.index(rank), 0, ranks)


def _reduced(own: np.ndarray, mesh: ProcessMesh, axis: int, partial: Partial) -> np.ndarray:
    """The reduction of all parts along a dimension of the mesh."""
    kind = partial.reduce_type()
    truth = kind in (ReduceType.kRedAny, ReduceType.kRedAll)
    given = own.astype(bool) if truth else own
    (out,) = exchange("all_reduce", _line(mesh, axis), [given], _OPS[kind])
    return np.asarray(out).reshape(own.shape).astype(own.dtype)


def _share_of(whole: Value, mesh: ProcessMesh, axis: int, partial: Partial) -> Value:
    """Parts whose reduction is the whole, as Paddle makes them: of a sum or product the first
    process has all of it, of others each has."""
    neutral = {ReduceType.kRedSum: 0, ReduceType.kRedProd: 1}.get(partial.reduce_type())
    if neutral is None or _line(mesh, axis).rank == 0:
        return whole
    return value_of(whole.aval, np.full_like(np.asarray(whole.buf), neutral))


def _own_part(tensor: Tensor) -> Value:
    """The smallest block that covers what this process's devices hold."""
    buf = tensor._array()
    shards = list(buf.addressable_shards)
    bounds = [[s.indices(n)[:2] for s, n in zip(p.index, buf.shape, strict=True)] for p in shards]
    low = [min(b[d][0] for b in bounds) for d in range(buf.ndim)]
    high = [max(b[d][1] for b in bounds) for d in range(buf.ndim)]
    block = np.empty([h - lo for lo, h in zip(low, high, strict=True)], buf.dtype)
    for shard, bound in zip(shards, bounds, strict=True):
        at = tuple([slice(a - lo, b - lo) for (a, b), lo in zip(bound, low, strict=True)])
        block[at] = np.asarray(shard.data)
    return value_of(aval(block.shape, tensor.dtype), block)


def _grad_layout(xp: Any, grad: Any, mesh: Any, placements: Any) -> tuple[Any]:
    return (dtensor._constrain(xp, grad, mesh, placements),)


@op(name="shard_grad", vjp=_grad_layout, infer=lambda x, mesh, placements: x)
def _shard_grad(xp: Any, x: Any, mesh: Any = None, placements: Any = ()) -> Any:
    """`x` itself; its gradient is laid out over the mesh."""
    return x


# --- functions of the parts ------------------------------------------------------------------


def _reduced_on_devices(jax: Any, x: Any, name: str, kind: ReduceType) -> Any:
    """The reduction of the devices' parts along a dimension of the mesh."""
    lax, jnp = jax.lax, jax.numpy
    if kind is ReduceType.kRedAvg:
        return lax.pmean(x, name)
    if kind is ReduceType.kRedMax:
        return lax.pmax(x, name)
    if kind is ReduceType.kRedMin:
        return lax.pmin(x, name)
    if kind is ReduceType.kRedSum:
        return lax.psum(x, name)
    parts = lax.all_gather(x, name)
    reduce = {
        ReduceType.kRedProd: jnp.prod,
        ReduceType.kRedAny: jnp.any,
        ReduceType.kRedAll: jnp.all,
    }
    return reduce[kind](parts, 0).astype(x.dtype)


def _part_type(t: Aval, mesh: ProcessMesh, placements: Sequence[Placement], grow: bool) -> Aval:
    shape = list(t.shape)
    for size, p in zip(mesh.shape, placements, strict=True):
        if isinstance(p, Shard):
            shape[p.dim] = shape[p.dim] * size if grow else shape[p.dim] // size
    return aval(tuple(shape), t.dtype)


def _local_types(xs: Any, operands: Any, keys: Any, body: Body, mesh: Any, ins: Any, outs: Any):
    return tuple([_part_type(t, mesh, p, True) for t, p in zip(body.types, outs, strict=True)])


@op(
    name="local_map",
    inputs=("*xs", "*operands", "*keys"),
    numpy=False,
    infer=_local_types,
)
def _local_map(
    xp: Any, xs: Any, operands: Any, keys: Any, body: Body, mesh: Any, ins: Any, outs: Any
) -> Any:
    """`body` on each device's parts of `xs`, with whole copies of the operands."""
    jax = jax_door.jax()
    count = len(xs)
    total = count + len(operands)

    def run(*given: Any) -> Any:
        results = body.run(xp, given[:total], given[total:])
        reduced = []
        for r, placements in zip(results, outs, strict=True):
            for name, p in zip(mesh.dim_names, placements, strict=True):
                if isinstance(p, Partial):
                    r = _reduced_on_devices(jax, r, name, p.reduce_type())
            reduced.append(r)
        return reduced

    def spec(placements: Any, rank: int) -> Any:
        return dtensor._sharding(mesh, placements, rank).spec

    whole = jax.sharding.PartitionSpec()
    in_specs = [spec(p, x.ndim) for p, x in zip(ins, xs, strict=True)]
    in_specs += [whole] * (len(operands) + len(keys))
    out_specs = [spec(p, len(t.shape)) for p, t in zip(outs, body.types, strict=True)]
    numbers = [xp.asarray(k, "int64") for k in keys]
    mapped = jax.shard_map(
        run, mesh=mesh.devices(), in_specs=tuple(in_specs), out_specs=out_specs, check_vma=False
    )
    return mapped(*xs, *operands, *numbers)


# A function that is called in every step records the same body each time: one object for all.
_bodies: dict[str, Body] = {}


def _interned(body: Body) -> Body:
    key = json.dumps(graph_io.encode_graph(body.graph), sort_keys=True, default=str)
    return _bodies.setdefault(key, body)


def _full(mesh: ProcessMesh, placements: Any, rank: int, who: str) -> tuple[Placement, ...]:
    given = [*(placements or ()), *[Replicate()] * (mesh.ndim - len(placements or ()))]
    fixed: list[Placement] = []
    for p in given:
        if not isinstance(p, Placement):
            raise TypeMismatch(f"[{who}] placements are Shard, Replicate, Partial. Received: {p!r}")
        fixed.append(Shard(p.dim % rank) if isinstance(p, Shard) and rank else p)
    return tuple(fixed)


def _on_parts(
    function: Callable[..., Any],
    arguments: Any,
    mesh: ProcessMesh,
    ins: list[Any],
    outs: list[Any],
    who: str,
) -> Any:
    """Run `function` on the devices' parts of the tensors in `arguments`."""
    tensors, structure = tree.flatten(arguments)
    layouts = [
        dtensor._checked(mesh, _full(mesh, p, t.ndim, who), t.shape)
        for t, p in zip(tensors, ins, strict=True)
    ]
    types = [
        _part_type(t._value.aval, mesh, p, False) for t, p in zip(tensors, layouts, strict=True)
    ]
    trace = BodyTrace(state.trace, types)
    with recording_into(trace):
        given = [
            _entered(inside, not t.stop_gradient)
            for inside, t in zip(trace.arguments, tensors, strict=True)
        ]
        result = function(*tree.unflatten(structure, given))
        results, out_structure = tree.flatten(result)
        made = [Out(trace, r) for r in results]
    if len(outs) != len(made):
        raise InvalidArgument(
            f"[{who}] the function has {len(made)} results, but placements of {len(outs)} were "
            "given"
        )
    operands = list(trace.operands.values())
    body = _interned(trace.body([o.slot for o in made], [t._value for t in operands]))
    placed = tuple(
        [_full(mesh, p, len(o.type.shape), who) for p, o in zip(outs, made, strict=True)]
    )
    keys = draw(trace, body)
    config.sharded |= mesh.size > 1
    found = _local_map(tensors, operands, keys, body, mesh, tuple(layouts), placed)
    for tensor, out, layout in zip(found, made, placed, strict=True):
        if not out.tracked:
            tensor._node = None
        dtensor._noted(tensor, mesh, layout)
    return tree.unflatten(out_structure, found)


def local_map(
    func: Callable[..., Any],
    out_placements: list[Any],
    in_placements: list[Any] | None = None,
    process_mesh: ProcessMesh | None = None,
    reshard_inputs: bool = False,
) -> Callable[..., Any]:
    """A function that applies `func` to each device's part of its tensors.

    A result's placements say how the parts make up the whole: Shard(d) joins them, Partial()
    adds them up, Replicate() says that they are equal.

    >>> total = local_map(lambda x: x.sum(), [[Partial()]], [[Shard(0)]], mesh)  # doctest: +SKIP
    """
    if not callable(func):
        raise TypeMismatch(f"[local_map] func must be callable. Received: {type(func).__name__}")

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        tensors, _ = tree.flatten(args)
        if in_placements is not None and len(in_placements) != len(tensors):
            raise InvalidArgument(
                f"[local_map] there are {len(tensors)} tensors and {len(in_placements)} entries in "
                "in_placements"
            )
        known = [dtensor.layout_of(t) for t in tensors]
        mesh = process_mesh or next((k[0] for k in known if k is not None), None)
        if mesh is None:
            if any(p is not None for p in out_placements):
                raise InvalidArgument(
                    "[local_map] no argument lies on a mesh; pass process_mesh to say which one"
                )
            return func(*args, **kwargs)
        ins = []
        for i, have in enumerate(known):
            own = [Replicate()] * mesh.ndim if have is None else have[1]
            wanted = own if in_placements is None else in_placements[i]
            wanted = list(
                _full(mesh, own if wanted is None else wanted, tensors[i].ndim, "local_map")
            )
            if have is not None and wanted != list(own) and not reshard_inputs:
                raise InvalidArgument(
                    f"[local_map] argument {i} is laid out as {own}, and in_placements says "
                    f"{wanted}; pass reshard_inputs=True to have it moved"
                )
            ins.append(wanted)
        outs = [[] if p is None else p for p in out_placements]
        return _on_parts(functools.partial(func, **kwargs), args, mesh, ins, outs, "local_map")

    return mapped


class LocalLayer(Layer):
    """A layer whose `forward` sees the part of its inputs that one device holds.

    `out_dist_attrs` has a (mesh, placements) per result. `grad_dist_attrs` has one per input, or
    None for the input's own: how its gradient is laid out.
    """

    def __init__(self, out_dist_attrs: list[Any], grad_dist_attrs: list[Any]) -> None:
        super().__init__()
        self.out_dist_attrs = out_dist_attrs
        self.grad_dist_attrs = grad_dist_attrs

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        if len(inputs) != len(self.grad_dist_attrs):
            raise InvalidArgument(
                f"[LocalLayer] there are {len(inputs)} inputs and {len(self.grad_dist_attrs)} "
                "entries in grad_dist_attrs"
            )
        mesh = self.out_dist_attrs[0][0]
        ins, given = [], []
        for x, wanted in zip(inputs, self.grad_dist_attrs, strict=True):
            have = dtensor.layout_of(x) if isinstance(x, Tensor) else None
            own = [Replicate()] * mesh.ndim if have is None else have[1]
            if wanted is not None and isinstance(x, Tensor):
                plain = dtensor._checked(wanted[0], wanted[1], x.shape)
                x = _shard_grad(x, wanted[0], plain)
            given.append(x)
            if isinstance(x, Tensor):
                ins.append([Replicate() if isinstance(p, Partial) else p for p in own])
        outs = [placements for _, placements in self.out_dist_attrs]
        run = functools.partial(super().__call__, **kwargs)
        return _on_parts(run, tuple(given), mesh, ins, outs, "LocalLayer")
