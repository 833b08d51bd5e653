"""Buffers that are spread over several devices, as the executor sees them.

Used only after a tensor was sharded (`config.sharded`). All inputs of one program must be on the
same devices, so buffers on a single device are first copied to all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.trace import Trace, Value, state
from bireme.host import jax_door
from bireme.host.arrays import Array

if TYPE_CHECKING:
    from bireme.core.tensor import Tensor

# (mesh, placements) of a tensor; set by bireme.distributed, without which nothing is spread.
layout_of: Callable[[Any], Any] | None = None
attribute_of: Callable[[Any], Any] | None = None


def is_spread(buf: object) -> bool:
    sharding = getattr(buf, "sharding", None)
    return sharding is not None and len(sharding.device_set) > 1


def whole(buf: Any) -> Array:
    """A buffer that this process can read. One with parts in other processes is put together,
    which all of them must ask for."""
    if getattr(buf, "is_fully_addressable", True) or buf.is_fully_replicated:
        return buf
    return jax_door.jax().jit(_same, out_shardings=replicated(buf.sharding))(buf)


def _same(x: Any) -> Any:
    return x


def align(leaves: list[Value]) -> None:
    """Put every leaf on the devices of the first one that is on several."""
    for leaf in leaves:
        if is_spread(leaf.buf):
            break
    else:
        return
    everywhere = replicated(leaf.buf.sharding)
    for other in leaves:
        if not is_spread(other.buf):
            other.buf = put(other.buf, everywhere)


def put(buf: Array, sharding: Any) -> Array:
    """A buffer laid out over devices. Other processes hold their parts: contents that all have are
    taken to be equal, which JAX would verify with an exchange of its own."""
    jax = jax_door.jax()
    if sharding.is_fully_addressable or is_spread(buf):
        return jax.device_put(buf, sharding)
    host = np.asarray(buf)
    return jax.make_array_from_callback(host.shape, sharding, host.__getitem__)


def like(tensor: Tensor, array: Array) -> Array:
    """`array` in the layout of `tensor`, if that is on several devices."""
    if state.trace.__class__ is not Trace or is_spread(array):
        return array
    buf = tensor._array()
    return jax_door.jax().device_put(array, buf.sharding) if is_spread(buf) else array


def replicated(like: Any) -> Array:
    """The sharding that keeps a whole copy on each device of `like`."""
    sharding = jax_door.jax().sharding
    mesh = getattr(like, "mesh", None)
    if mesh is None:
        devices = sorted(like.device_set, key=lambda d: d.id)
        mesh = sharding.Mesh(devices, ("devices",))
    return sharding.NamedSharding(mesh, sharding.PartitionSpec())


def shardings(buffers: list[Any]) -> tuple[Any, ...] | None:
    """The sharding of each buffer, hashable; None if nothing is on several devices."""
    found = tuple([_normal(b) for b in buffers])
    return None if all(s is None for s in found) else found


def _normal(buf: Any) -> Any:
    """The buffer's sharding, written in one way: trailing None in its spec says nothing."""
    if not is_spread(buf):
        return None
    sharding = buf.sharding
    spec = getattr(sharding, "spec", None)
    if spec is None:
        return sharding
    parts = list(spec)
    while parts and parts[-1] is None:
        parts.pop()
    module = jax_door.jax().sharding
    return module.NamedSharding(sharding.mesh, module.PartitionSpec(*parts))
