"""What layers that are quantised ask of `paddle.quantization`, which is built on them."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from bireme.core.tensor import Tensor
from bireme.nn.layer.layer import Layer


class Quanter(Protocol):
    """Knows with which scale to quantise a tensor."""

    def scales(self) -> Tensor | np.ndarray | float | None: ...

    def zero_points(self) -> Tensor | np.ndarray | float | None: ...

    def quant_axis(self) -> int: ...

    def bit_length(self) -> int: ...


class Factory(Protocol):
    """Makes the quanter of one layer."""

    def _instance(self, layer: Layer) -> Layer: ...


class LayerConfig(Protocol):
    """The factories for a layer's input and weight; None leaves it as it is."""

    @property
    def activation(self) -> Factory | None: ...

    @property
    def weight(self) -> Factory | None: ...
