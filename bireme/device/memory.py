"""Memory figures of a device, as XLA's allocator reports them."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

from bireme.api.types import DeviceLike
from bireme.core import checks, place, trace
from bireme.core.errors import InvalidArgument
from bireme.core.place import CUDAPlace, Place, as_place
from bireme.host import jax_door

# What the allocator calls a figure; not all of them have all names.
_IN_USE = ("bytes_in_use",)
_PEAK = ("peak_bytes_in_use",)
_HELD = ("pool_bytes", "bytes_reserved", "bytes_in_use")
_PEAK_HELD = ("peak_pool_bytes", "peak_bytes_reserved", "peak_bytes_in_use")


def memory_allocated(device: DeviceLike | None = None) -> int:
    """Bytes in use now."""
    return _figure("memory_allocated", device, _IN_USE)


def max_memory_allocated(device: DeviceLike | None = None) -> int:
    """The most bytes in use at once, ever or since `reset_max_memory_allocated`."""
    return _highest("max_memory_allocated", device, _IN_USE, _PEAK)


def memory_reserved(device: DeviceLike | None = None) -> int:
    """Bytes that the allocator holds, in use or not."""
    return _figure("memory_reserved", device, _HELD)


def max_memory_reserved(device: DeviceLike | None = None) -> int:
    """The most bytes that the allocator held, ever or since `reset_max_memory_reserved`."""
    return _highest("max_memory_reserved", device, _HELD, _PEAK_HELD)


def reset_max_memory_allocated(device: DeviceLike | None = None) -> None:
    """Let `max_memory_allocated` begin anew with what is in use now.

    XLA's allocator keeps one peak and cannot be told to forget it. Above that the answer is the
    allocator's; below, it is what was in use when a program began, with the buffers that the
    compiler planned for the program.
    """
    _reset("reset_max_memory_allocated", device, _IN_USE, _PEAK)


def reset_max_memory_reserved(device: DeviceLike | None = None) -> None:
    """Let `max_memory_reserved` begin anew with what the allocator holds now."""
    _reset("reset_max_memory_reserved", device, _HELD, _PEAK_HELD)


def reset_peak_memory_stats(device: DeviceLike | None = None) -> None:
    """`reset_max_memory_allocated`, by another name."""
    _reset("reset_peak_memory_stats", device, _IN_USE, _PEAK)


def empty_cache() -> None:
    """Free what nobody needs any more: dead buffers now, not when Python gets to it."""
    trace.flush()
    gc.collect()


def ipc_collect() -> None:
    """Free GPU memory whose readers in other processes are done. Tensors go to other processes
    by value, so that is what nobody in this process needs any more."""
    if not place._accelerator_possible():
        raise InvalidArgument("[ipc_collect] needs a GPU; none was found")
    empty_cache()


def as_accelerator(device: DeviceLike | None) -> Place:
    """The place that a memory or property function means; a number is a GPU's."""
    if device is None:
        return place.default_place()
    if isinstance(device, int):
        return CUDAPlace(device)
    return as_place(device)


def statistics(where: Place) -> dict[str, int]:
    """The allocator's own figures; empty where it keeps none, as on the CPU."""
    return where.backend().memory_stats(where)


def live_bytes() -> int:
    """Bytes of all arrays that are alive on JAX devices, the CPU's included."""
    if not jax_door.is_loaded():
        return 0
    return sum(a.nbytes for a in jax_door.jax().live_arrays())


def _figure(function: str, device: DeviceLike | None, names: tuple[str, ...]) -> int:
    where = as_accelerator(device)
    found = _first(statistics(where), names)
    if found is not None:
        return found
    raise InvalidArgument(
        f"[{function}] {where} keeps no memory figures; they exist for GPUs and other "
        f"accelerators. Received: device={device!r}"
    )


def _first(found: dict[str, int], names: tuple[str, ...]) -> int | None:
    return next((int(found[name]) for name in names if name in found), None)


# --- peaks that begin anew ------------------------------------------------------------------------


@dataclass
class _Since:
    """A reset: the allocator's peak at that moment, and the most that was seen after it."""

    old_peak: int
    seen: int


_resets: dict[tuple[Place, tuple[str, ...]], _Since] = {}


def _reset(
    function: str, device: DeviceLike | None, now: tuple[str, ...], peak: tuple[str, ...]
) -> None:
    trace.flush()  # what was recorded before belongs to the time before
    where = as_accelerator(device)
    old = _figure(function, where, peak)
    _resets[where, now] = _Since(old, _figure(function, where, now))
    if _look not in checks.starting:
        checks.starting.append(_look)


def _look(executable: Any) -> None:
    """See what is in use when a program begins, and what it will add to that."""
    for (where, now), since in _resets.items():
        found = statistics(where)
        used = found.get("bytes_in_use", 0) + executable.adds_on(where)
        since.seen = max(since.seen, _first(found, now) or 0, used)


def _highest(
    function: str, device: DeviceLike | None, now: tuple[str, ...], peak: tuple[str, ...]
) -> int:
    trace.flush()
    where = as_accelerator(device)
    highest = _figure(function, where, peak)
    since = _resets.get((where, now))
    if since is None or highest > since.old_peak:
        return highest
    since.seen = max(since.seen, _figure(function, where, now))
    return min(since.seen, since.old_peak)
