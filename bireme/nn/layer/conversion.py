"""Moving a layer to another dtype or device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from bireme.api.types import DeviceLike, DTypeLike, PlaceLike
from bireme.autograd.modes import no_grad
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.place import CUDAPlace, CustomPlace, Place, as_place
from bireme.core.tensor import Tensor
from bireme.core.value import value_of

if TYPE_CHECKING:
    from bireme.nn.layer.registry import Registry


_Classes = type | Sequence[type]  # of layers


class Conversion:
    """The part of Layer that changes dtype and device, in place."""

    _parameters: Registry
    _buffers: Registry
    sublayers: Callable[..., Any]
    apply: Callable[..., Any]

    def to(
        self,
        device: PlaceLike | None = None,
        dtype: DTypeLike | None = None,
        blocking: bool | None = None,
        non_blocking: bool | None = None,
    ) -> Self:
        """Move every parameter and buffer to a device and/or a dtype.

        Copies are asynchronous by nature of the engine; `blocking` and `non_blocking` only state
        a wish and change no result.
        """
        for name, flag in (("blocking", blocking), ("non_blocking", non_blocking)):
            if flag is not None and not isinstance(flag, bool):
                raise TypeMismatch(f"[to] {name} must be a bool or None. Received: {flag!r}")
        place = None if device is None else as_place(device)
        want = None if dtype is None else dt.as_dtype(dtype)
        if place is not None or want is not None:
            for layer in self.sublayers(include_self=True):
                layer._convert_own(want, place, floating_only=False)
        return self

    def astype(self, dtype: DTypeLike | None = None) -> Self:
        """Cast every parameter and buffer to `dtype`."""
        if dtype is None:
            raise InvalidArgument("[astype] needs a dtype, for example 'float32'")
        return self.to(dtype=dtype)

    def type(self, dst_type: DTypeLike) -> Self:
        return self.astype(dst_type)

    def _convert_own(
        self, dtype: dt.DType | None, place: Place | None, floating_only: bool
    ) -> None:
        for registry in (self._parameters, self._buffers):
            for tensor in registry.values():
                if tensor is None or (floating_only and not tensor.dtype.is_floating):
                    continue
                convert(tensor, dtype, place)
                if tensor._grad is not None:
                    convert(tensor._grad, dtype, place)
        if dtype is not None:
            self.__dict__["_dtype"] = dtype

    def _cast_floats(self, dtype: dt.DType, excluded_layers: _Classes | None) -> Self:
        if excluded_layers is None:
            excluded_layers = ()
        elif isinstance(excluded_layers, type_):
            excluded_layers = (excluded_layers,)
        elif not isinstance(excluded_layers, list | tuple):
            raise TypeMismatch(
                "excluded_layers must be a Layer class or a list of them. Received: "
                f"{excluded_layers.__class__.__name__}"
            )
        for layer in self.sublayers(include_self=True):
            if layer.__class__ not in excluded_layers:
                layer._convert_own(dtype, None, floating_only=True)
        return self

    def float(self, excluded_layers: _Classes | None = None) -> Self:
        """Cast floating parameters and buffers to float32."""
        return self._cast_floats(dt.float32, excluded_layers)

    def double(self) -> Self:
        """Cast floating parameters and buffers to float64."""
        return self._cast_floats(dt.float64, None)

    def float16(self, excluded_layers: _Classes | None = None) -> Self:
        """Cast floating parameters and buffers to float16; BatchNorm stays unless named."""
        return self._cast_floats(dt.float16, _or_batch_norm(excluded_layers))

    def half(self) -> Self:
        return self.float16()

    def bfloat16(self, excluded_layers: _Classes | None = None) -> Self:
        """Cast floating parameters and buffers to bfloat16; BatchNorm stays unless named."""
        return self._cast_floats(dt.bfloat16, _or_batch_norm(excluded_layers))

    def cpu(self) -> Self:
        return self.to(device="cpu")

    def cuda(self, device: DeviceLike | None = None) -> Self:
        """Move to a GPU, the first one by default."""
        if device is None or isinstance(device, int):
            device = CUDAPlace(device or 0)
        return self.to(device=device)

    def xpu(self, device: DeviceLike | None = None) -> Self:
        """Move to a chip whose PJRT plug-in is `xpu`, the first one by default."""
        if device is None or isinstance(device, int):
            device = CustomPlace("xpu", device or 0)
        return self.to(device=device)


type_ = type  # `type` is a method name inside the class, as in Paddle


def _or_batch_norm(excluded_layers: _Classes | None) -> _Classes:
    if excluded_layers is not None:
        return excluded_layers
    from bireme.nn.layer.norm import BatchNorm

    return (BatchNorm,)


@no_grad()
def convert(tensor: Tensor, dtype: dt.DType | None, place: Place | None) -> None:
    """Give `tensor` another dtype or device; the object and its gradient history stay."""
    if dtype is not None and dtype is not tensor.dtype:
        # Recorded, not run: the cast becomes part of the first step.
        tensor._value = tensor.astype(dtype)._value
        tensor._view = tensor._views = None
    if place is not None and tensor.place != place:
        tensor._value = value_of(tensor._value.aval, place.put(tensor._array()))
        tensor._view = tensor._views = None
