"""`paddle.device.custom_device`: the same functions, for chips that come with a PJRT plug-in."""

from __future__ import annotations

from bireme.api.types import DeviceLike
from bireme.core.errors import InvalidArgument
from bireme.core.place import Place
from bireme.device import memory, properties
from bireme.device.memory import empty_cache
from bireme.device.streams import Event, Stream
from bireme.device.streams import current_stream as _current_stream


def _chip(function: str, device: DeviceLike | None) -> Place:
    """A place on a plug-in's chip; the first one if `device` is None or a number."""
    from bireme.device import get_all_custom_device_type, get_available_custom_device

    kinds = get_all_custom_device_type()
    if device is None or isinstance(device, int):
        device = f"{kinds[0]}:{device or 0}" if kinds else device
    if isinstance(device, str | Place):
        where = memory.as_accelerator(device)
        if where.is_custom_place() and where.kind in kinds:
            return where
    raise InvalidArgument(
        f"[device.custom_device.{function}] needs a plug-in's device; found: "
        f"{', '.join(get_available_custom_device()) or 'none'}. Received: device={device!r}"
    )


def device_count(device_type: str | None = None) -> int:
    """How many devices the plug-ins bring, or the plug-in of this name."""
    from bireme.device import get_available_custom_device

    names = [name.partition(":")[0] for name in get_available_custom_device()]
    return len(names) if device_type is None else names.count(device_type)


def synchronize(device: DeviceLike | None = None) -> None:
    """Run what was recorded and wait for the chip."""
    from bireme.device import synchronize as wait

    wait(_chip("synchronize", device))


def current_stream(device: DeviceLike | None = None) -> Stream:
    """The stream that work on the chip goes to now."""
    return _current_stream(_chip("current_stream", device))


def get_device_properties(device: DeviceLike | None = None) -> properties.DeviceProperties:
    """The chip's name and memory."""
    return properties.get_device_properties(_chip("get_device_properties", device))


def memory_allocated(device: DeviceLike | None = None) -> int:
    """Bytes in use now."""
    return memory.memory_allocated(_chip("memory_allocated", device))


def max_memory_allocated(device: DeviceLike | None = None) -> int:
    """The most bytes that were ever in use at once."""
    return memory.max_memory_allocated(_chip("max_memory_allocated", device))


def memory_reserved(device: DeviceLike | None = None) -> int:
    """Bytes that the allocator holds."""
    return memory.memory_reserved(_chip("memory_reserved", device))


def max_memory_reserved(device: DeviceLike | None = None) -> int:
    """The most bytes that the allocator ever held."""
    return memory.max_memory_reserved(_chip("max_memory_reserved", device))


def reset_max_memory_allocated(device: DeviceLike | None = None) -> None:
    """Let `max_memory_allocated` begin anew."""
    memory.reset_max_memory_allocated(_chip("reset_max_memory_allocated", device))


def reset_max_memory_reserved(device: DeviceLike | None = None) -> None:
    """Let `max_memory_reserved` begin anew."""
    memory.reset_max_memory_reserved(_chip("reset_max_memory_reserved", device))


__all__ = [
    "Event",
    "Stream",
    "current_stream",
    "device_count",
    "empty_cache",
    "get_device_properties",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "reset_max_memory_allocated",
    "reset_max_memory_reserved",
    "synchronize",
]
