"""Places in a network where an activation shall be quantised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bireme.core.tensor import Tensor
from bireme.nn.layer.layer import Layer

if TYPE_CHECKING:
    from bireme.nn.quant.protocols import Factory, LayerConfig


class Stub(Layer):
    """Passes its input on; QAT and PTQ put a quanter in its place.

    `observer` is the quanter to use here, instead of the configuration's.
    """

    def __init__(self, observer: Factory | None = None) -> None:
        super().__init__()
        self._observer = observer

    def forward(self, input: Tensor) -> Tensor:
        return input


class QuanterStub(Layer):
    """What a `Stub` becomes."""

    def __init__(self, layer: Stub, q_config: LayerConfig) -> None:
        super().__init__()
        factory = q_config.activation if layer._observer is None else layer._observer
        self._observer = None if factory is None else factory._instance(layer)

    def forward(self, input: Tensor) -> Tensor:
        return input if self._observer is None else self._observer(input)
