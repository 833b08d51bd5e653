"""paddle.quantization: networks on small integers, by training (QAT) or by watching (PTQ).

config = QuantConfig(activation=FakeQuanterWithAbsMaxObserver(), weight=...)
qat = QAT(config)
model = qat.quantize(model)     # train it as usual
model = qat.convert(model)      # weights become integers
"""

from __future__ import annotations

from bireme.quantization import observers, quanters
from bireme.quantization.base import BaseObserver, BaseQuanter
from bireme.quantization.config import QuantConfig, SingleLayerConfig
from bireme.quantization.factory import quanter
from bireme.quantization.quantize import PTQ, QAT

__all__ = [
    "PTQ",
    "QAT",
    "BaseObserver",
    "BaseQuanter",
    "QuantConfig",
    "SingleLayerConfig",
    "observers",
    "quanter",
    "quanters",
]
