"""paddle.amp: mixed-precision training."""

from __future__ import annotations

from bireme.amp import debugging
from bireme.amp.auto_cast import (
    amp_guard,
    auto_cast,
    autocast,
    get_autocast_dtype,
    is_autocast_enabled,
)
from bireme.amp.decorate import amp_decorate, decorate
from bireme.amp.grad_scaler import AmpScaler, GradScaler

get_autocast_cpu_dtype = get_autocast_dtype
get_autocast_gpu_dtype = get_autocast_dtype


def is_float16_supported(device: str | None = None) -> bool:
    """Whether float16 can be used: the compiler provides it on every device."""
    _check_device(device)
    return True


def is_bfloat16_supported(device: str | None = None) -> bool:
    """Whether bfloat16 can be used: the compiler provides it on every device."""
    _check_device(device)
    return True


def _check_device(device: str | None) -> None:
    from bireme.core.errors import InvalidArgument
    from bireme.core.place import CustomPlace, as_place
    from bireme.device import get_all_custom_device_type

    place = None if device is None else as_place(device)
    known = get_all_custom_device_type()
    if isinstance(place, CustomPlace) and place.kind not in known:
        raise InvalidArgument(
            f"the device must be 'cpu', 'gpu' or one with a plug-in ({known}). Received: {device!r}"
        )


__all__ = [
    "AmpScaler",
    "GradScaler",
    "amp_decorate",
    "amp_guard",
    "auto_cast",
    "autocast",
    "debugging",
    "decorate",
    "get_autocast_cpu_dtype",
    "get_autocast_dtype",
    "get_autocast_gpu_dtype",
    "is_autocast_enabled",
    "is_bfloat16_supported",
    "is_float16_supported",
]
