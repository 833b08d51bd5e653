"""`paddle.device.cuda`: the same functions, for GPUs."""

from __future__ import annotations

from bireme.api.types import DeviceLike
from bireme.core import place
from bireme.core.errors import InvalidArgument
from bireme.core.place import CUDAPlace, Place
from bireme.device import memory, properties
from bireme.device.streams import Event, Stream, stream_guard
from bireme.device.streams import current_stream as _current_stream
from bireme.host import jax_door


def device_count() -> int:
    """How many NVIDIA GPUs there are."""
    if not place._accelerator_possible():
        return 0
    try:
        return len(jax_door.jax().devices("gpu"))
    except RuntimeError:
        return 0


def synchronize(device: DeviceLike | None = None) -> None:
    """Run what was recorded and wait for the GPU."""
    from bireme.device import synchronize as wait

    wait(_gpu("synchronize", device))


def empty_cache() -> None:
    """Free what nobody needs any more."""
    memory.empty_cache()


def memory_allocated(device: DeviceLike | None = None) -> int:
    """Bytes in use now on a GPU."""
    return memory.memory_allocated(_gpu("memory_allocated", device))


def max_memory_allocated(device: DeviceLike | None = None) -> int:
    """The most bytes that were ever in use at once on a GPU."""
    return memory.max_memory_allocated(_gpu("max_memory_allocated", device))


def memory_reserved(device: DeviceLike | None = None) -> int:
    """Bytes that the allocator holds of a GPU."""
    return memory.memory_reserved(_gpu("memory_reserved", device))


def max_memory_reserved(device: DeviceLike | None = None) -> int:
    """The most bytes that the allocator ever held of a GPU."""
    return memory.max_memory_reserved(_gpu("max_memory_reserved", device))


def reset_max_memory_allocated(device: DeviceLike | None = None) -> None:
    """Let `max_memory_allocated` begin anew."""
    memory.reset_max_memory_allocated(_gpu("reset_max_memory_allocated", device))


def reset_max_memory_reserved(device: DeviceLike | None = None) -> None:
    """Let `max_memory_reserved` begin anew."""
    memory.reset_max_memory_reserved(_gpu("reset_max_memory_reserved", device))


def current_stream(device: DeviceLike | None = None) -> Stream:
    """The stream that work on a GPU goes to now."""
    return _current_stream(_gpu("current_stream", device))


def memory_summary(device: DeviceLike | None = None) -> str:
    """What XLA's allocator reports of a GPU's memory, one figure in a line."""
    found = memory.statistics(_gpu("memory_summary", device))
    return "\n".join(f"{name:<32}{value:>20,}" for name, value in sorted(found.items()))


def get_device_properties(device: DeviceLike | None = None) -> properties.DeviceProperties:
    """A GPU's name, compute capability, memory and cores."""
    return properties.get_device_properties(_gpu("get_device_properties", device))


def get_device_name(device: DeviceLike | None = None) -> str:
    """A GPU's name."""
    return properties.get_device_name(_gpu("get_device_name", device))


def get_device_capability(device: DeviceLike | None = None) -> tuple[int, int]:
    """A GPU's compute capability."""
    return properties.get_device_capability(_gpu("get_device_capability", device))


def _gpu(function: str, device: DeviceLike | None) -> Place:
    where = memory.as_accelerator(device)
    if device is None and where.is_cpu_place():
        where = CUDAPlace(0)
    if not where.is_gpu_place() or where.index >= device_count():
        raise InvalidArgument(
            f"[device.cuda.{function}] needs a GPU; {device_count()} found. Received: "
            f"device={device!r}"
        )
    return where


__all__ = [
    "Event",
    "Stream",
    "current_stream",
    "device_count",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_summary",
    "reset_max_memory_allocated",
    "reset_max_memory_reserved",
    "stream_guard",
    "synchronize",
]
