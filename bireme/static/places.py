"""Devices of static programs."""

from __future__ import annotations

import os
from typing import Any

from bireme.core.place import CPUPlace, CUDAPlace


def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """That many CPU places; by default as many as the variable CPU_NUM says, or one."""
    count = int(os.environ.get("CPU_NUM", "1")) if device_count is None else device_count
    return [CPUPlace() for _ in range(count)]


def cuda_places(device_ids: Any = None) -> list[CUDAPlace]:
    """The CUDA devices of these numbers; by default all of them."""
    if device_ids is None:
        from bireme import device

        device_ids = range(device.cuda.device_count())
    ids = [device_ids] if isinstance(device_ids, int) else list(device_ids)
    return [CUDAPlace(i) for i in ids]
