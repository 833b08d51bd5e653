"""Where a tensor lives: CPU, CUDA, or a plug-in chip's device; and which backend serves it."""

from __future__ import annotations

import importlib.util
import os
import sys
import weakref
from typing import Any

from bireme import backends
from bireme.backends import Backend
from bireme.core.errors import InvalidArgument
from bireme.host import jax_door, plugins
from bireme.host.arrays import Array


class Place:
    """A device. `kind` is the name of a JAX platform, or of the backend that serves it."""

    kind = "cpu"

    def __init__(self, index: int = 0):
        self.index = index

    def get_device_id(self) -> int:
        return self.index

    def is_cpu_place(self) -> bool:
        return self.kind == "cpu"

    def is_gpu_place(self) -> bool:
        return self.kind == "gpu"

    def is_cuda_pinned_place(self) -> bool:
        return isinstance(self, CUDAPinnedPlace)

    def is_custom_place(self) -> bool:
        return self.kind not in ("cpu", "gpu")

    def is_xpu_place(self) -> bool:
        return False

    def gpu_device_id(self) -> int:
        return self.index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and (self.kind, self.index) == (other.kind, other.index)

    def __hash__(self) -> int:
        return hash((self.kind, self.index))

    def __repr__(self) -> str:
        return "Place(cpu)" if self.kind == "cpu" else f"Place({self.kind}:{self.index})"

    def backend(self) -> Backend:
        """What compiles programs for this device: XLA, or an installed backend of its kind."""
        return backends.serving(self.kind)

    def check(self) -> None:
        """Raise InvalidArgument if there is no such device."""
        count = self.backend().device_count(self.kind)
        if self.index >= count:
            raise InvalidArgument(
                f"there is no device {self!r}: {count} {self.kind} device(s) found"
            )

    def put(self, array: Array) -> Array:
        """A host array, or a buffer that lies elsewhere, as a buffer on this device."""
        return self.backend().put(array, self)

    def device(self) -> Any:
        """The JAX device of this place, which XLA must serve."""
        backend = self.backend()
        if backend.name != "xla":
            raise InvalidArgument(
                f"{self!r} is served by the backend {backend.name!r}, and this needs a device of "
                "JAX: a CPU, a GPU or the chip of a PJRT plug-in"
            )
        self.check()
        return jax_door.jax().local_devices(backend=self.kind)[self.index]


class CPUPlace(Place):
    """The host's memory."""

    def __init__(self) -> None:
        super().__init__(0)


class CUDAPlace(Place):
    """An NVIDIA GPU."""

    kind = "gpu"


class CUDAPinnedPlace(CPUPlace):
    """Host memory for fast copies; on this engine the same as CPUPlace."""


class CustomPlace(Place):
    """A chip, by the name of the backend that serves it or of its PJRT plug-in's platform."""

    def __init__(self, kind: str, index: int = 0):
        super().__init__(index)
        self.kind = kind


_default: Place | None = None


def default_place() -> Place:
    """The current device: the accelerator if there is one, else the CPU."""
    global _default
    if _default is None:
        platform = "cpu"
        if _accelerator_possible():
            platform = jax_door.jax().default_backend()
        _default = CPUPlace() if platform == "cpu" else as_place(platform)
    return _default


def _accelerator_possible() -> bool:
    """Whether asking JAX could find more than a CPU; avoids importing it just to learn that."""
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        return False
    if jax_door.is_loaded() or "jax" in sys.modules:
        return True
    if importlib.util.find_spec("jax_plugins") is not None:
        return True
    return bool(plugins.entry_points("jax_plugins"))


def set_default_place(place: Place) -> None:
    global _default
    place.check()
    _default = place


def as_place(spec: object) -> Place:
    """A Place from a Place or a name such as 'cpu', 'gpu', 'gpu:1', 'my_chip:0'."""
    if isinstance(spec, Place):
        return spec
    if isinstance(spec, str):
        name, _, number = spec.lower().partition(":")
        if number and not number.isdigit():
            raise InvalidArgument(f"the device number must be an integer. Received: {spec!r}")
        index = int(number or 0)
        if name == "cpu":
            return CPUPlace()
        if name in ("gpu", "cuda"):
            return CUDAPlace(index)
        return CustomPlace(name, index)
    raise InvalidArgument(
        f"a device is a Place or a name such as 'cpu' or 'gpu:0'. Received: {spec!r}"
    )


# Host buffers that were asked for by name, by id; the others wait there for their first use.
_kept_on_host: dict[int, weakref.ref[Any]] = {}


def keep_on_host(array: Array) -> None:
    """`array` is a tensor's contents that the user wants in the host's memory."""
    key = id(array)
    _kept_on_host[key] = weakref.ref(array, lambda _: _kept_on_host.pop(key, None))


def is_kept_on_host(array: Array) -> bool:
    return id(array) in _kept_on_host


def place_of(buf: Array) -> Place:
    """The place of a buffer. A pending result, and a host buffer that goes to the device when
    something computes with it, are on the current device."""
    if buf is None:
        return default_place()
    devices = getattr(buf, "devices", None)
    if devices is None:
        own = getattr(buf, "place", None)  # of a plug-in's buffer
        if isinstance(own, Place):
            return own
        return CPUPlace() if is_kept_on_host(buf) else default_place()
    device = next(iter(devices()))
    if device.platform == "cpu":
        return CPUPlace()
    return as_place(f"{device.platform}:{device.id}")
