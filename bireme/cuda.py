"""paddle.cuda: functions of `paddle.device` by the names that programs for PyTorch use.

They are about whatever accelerator there is, as in Paddle, not about NVIDIA's alone.
"""

from __future__ import annotations

from bireme.api.types import DeviceLike
from bireme.core import place
from bireme.core.errors import InvalidArgument
from bireme.core.place import Place
from bireme.device import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    device,
    device_count,
    empty_cache,
    get_device_capability,
    get_device_name,
    get_device_properties,
    get_rng_state,
    ipc_collect,
    is_available,
    is_bf16_supported,
    is_current_stream_capturing,
    manual_seed,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    reset_peak_memory_stats,
    set_rng_state,
    set_stream,
    synchronize,
)
from bireme.device import set_device as _set_device
from bireme.device.memory import as_accelerator, statistics
from bireme.ops.typed import (
    BFloat16Tensor,
    BoolTensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
)


def is_initialized() -> bool:
    """Whether there is an accelerator: it is made ready with the first program."""
    return is_available()


def current_device() -> int:
    """The number of the device that computes."""
    return place.default_place().index


def set_device(device: int | str | Place) -> None:
    """Make `device` the one that computes; a number is an accelerator's."""
    if isinstance(device, int) and not is_available():
        raise InvalidArgument(f"[cuda.set_device] there is no accelerator. Received: {device}")
    _set_device(as_accelerator(device) if isinstance(device, int) else device)


def mem_get_info(device: DeviceLike | None = None) -> tuple[int, int]:
    """Bytes of an accelerator's memory that are free for this process, and all of them."""
    where = as_accelerator(device)
    found = {} if where.is_cpu_place() else statistics(where)
    if "bytes_limit" not in found:
        raise InvalidArgument(f"[cuda.mem_get_info] needs an accelerator. Received: {device!r}")
    return found["bytes_limit"] - found.get("bytes_in_use", 0), found["bytes_limit"]


def stream(stream: Stream | None) -> StreamContext:
    """`with paddle.cuda.stream(s):` work goes to that stream."""
    return StreamContext(stream)


def manual_seed_all(seed: int) -> None:
    """Start all random operations over from `seed`; one generator serves all devices."""
    manual_seed(seed)


__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "Event",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
    "Stream",
    "StreamContext",
    "current_device",
    "current_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "reset_peak_memory_stats",
    "set_device",
    "set_rng_state",
    "set_stream",
    "stream",
    "synchronize",
]
