"""paddle.nn.initializer: how parameters start."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from bireme.api.types import TensorLike
from bireme.core import random
from bireme.core.dtype import DType
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.nn.initializer.base import (
    Initializer,
    Shape,
    calculate_gain,
    fans,
    global_initializer,
    normal,
    set_global_initializer,
    uniform,
)
from bireme.ops import random_bits


class Constant(Initializer):
    """Every element is `value`."""

    def __init__(self, value: float = 0.0) -> None:
        self.value = value

    def make(self, shape: Shape, dtype: DType) -> np.ndarray:
        if self.value == 0:
            return np.zeros(shape, dtype.numpy)
        return np.full(shape, self.value, dtype.numpy)


class Uniform(Initializer):
    """Uniform in [low, high)."""

    def __init__(self, low: float = -1.0, high: float = 1.0, name: str | None = None) -> None:
        if not low <= high:
            raise InvalidArgument(
                f"[Uniform] low must not be above high. Received: low={low}, high={high}"
            )
        self.low, self.high = low, high

    def make(self, shape: Shape, dtype: DType) -> np.ndarray:
        return uniform(shape, dtype, self.low, self.high)


class Normal(Initializer):
    """Normal with `mean` and `std`."""

    def __init__(self, mean: complex = 0.0, std: float = 1.0, name: str | None = None) -> None:
        self.mean, self.std = mean, std

    def make(self, shape: Shape, dtype: DType) -> np.ndarray:
        return normal(shape, dtype, self.mean, self.std)


class TruncatedNormal(Initializer):
    """Normal with `mean` and `std`, restricted to [a, b]."""

    def __init__(
        self,
        mean: float = 0.0,
        std: float = 1.0,
        a: float = -2.0,
        b: float = 2.0,
        name: str | None = None,
    ) -> None:
        self.mean, self.std, self.a, self.b = mean, std, a, b

    def make(self, shape: Shape, dtype: DType) -> np.ndarray:
        from scipy.special import ndtr, ndtri

        low, high = ndtr((self.a - self.mean) / self.std), ndtr((self.b - self.mean) / self.std)
        unit = random_bits.uniform(np, *random.next_key(), shape, np.float64)
        drawn = ndtri(low + (high - low) * unit) * self.std + self.mean
        return np.clip(drawn, self.a, self.b).astype(dtype.numpy)


class _Xavier(Initializer):
    def __init__(
        self,
        fan_in: float | None = None,
        fan_out: float | None = None,
        gain: float = 1.0,
        name: str | None = None,
    ) -> None:
        self.fan_in, self.fan_out, self.gain = fan_in, fan_out, gain

    def _std(self, shape: Shape) -> float:
        own_in, own_out = fans(shape)
        fan_in = own_in if self.fan_in is None else self.fan_in
        fan_out = own_out if self.fan_out is None else self.fan_out
        return self.gain * math.sqrt(2.0 / max(fan_in + fan_out, 1e-30))


class XavierUniform(_Xavier):
    """Uniform in ±gain * sqrt(6 / (fan_in + fan_out))."""

    def make(self, shape: Shape, dtype: DType) -> np.ndarray:
        limit = math.sqrt(3.0) * self._std(shape)
        return uniform(shape, dtype, -limit, limit)


class XavierNormal(_Xavier):
    """Normal with std gain * sqrt(2 / (fan_in + fan_out))."""

    def make(self, shape: Shape, dtype: DType) -> np.ndarray:
        return normal(shape, dtype, 0.0, self._std(shape))


class _Kaiming(Initializer):
    def __init__(
        self,
        fan_in: float | None = None,
        negative_slope: float = 0.0,
        nonlinearity: str = "relu",
        mode: str = "fan_in",
    ) -> None:
        if mode not in ("fan_in", "fan_out"):
            raise InvalidArgument(
                f"[{type(self).__name__}] mode must be 'fan_in' or 'fan_out'. Received: {mode!r}"
            )
        self.fan_in, self.negative_slope = fan_in, negative_slope
        self.nonlinearity, self.mode = nonlinearity, mode

    def _std(self, shape: Shape) -> float:
        own_in, own_out = fans(shape)
        fan = own_out if self.mode == "fan_out" else own_in
        if self.mode == "fan_in" and self.fan_in is not None:
            fan = self.fan_in
        return calculate_gain(self.nonlinearity, self.negative_slope) / math.sqrt(max(fan, 1e-30))


class KaimingUniform(_Kaiming):
    """Uniform in ±gain * sqrt(3 / fan)."""

    def make(self, shape: Shape, dtype: DType) -> np.ndarray:
        limit = math.sqrt(3.0) * self._std(shape)
        return uniform(shape, dtype, -limit, limit)


class KaimingNormal(_Kaiming):
    """Normal with std gain / sqrt(fan)."""

    def make(self, shape: Shape, dtype: DType) -> np.ndarray:
        return normal(shape, dtype, 0.0, self._std(shape))


class Assign(Initializer):
    """A copy of given values: an array, a list or a tensor."""

    def __init__(self, value: TensorLike, name: str | None = None) -> None:
        self.value = value

    def make(self, shape: Shape, dtype: DType) -> np.ndarray:
        value = self.value.numpy() if isinstance(self.value, Tensor) else np.array(self.value)
        if value.size != math.prod(shape):
            raise ShapeMismatch(
                f"[Assign] the value must have the parameter's {math.prod(shape)} elements. "
                f"Received: shape {list(value.shape)} for a parameter of shape {list(shape)}"
            )
        return value.astype(dtype.numpy).reshape(shape)


class Orthogonal(Initializer):
    """Rows (or columns, whichever are fewer) orthonormal, times `gain`."""

    def __init__(self, gain: float = 1.0, name: str | None = None) -> None:
        self.gain = gain

    def make(self, shape: Shape, dtype: DType) -> np.ndarray:
        if len(shape) < 2:
            raise ShapeMismatch(
                f"[Orthogonal] needs a parameter of 2 or more dimensions. Received: {list(shape)}"
            )
        rows, cols = shape[0], math.prod(shape[1:])
        tall = (max(rows, cols), min(rows, cols))
        q, r = np.linalg.qr(random_bits.normal(np, *random.next_key(), tall, np.float64))
        q = q * np.sign(np.diag(r))
        q = q.T if rows < cols else q
        return (self.gain * q).reshape(shape).astype(dtype.numpy)


class Dirac(Initializer):
    """A convolution that passes its input through unchanged, in each of `groups`."""

    def __init__(self, groups: int = 1, name: str | None = None) -> None:
        if not (isinstance(groups, int) and groups > 0):
            raise InvalidArgument(f"[Dirac] groups must be positive. Received: {groups!r}")
        self.groups = groups

    def make(self, shape: Shape, dtype: DType) -> np.ndarray:
        if len(shape) not in (3, 4, 5):
            raise ShapeMismatch(
                f"[Dirac] needs a convolution's weight of 3, 4 or 5 dimensions. Received: "
                f"{list(shape)}"
            )
        if shape[0] % self.groups:
            raise ShapeMismatch(
                f"[Dirac] {shape[0]} output channels do not divide into {self.groups} groups"
            )
        weight = np.zeros(shape, dtype.numpy)
        centre = tuple(d // 2 for d in shape[2:])
        per_group = shape[0] // self.groups
        for g in range(self.groups):
            for i in range(min(per_group, shape[1])):
                weight[(g * per_group + i, i, *centre)] = 1
        return weight


class Bilinear(Initializer):
    """The weight of a transposed convolution that interpolates bilinearly."""

    def make(self, shape: Shape, dtype: DType) -> np.ndarray:
        if len(shape) != 4 or shape[2] != shape[3]:
            raise ShapeMismatch(
                f"[Bilinear] needs a weight of 4 dimensions with a square window. Received: "
                f"{list(shape)}"
            )
        size = shape[3]
        factor = math.ceil(size / 2.0)
        centre = (2 * factor - 1 - factor % 2) / (2.0 * factor)
        at = np.arange(size * size)
        # The row is a fraction that grows along the columns: Paddle's formula, kept so that
        # models start from the same weights.
        x, y = at % size, at / size
        weight = (1 - np.abs(x / factor - centre)) * (1 - np.abs(y / factor - centre))
        return np.broadcast_to(weight.reshape(size, size), shape).astype(dtype.numpy)


_OLDER = (  # the names of Paddle 1, in older.py
    "ConstantInitializer", "MSRAInitializer", "NormalInitializer", "NumpyArrayInitializer",
    "TruncatedNormalInitializer", "UniformInitializer", "XavierInitializer",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _OLDER:
        return getattr(importlib.import_module("bireme.nn.initializer.older"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Assign",
    "Bilinear",
    "Constant",
    "Dirac",
    "Initializer",
    "KaimingNormal",
    "KaimingUniform",
    "Normal",
    "Orthogonal",
    "TruncatedNormal",
    "Uniform",
    "XavierNormal",
    "XavierUniform",
    "calculate_gain",
    "global_initializer",
    "set_global_initializer",
]
