"""Tensors over several devices: shard_tensor, reshard, shard_layer.

A sharding is a property of a leaf's buffer. XLA's partitioner carries it through everything
that is computed from it, forward, backward and update, so nothing else has to know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.api.types import DTypeLike, PlaceLike, TensorLike
from bireme.core import dtype as dt
from bireme.core import sharding, trace
from bireme.core.errors import InvalidArgument, TypeMismatch, warn_user
from bireme.core.op import op
from bireme.core.tensor import Parameter, Tensor
from bireme.core.value import value_of
from bireme.distributed.mesh import ProcessMesh
from bireme.distributed.placement import Placement, Replicate, Shard
from bireme.host import config, jax_door

if TYPE_CHECKING:
    from bireme.nn.layer.layer import Layer


@lru_cache(maxsize=1024)
def _sharding(mesh: ProcessMesh, placements: tuple[Placement, ...], rank: int) -> Any:
    """JAX's sharding for these placements; axes of the mesh in order on each dimension."""
    module = jax_door.jax().sharding
    parts: list[list[str]] = [[] for _ in range(rank)]
    for name, placement in zip(mesh.dim_names, placements, strict=True):
        if isinstance(placement, Shard):
            parts[placement.dim % rank].append(name)
    spec = [tuple(p) if len(p) > 1 else (p[0] if p else None) for p in parts]
    while spec and spec[-1] is None:
        spec.pop()
    return module.NamedSharding(mesh.devices(), module.PartitionSpec(*spec))


def _checked(mesh: Any, placements: Any, shape: Sequence[int]) -> tuple[Placement, ...]:
    if not isinstance(mesh, ProcessMesh):
        raise TypeMismatch(f"mesh must be a ProcessMesh. Received: {type(mesh).__name__}")
    if not isinstance(placements, list | tuple) or not all(
        isinstance(p, Placement) for p in placements
    ):
        raise TypeMismatch(
            "placements must be a list of Shard, Replicate and Partial. Received: "
            f"{placements!r:.100}"
        )
    given = [*placements, *[Replicate()] * (mesh.ndim - len(placements))]
    if len(given) != mesh.ndim:
        raise InvalidArgument(
            f"there must be one placement per dimension of the mesh, {mesh.ndim}. Received: "
            f"{len(given)}"
        )
    parts = [1] * len(shape)
    for size, p in zip(mesh.shape, given, strict=True):
        if isinstance(p, Shard):
            if not -len(shape) <= p.dim < len(shape):
                raise InvalidArgument(f"{p!r} does not fit a tensor of shape {list(shape)}")
            parts[p.dim] *= size
    for dim, (size, count) in enumerate(zip(shape, parts, strict=True)):
        if size % count:
            raise InvalidArgument(
                f"dimension {dim} has size {size}, which does not divide into {count} equal parts"
            )
    return tuple(given)


def _sharding_vjp(xp: Any, grad: Any, mesh: Any, placements: Any) -> tuple[Any]:
    return (_constrain(xp, grad, mesh, placements),)


def _constrain(xp: Any, x: Any, mesh: ProcessMesh, placements: tuple[Placement, ...]) -> Any:
    if xp is np or not mesh.is_there():
        return x
    return jax_door.jax().lax.with_sharding_constraint(x, _sharding(mesh, placements, x.ndim))


@op(name="shard", vjp=_sharding_vjp, infer=lambda x, mesh, placements: x)
def _shard(xp: Any, x: Any, mesh: Any = None, placements: Any = ()) -> Any:
    """The same contents, laid out over the mesh."""
    return _constrain(xp, x, mesh, placements)


def shard_tensor(
    data: TensorLike,
    mesh: ProcessMesh,
    placements: Sequence[Placement],
    dtype: DTypeLike | None = None,
    place: PlaceLike | None = None,
    stop_gradient: bool | None = None,
) -> Tensor:
    """A tensor like `data` that is laid out over the mesh. A result of operations stays part of
    its graph; anything else becomes a new leaf (a Parameter stays one)."""
    from bireme.ops.creation import to_tensor

    if not isinstance(data, Tensor):
        data = to_tensor(data, dtype=dtype, place=place)
        if stop_gradient is None:
            stop_gradient = True
    elif dtype is not None and data.dtype is not dt.as_dtype(dtype):
        data = data.astype(dtype)
    if stop_gradient is None:
        stop_gradient = data.stop_gradient
    chosen = _checked(mesh, placements, data.shape)
    spread = mesh.is_there()
    if spread:
        config.sharded |= mesh.size > 1
    else:
        _warn_of_few_devices(mesh)
    if not data.is_leaf or data._value.trace.__class__ not in (type(None), trace.Trace):
        return _noted(_shard(data, mesh, chosen), mesh, chosen)
    buf = data._array()
    if spread:
        buf = sharding.put(buf, _sharding(mesh, chosen, data.ndim))
    value = value_of(data._value.aval, buf)
    if isinstance(data, Parameter):
        made: Tensor = type(data).__new__(type(data))
        made.__dict__.update(data.__dict__)
        made._value, made._node, made._grad = value, None, None
        made._view = made._views = None
        made.is_distributed = True
    else:
        made = Tensor(value, None)
        made._name = data._name
    made.stop_gradient = stop_gradient
    return _noted(made, mesh, chosen)


