"""What quanters and observers must answer."""

from __future__ import annotations

import abc

import numpy as np

from bireme.core.tensor import Tensor
from bireme.nn import Layer


class BaseQuanter(Layer, metaclass=abc.ABCMeta):
    """A layer that sees a tensor pass and knows with which scale to quantise it."""

    def __init__(self) -> None:
        super().__init__()

    @abc.abstractmethod
    def forward(self, input: Tensor) -> Tensor:
        """The tensor, as it is or as its integers would represent it."""

    @abc.abstractmethod
    def scales(self) -> Tensor | np.ndarray | float | None:
        """What the largest integer stands for: one number, or one per channel."""

    @abc.abstractmethod
    def zero_points(self) -> Tensor | np.ndarray | float | None:
        """The integer that stands for zero; None is 0."""

    @abc.abstractmethod
    def quant_axis(self) -> int:
        """The axis that the scales belong to; -1 for the whole tensor."""

    @abc.abstractmethod
    def bit_length(self) -> int:
        """How many bits the integers have."""


class BaseObserver(BaseQuanter, metaclass=abc.ABCMeta):
    """A quanter that only watches, and computes its scales afterwards."""

    @abc.abstractmethod
    def cal_thresholds(self) -> None:
        """Compute the scales from what was seen."""
