"""What a device is: name, memory, compute capability."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from bireme.api.types import DeviceLike
from bireme.core.errors import InvalidArgument
from bireme.device.memory import as_accelerator, statistics


class DeviceProperties(NamedTuple):
    """The figures of one device."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int


def get_device_properties(device: DeviceLike | None = None) -> DeviceProperties:
    """Name, compute capability, memory in bytes and number of cores of a device."""
    where = as_accelerator(device)
    found = where.device()
    major, _, minor = str(getattr(found, "compute_capability", "0.0")).partition(".")
    return DeviceProperties(
        name=found.device_kind,
        major=int(major),
        minor=int(minor or 0),
        total_memory=int(statistics(where).get("bytes_limit", 0)),
        multi_processor_count=int(getattr(found, "core_count", 0)),
    )


def get_device_name(device: DeviceLike | None = None) -> str:
    """The chip's name, such as 'NVIDIA H200'."""
    return as_accelerator(device).device().device_kind


def get_device_capability(device: DeviceLike | None = None) -> tuple[int, int]:
    """A GPU's compute capability, (9, 0) for example."""
    where = as_accelerator(device)
    if not where.is_gpu_place():
        raise InvalidArgument(f"[get_device_capability] only GPUs have one. Received: {where!r}")
    properties = get_device_properties(where)
    return properties.major, properties.minor


def cudnn_version() -> int | None:
    """Asks the cuDNN library that this process has loaded."""
    try:
        return int(ctypes.CDLL("libcudnn.so.9").cudnnGetVersion())
    except OSError:
        return None
