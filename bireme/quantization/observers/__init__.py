"""Observers: they watch tensors and leave them as they are."""

from __future__ import annotations

from typing import Any

from bireme.core.errors import ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.nn import Layer
from bireme.ops.creation import zeros_like
from bireme.ops.logic import equal
from bireme.ops.manipulation import reshape
from bireme.ops.math import maximum
from bireme.ops.math_unary import abs as absolute
from bireme.ops.nn_support import one_of
from bireme.ops.reduction import max as largest
from bireme.ops.search import where
from bireme.quantization.base import BaseObserver
from bireme.quantization.factory import ObserverFactory


class AbsmaxObserver(ObserverFactory):
    """Remembers the largest magnitude seen."""

    def __init__(self, quant_bits: int = 8) -> None:
        super().__init__(quant_bits=quant_bits)

    def _get_class(self) -> Any:
        return AbsmaxObserverLayer


class GroupWiseWeightObserver(ObserverFactory):
    """The largest magnitude in each group of a weight's inputs, for each output."""

    def __init__(self, quant_bits: int = 8, group_size: int = 128) -> None:
        super().__init__(quant_bits=quant_bits, group_size=group_size)

    def _get_class(self) -> Any:
        return GroupWiseWeightObserverLayer


class _MaxObserver(BaseObserver):
    """The scale is the largest magnitude; subclasses say over what."""

    def __init__(self, quant_bits: int) -> None:
        super().__init__()
        self._quant_bits = quant_bits
        self._max: Tensor | None = None
        self._scale: Tensor | None = None
        self._zero_point: Tensor | None = None

    def bit_length(self) -> int:
        return self._quant_bits

    def quant_axis(self) -> int:
        return -1

    def cal_thresholds(self) -> None:
        if self._scale is None:
            self._scale = self._max
        self._zero_point = None if self._scale is None else zeros_like(self._scale)

    def scales(self) -> Tensor | None:
        if self._scale is None:
            self.cal_thresholds()
        return self._scale

    def zero_points(self) -> Tensor | None:
        if self._zero_point is None:
            self.cal_thresholds()
        return self._zero_point


class AbsmaxObserverLayer(_MaxObserver):
    """See `AbsmaxObserver`."""

    def __init__(self, layer: Layer, quant_bits: int = 8) -> None:
        super().__init__(quant_bits)

    def forward(self, input: Tensor) -> Tensor:
        seen = largest(absolute(input.detach()))
        self._max = seen if self._max is None else maximum(seen, self._max.astype(seen.dtype))
        return input


class GroupWiseWeightObserverLayer(_MaxObserver):
    """See `GroupWiseWeightObserver`; scales are [groups, outputs]."""

    def __init__(self, layer: Layer, quant_bits: int = 8, group_size: int = 128) -> None:
        super().__init__(quant_bits)
        one_of("GroupWiseWeightObserver", "group_size", group_size, (64, 128))
        self.group_size = group_size

    def forward(self, inputs: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        if inputs.ndim != 2 or inputs.shape[0] % self.group_size != 0:
            raise ShapeMismatch(
                "[GroupWiseWeightObserver] the weight must be [inputs, outputs] with the inputs a "
                f"multiple of {self.group_size}. Received: {inputs.shape}"
            )
        magnitude = absolute(inputs.detach()).astype("float32")
        groups = reshape(magnitude, [-1, self.group_size, inputs.shape[1]])
        peak = largest(groups, axis=1)
        self._max = where(equal(peak, zeros_like(peak)), peak + 1e-8, peak)
        return inputs


__all__ = ["AbsmaxObserver", "GroupWiseWeightObserver"]
