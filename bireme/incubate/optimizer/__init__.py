"""`paddle.incubate.optimizer`: optimizers around optimizers, and quasi-Newton minimisers."""

from bireme.incubate.optimizer import functional
from bireme.incubate.optimizer.averaging import LookAhead, ModelAverage
from bireme.optimizer.lbfgs import LBFGS

__all__ = ["LBFGS", "LookAhead", "ModelAverage", "functional"]
