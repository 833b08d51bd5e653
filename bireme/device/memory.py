"""Memory figures of a device, as XLA's allocator reports them."""

from __future__ import annotations

import gc
from typing import Any

from bireme.core import jax_door, place, trace
from bireme.core.errors import InvalidArgument
from bireme.core.place import CUDAPlace, Place, as_place


def memory_allocated(device: Any = None) -> int:
    """Bytes in use now."""
    return _figure("memory_allocated", device, "bytes_in_use")


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that were ever in use at once."""
    return _figure("max_memory_allocated", device, "peak_bytes_in_use")


def memory_reserved(device: Any = None) -> int:
    """Bytes that the allocator holds, in use or not."""
    return _figure("memory_reserved", device, "pool_bytes", "bytes_reserved", "bytes_in_use")


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that the allocator ever held."""
    return _figure(
        "max_memory_reserved", device, "peak_pool_bytes", "peak_bytes_reserved", "peak_bytes_in_use"
    )


def empty_cache() -> None:
    """Free what nobody needs any more: dead buffers now, not when Python gets to it."""
    trace.flush()
    gc.collect()


def as_accelerator(device: Any) -> Place:
    """The place that a memory or property function means; a number is a GPU's."""
    if device is None:
        return place.default_place()
    if isinstance(device, int):
        return CUDAPlace(device)
    return as_place(device)


def statistics(where: Place) -> dict[str, int]:
    """The allocator's own figures; empty where it keeps none, as on the CPU."""
    return where.device().memory_stats() or {}


def live_bytes() -> int:
    """Bytes of all arrays that are alive on JAX devices, the CPU's included."""
    if not jax_door.is_loaded():
        return 0
    return sum(a.nbytes for a in jax_door.jax().live_arrays())


def _figure(function: str, device: Any, *names: str) -> int:
    where = as_accelerator(device)
    found = statistics(where)
    for name in names:
        if name in found:
            return int(found[name])
    raise InvalidArgument(
        f"[{function}] {where} keeps no memory figures; they exist for GPUs and other "
        f"accelerators. Received: device={device!r}"
    )