def reshard(dist_tensor: Tensor, mesh: ProcessMesh, placements: Sequence[Placement]) -> Tensor:
    """The same contents in another layout; differentiable."""
    chosen = _checked(mesh, placements, dist_tensor.shape)
    if dist_tensor._node is None and dist_tensor._value.buf is not None:
        return shard_tensor(dist_tensor, mesh, placements)
    config.sharded |= mesh.size > 1 and mesh.is_there()
    return _noted(_shard(dist_tensor, mesh, chosen), mesh, chosen)


def _warn_of_few_devices(mesh: ProcessMesh) -> None:
    """A mesh that is larger than the machine is a way to write a program, not to run it."""
    count = len(jax_door.jax().devices())
    warn_user(
        f"the mesh uses device {max(mesh.process_ids)}, but there are {count}. "
        "Tensors keep their placements and are computed whole, on this device. To try a mesh on "
        "one machine, start Python with XLA_FLAGS=--xla_force_host_platform_device_count=8"
    )


def dtensor_from_fn(
    fn: Callable[..., Tensor],
    mesh: ProcessMesh,
    placements: Sequence[Placement],
    *args: Any,
    **kwargs: Any,
) -> Tensor:
    """`shard_tensor` of what `fn(*args, **kwargs)` makes."""
    return shard_tensor(fn(*args, **kwargs), mesh, placements)


def unshard_dtensor(dist_tensor: Tensor) -> Tensor:
    """The whole contents as an ordinary tensor on the host."""
    whole = Tensor(value_of(dist_tensor._value.aval, dist_tensor.numpy()), None)
    whole.stop_gradient = dist_tensor.stop_gradient
    return whole


def shard_layer(
    layer: Layer,
    process_mesh: ProcessMesh,
    shard_fn: Callable[[str, Any, ProcessMesh], None] | None = None,
    input_fn: Callable[[Any, ProcessMesh], Any] | None = None,
    output_fn: Callable[[Any, ProcessMesh], Any] | None = None,
) -> Layer:
    """Lay out a layer's parameters over the mesh.

    `shard_fn(name, sublayer, mesh)` replaces the parameters it wants to lay out; those that it
    leaves alone are copied to every device. `input_fn(inputs, mesh)` and
    `output_fn(outputs, mesh)` are put around the layer's call.
    """
    from bireme.nn.layer.layer import Layer

    if not isinstance(layer, Layer):
        raise TypeMismatch(f"shard_layer takes a Layer. Received: {type(layer).__name__}")
    if not isinstance(process_mesh, ProcessMesh):
        raise TypeMismatch(
            f"process_mesh must be a ProcessMesh. Received: {type(process_mesh).__name__}"
        )
    for name, inner in layer.named_sublayers(include_self=True):
        if shard_fn is not None:
            shard_fn(name, inner, process_mesh)
        for registry in (inner._parameters, inner._buffers):
            for key, tensor in list(registry.items()):
                if tensor is not None and not sharding.is_spread(tensor._array()):
                    everywhere = [Replicate()] * process_mesh.ndim
                    registry[key] = shard_tensor(tensor, process_mesh, everywhere)
    if input_fn is not None:
        layer.register_forward_pre_hook(lambda _, inputs: input_fn(inputs, process_mesh))
    if output_fn is not None:
        layer.register_forward_post_hook(lambda _, __, outs: output_fn(outs, process_mesh))
    return layer


def _noted(tensor: Tensor, mesh: ProcessMesh, placements: tuple[Placement, ...]) -> Tensor:
    """Remember what the user asked for: a buffer cannot say 'Partial'."""
    tensor._layout = (tensor._value, mesh, placements)  # pyright: ignore[reportAttributeAccessIssue]
    return tensor


def layout_of(tensor: Tensor) -> tuple[ProcessMesh, list[Placement]] | None:
    """(mesh, placements) of a tensor over several devices, else None."""
    noted = tensor.__dict__.get("_layout")
    if noted is not None and noted[0] is tensor._value:
        return noted[1], list(noted[2])
    if not config.sharded or trace.state.trace.__class__ is not trace.Trace:
        return None
    buf = tensor._array()
    mesh = getattr(getattr(buf, "sharding", None), "mesh", None)
    if not sharding.is_spread(buf) or mesh is None:
        return None
    placements: list[Placement] = []
    for name in mesh.axis_names:
        dim = next(
            (
                i
                for i, part in enumerate(buf.sharding.spec)
                if name == part or (isinstance(part, tuple) and name in part)
            ),
            None,
        )
        placements.append(Replicate() if dim is None else Shard(dim))
    return ProcessMesh.from_devices(mesh), placements


sharding.layout_of = layout_of
