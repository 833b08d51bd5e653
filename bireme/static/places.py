"""Devices of static programs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bireme.core.errors import InvalidArgument
from bireme.core.place import CPUPlace, CUDAPlace, CustomPlace


def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """That many CPU places; by default as many as the variable CPU_NUM says, or one."""
    count = int(os.environ.get("CPU_NUM", "1")) if device_count is None else device_count
    return [CPUPlace() for _ in range(count)]


def cuda_places(device_ids: int | Sequence[int] | None = None) -> list[CUDAPlace]:
    """The CUDA devices of these numbers; by default all of them."""
    if device_ids is None:
        from bireme import device

        device_ids = range(device.cuda.device_count())
    ids = [device_ids] if isinstance(device_ids, int) else list(device_ids)
    return [CUDAPlace(i) for i in ids]


def xpu_places(device_ids: int | Sequence[int] | None = None) -> list[CustomPlace]:
    """The chips of the PJRT plug-in `xpu` of these numbers; by default all of them."""
    if device_ids is None:
        from bireme.device import xpu

        device_ids = range(xpu.device_count())
    ids = [device_ids] if isinstance(device_ids, int) else list(device_ids)
    return [CustomPlace("xpu", i) for i in ids]


@contextmanager
def device_guard(device: str | None = None) -> Iterator[None]:
    """Ops of the block are meant for 'cpu', 'gpu', 'gpu:1' or a plug-in's chip.

    A program is compiled whole for the executor's device, where these ops run too: the name is
    checked, and numbers are the same wherever they are computed.
    """
    from bireme import device as devices

    kind, _, number = (device or "").partition(":")
    if kind not in ("", "cpu", "gpu", *devices.get_all_custom_device_type()):
        raise InvalidArgument(
            "[device_guard] a device is 'cpu', 'gpu', 'gpu:0', a plug-in's name or None. Received: "
            f"{device!r}"
        )
    if number and (kind == "cpu" or not number.isdigit()):
        raise InvalidArgument(
            f"[device_guard] the number goes with a GPU or a chip, and is one. Received: {device!r}"
        )
    yield
