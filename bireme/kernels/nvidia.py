"""What NVIDIA GPU there is, for kernels that need one."""

from __future__ import annotations

import functools

from bireme.core import jax_door


@functools.cache
def available() -> bool:
    """An NVIDIA GPU of the Ampere generation or later."""
    device = next((d for d in jax_door.jax().devices() if d.platform == "gpu"), None)
    if device is None or "cuda" not in str(getattr(device.client, "platform_version", "")).lower():
        return False
    return float(getattr(device, "compute_capability", "0")) >= 8.0


def interpreted() -> bool:
    """Whether kernels are only interpreted: in tests, where there is no GPU."""
    return not available()
