"""The NVIDIA GPU of this machine, for kernels that need one."""

from __future__ import annotations

import functools
from typing import Any

from bireme.host import jax_door


@functools.cache
def _device() -> Any:
    device = next((d for d in jax_door.jax().devices() if d.platform == "gpu"), None)
    if device is None or "cuda" not in str(getattr(device.client, "platform_version", "")).lower():
        return None
    return device


@functools.cache
def available() -> bool:
    """An NVIDIA GPU of the Ampere generation or later."""
    return float(getattr(_device(), "compute_capability", "0")) >= 8.0


def generation() -> str:
    """Its compute capability as compilers write it: 90."""
    return str(_device().compute_capability).replace(".", "")


def multiprocessors() -> int:
    """How many of them it has."""
    return int(_device().core_count)


def interpreted() -> bool:
    """Whether kernels are only interpreted: in tests, where there is no GPU."""
    return not available()
