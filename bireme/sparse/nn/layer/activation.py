"""Activation layers for sparse tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bireme.core.tensor import Tensor
from bireme.nn.layer.layer import Layer
from bireme.sparse.nn import functional as F

if TYPE_CHECKING:
    from bireme.ops.sparse_tensor import SparseTensor


class _Activation(Layer):
    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self._name = name

    def extra_repr(self) -> str:
        return f"name={self._name}" if self._name else ""


class ReLU(_Activation):
    """max(x, 0) of each stored value."""

    def forward(self, x: Tensor) -> SparseTensor:
        return F.relu(x)


class ReLU6(_Activation):
    """Each stored value kept in [0, 6]."""

    def forward(self, x: Tensor) -> SparseTensor:
        return F.relu6(x)


class LeakyReLU(_Activation):
    """Each stored value, times a slope where it is negative."""

    def __init__(self, negative_slope: float = 0.01, name: str | None = None) -> None:
        super().__init__(name)
        self._negative_slope = negative_slope

    def forward(self, x: Tensor) -> SparseTensor:
        return F.leaky_relu(x, self._negative_slope)


class Softmax(_Activation):
    """The softmax of the stored values along an axis."""

    def __init__(self, axis: int = -1, name: str | None = None) -> None:
        super().__init__(name)
        self._axis = axis

    def forward(self, x: Tensor) -> SparseTensor:
        return F.softmax(x, self._axis)
