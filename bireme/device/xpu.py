"""`paddle.device.xpu`: the functions of `custom_device`, for chips whose PJRT plug-in is `xpu`."""

from __future__ import annotations

from bireme.api.types import DeviceLike
from bireme.core.place import CustomPlace, Place
from bireme.device import custom_device
from bireme.device.memory import empty_cache
from bireme.device.streams import Event, Stream


def _xpu(device: DeviceLike | None) -> DeviceLike:
    if device is None or isinstance(device, int):
        return CustomPlace("xpu", device or 0)
    return device


def device_count() -> int:
    """How many XPUs there are."""
    return custom_device.device_count("xpu")


def synchronize(device: DeviceLike | None = None) -> None:
    """Run what was recorded and wait for the XPU."""
    custom_device.synchronize(_xpu(device))


def memory_allocated(device: DeviceLike | None = None) -> int:
    """Bytes in use now."""
    return custom_device.memory_allocated(_xpu(device))


memory_used = memory_allocated


def max_memory_allocated(device: DeviceLike | None = None) -> int:
    """The most bytes that were ever in use at once."""
    return custom_device.max_memory_allocated(_xpu(device))


def memory_reserved(device: DeviceLike | None = None) -> int:
    """Bytes that the allocator holds."""
    return custom_device.memory_reserved(_xpu(device))


def max_memory_reserved(device: DeviceLike | None = None) -> int:
    """The most bytes that the allocator ever held."""
    return custom_device.max_memory_reserved(_xpu(device))


def reset_max_memory_allocated(device: DeviceLike | None = None) -> None:
    """Let `max_memory_allocated` begin anew."""
    custom_device.reset_max_memory_allocated(_xpu(device))


def reset_max_memory_reserved(device: DeviceLike | None = None) -> None:
    """Let `max_memory_reserved` begin anew."""
    custom_device.reset_max_memory_reserved(_xpu(device))


def memory_total(device: DeviceLike | None = None) -> int:
    """Bytes of memory that the XPU has."""
    return custom_device.get_device_properties(_xpu(device)).total_memory


def XPUPlace(dev_id: int) -> Place:  # noqa: N802 (Paddle's name)
    """The XPU of this number."""
    return CustomPlace("xpu", dev_id)


__all__ = [
    "Event",
    "Stream",
    "device_count",
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_total",
    "memory_used",
    "reset_max_memory_allocated",
    "reset_max_memory_reserved",
    "synchronize",
]
