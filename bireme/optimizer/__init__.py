"""paddle.optimizer: optimizers and learning-rate schedules."""

from __future__ import annotations

from bireme.api.hints import explain_constructors as _explain_constructors
from bireme.optimizer import lr
from bireme.optimizer.adam import Adam, Adamax, AdamW, Lamb, NAdam, RAdam
from bireme.optimizer.adaptive import Adadelta, Adagrad, RMSProp
from bireme.optimizer.lbfgs import LBFGS
from bireme.optimizer.optimizer import Optimizer
from bireme.optimizer.sgd import ASGD, SGD, Momentum, Rprop

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lamb",
    "Momentum",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSProp",
    "Rprop",
    "lr",
]

_explain_constructors(globals()[name] for name in __all__)
