"""Devices: which there are, which one is current, how much memory they use."""

from __future__ import annotations

from types import TracebackType
from typing import Any, overload

from bireme import backends
from bireme.api.types import DeviceLike
from bireme.core import place, trace
from bireme.core import random as _random
from bireme.core.errors import InvalidArgument
from bireme.core.place import CPUPlace, Place, as_place
from bireme.core.random import RngState, get_rng_state
from bireme.core.tensor import Tensor
from bireme.device import cuda, custom_device, xpu
from bireme.device.memory import (
    as_accelerator,
    empty_cache,
    ipc_collect,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    reset_max_memory_allocated,
    reset_max_memory_reserved,
    reset_peak_memory_stats,
)
from bireme.device.process import tune_process
from bireme.device.properties import (
    DeviceProperties,
    get_device_capability,
    get_device_name,
    get_device_properties,
)
from bireme.device.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    is_current_stream_capturing,
    set_stream,
    stream_guard,
)
from bireme.device.xpu import XPUPlace
from bireme.host import jax_door, plugins
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


def set_rng_state(new_state: RngState | list[RngState], device: DeviceLike | None = None) -> None:
    """Continue from a state that `get_rng_state` returned. One generator serves all devices."""
    single = isinstance(new_state, tuple | list) and any(isinstance(n, int) for n in new_state)
    _random.set_rng_state([new_state] if single else new_state)  # pyright: ignore[reportArgumentType]


def manual_seed(seed: int) -> None:
    """Start all random operations over from `seed`, as `paddle.seed` does."""
    _random.seed(int(seed))


def set_device(device: str | Place) -> Place:
    """Make `device` ('cpu', 'gpu', 'gpu:1', a plug-in's name) the one that computes."""
    chosen = as_place(device)
    trace.flush()  # what was recorded before belongs to the device of before
    try:
        place.set_default_place(chosen)
    except InvalidArgument as e:
        found = ", ".join(["cpu", *get_available_device(), *get_available_custom_device()])
        raise InvalidArgument(
            f"[set_device] {e}. Received: {device!r}; use one of: {found}"
        ) from None
    return chosen


@overload
def get_device(input: None = None) -> str: ...
@overload
def get_device(input: Tensor) -> int: ...
def get_device(input: Tensor | None = None) -> str | int:
    """The current device's name, 'cpu' or 'gpu:0'; the number of a tensor's, -1 for the CPU."""
    if input is not None:
        return -1 if input.place.is_cpu_place() else input.place.index
    where = place.default_place()
    return "cpu" if where.is_cpu_place() else f"{where.kind}:{where.index}"


class device_guard:  # noqa: N801 (Paddle's name)
    """Use another device inside a `with` block."""

    def __init__(self, device: str | Place | None = None):
        self._device = None if device is None else as_place(device)

    def __enter__(self) -> None:
        self._before = place.default_place()
        if self._device is not None:
            set_device(self._device)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        trace.flush()  # what was recorded in the block runs on the block's device
        place.set_default_place(self._before)


class device(device_guard):  # noqa: N801 (Paddle's name)
    """Use another device inside a `with` block; a number is an accelerator's, None and a
    negative one change nothing."""

    def __init__(self, device: str | int | Place | None = None):
        if isinstance(device, int):
            device = None if device < 0 else as_accelerator(device)
        super().__init__(device)


def synchronize(device: str | Place | None = None) -> None:
    """Run what this thread recorded and wait until the device has finished it."""
    trace.flush()
    where = place.default_place() if device is None else as_place(device)
    where.backend().synchronize(where)


def is_compiled_with_cuda() -> bool:
    """Whether JAX's CUDA plug-in is installed."""
    return any(name.startswith(("cuda", "xla_cuda")) for name in _plugins())


def is_compiled_with_rocm() -> bool:
    """Whether JAX's ROCm plug-in is installed."""
    return any(name.startswith(("rocm", "xla_rocm")) for name in _plugins())


def is_compiled_with_xpu() -> bool:
    """Whether there is a Kunlun XPU plug-in."""
    return is_compiled_with_custom_device("xpu")


def is_compiled_with_ipu() -> bool:
    """Whether there is a Graphcore IPU plug-in."""
    return is_compiled_with_custom_device("ipu")


def is_compiled_with_cinn() -> bool:
    """Whether Paddle's own compiler is there; Bireme compiles with XLA instead."""
    return False


def is_compiled_with_distribute() -> bool:
    """Whether several processes can work together."""
    return True


def is_compiled_with_custom_device(device_type: str) -> bool:
    """Whether a backend or a PJRT plug-in of this name is installed."""
    return device_type in get_all_custom_device_type()


def get_cudnn_version() -> int | None:
    """The loaded cuDNN's version as one number (90100 for 9.1.0), None without CUDA."""
    if not _devices("gpu"):
        return None
    from bireme.device.properties import cudnn_version

    return cudnn_version()


def device_count() -> int:
    """How many accelerators of the current kind there are; 0 on a machine with a CPU only."""
    return len(get_available_device()) or len(get_available_custom_device())


def is_available() -> bool:
    """Whether there is an accelerator."""
    return device_count() > 0


def get_all_device_type() -> list[str]:
    """Kinds of built-in accelerators that this machine has."""
    return sorted({d.partition(":")[0] for d in get_available_device()})


def get_available_device() -> list[str]:
    """Built-in accelerators of this machine: ['gpu:0', 'gpu:1']."""
    return [f"gpu:{i}" for i in range(len(_devices("gpu")))]


def get_all_custom_device_type() -> list[str]:
    """Names of installed backends, and of PJRT plug-ins other than JAX's own."""
    own = ("cuda", "rocm", "xla_cuda", "xla_rocm")
    chips = [name for name in _plugins() if not name.startswith(own)]
    return sorted({*chips, *backends.other_backends()})


def get_available_custom_device() -> list[str]:
    """Devices of installed plug-ins: ['my_chip:0']."""
    return [
        f"{kind}:{i}"
        for kind in get_all_custom_device_type()
        for i in range(backends.serving(kind).device_count(kind))
    ]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 works: always, in software on chips that lack it."""
    if including_emulation:
        return True
    where = place.default_place()
    return where.is_gpu_place() and get_device_capability(where)[0] >= 8


def _plugins() -> list[str]:
    return sorted([point.name for point in plugins.entry_points("jax_plugins")])


def _devices(kind: str) -> list[Any]:
    if not place._accelerator_possible():
        return []
    try:
        return jax_door.jax().devices(kind)
    except RuntimeError:
        return []


__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CPUPlace",
    "CharTensor",
    "DeviceProperties",
    "DoubleTensor",
    "Event",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
    "Stream",
    "StreamContext",
    "XPUPlace",
    "cuda",
    "current_stream",
    "custom_device",
    "device",
    "device_count",
    "device_guard",
    "empty_cache",
    "get_all_custom_device_type",
    "get_all_device_type",
    "get_available_custom_device",
    "get_available_device",
    "get_cudnn_version",
    "get_device",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_compiled_with_cinn",
    "is_compiled_with_cuda",
    "is_compiled_with_custom_device",
    "is_compiled_with_distribute",
    "is_compiled_with_ipu",
    "is_compiled_with_rocm",
    "is_compiled_with_xpu",
    "is_current_stream_capturing",
    "manual_seed",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "reset_max_memory_allocated",
    "reset_max_memory_reserved",
    "reset_peak_memory_stats",
    "set_device",
    "set_rng_state",
    "set_stream",
    "stream_guard",
    "synchronize",
    "tune_process",
    "xpu",
]
