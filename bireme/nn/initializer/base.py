"""What every initializer shares, and the default that `set_global_initializer` sets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bireme.core import random
from bireme.core.aval import aval
from bireme.core.dtype import DType
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.core.value import value_of
from bireme.ops import random_bits

Shape = tuple[int, ...]


class Initializer:
    """Makes a parameter's first contents.

    `make` runs on the host in NumPy, so that building a model compiles nothing.
    """

    def make(self, shape: Shape, dtype: DType) -> np.ndarray:
        """An array of `shape` and `dtype`."""
        raise NotImplementedError(f"{type(self).__name__} does not define make(shape, dtype)")

    def __call__(self, param: Tensor, block: object = None) -> Tensor:
        """Initialise an existing tensor again, in place."""
        shape = tuple(param.shape)
        array = np.ascontiguousarray(self.make(shape, param.dtype)).reshape(shape)
        param._put(value_of(aval(shape, param.dtype), array))
        return param

    def __repr__(self) -> str:
        settings = ", ".join(f"{k.lstrip('_')}={v!r}" for k, v in vars(self).items())
        return f"{type(self).__name__}({settings})"


def uniform(shape: Shape, dtype: DType, low: float, high: float) -> np.ndarray:
    """Uniform in [low, high), from the framework's generator."""
    unit = random_bits.uniform(np, *random.next_key(), shape, _compute_type(dtype))
    return _moved(unit, high - low, low).astype(dtype.numpy, copy=False)


def normal(shape: Shape, dtype: DType, mean: complex, std: float) -> np.ndarray:
    """Normal, from the framework's generator. A complex type gets both parts."""
    if dtype.is_complex:
        computed = _compute_type(dtype)
        real = random_bits.normal(np, *random.next_key(), shape, computed)
        imaginary = random_bits.normal(np, *random.next_key(), shape, computed)
        return ((real + 1j * imaginary) * (std / math.sqrt(2)) + mean).astype(dtype.numpy)
    unit = random_bits.normal(np, *random.next_key(), shape, _compute_type(dtype))
    return _moved(unit, std, mean).astype(dtype.numpy, copy=False)


def _moved(unit: np.ndarray, scale: Any, shift: Any) -> np.ndarray:
    """unit * scale + shift, in the memory of `unit`: a large table is there once."""
    unit *= unit.dtype.type(scale)
    unit += unit.dtype.type(shift)
    return unit


def _compute_type(dtype: DType) -> Any:
    return np.float64 if dtype.numpy in (np.float64, np.complex128) else np.float32


def fans(shape: Shape) -> tuple[int, int]:
    """(fan in, fan out) of a weight [in, out] or of a convolution [out, in, *window]."""
    if not shape:
        return 1, 1
    if len(shape) == 1:
        return shape[0], shape[0]
    if len(shape) == 2:
        return shape[0], shape[1]
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps a signal's variance through `nonlinearity`."""
    if param is not None and not isinstance(param, bool | int | float):
        raise TypeMismatch(f"[calculate_gain] param must be a number. Received: {param!r}")
    slope = 0.01 if param is None else float(param)
    if nonlinearity in _LINEAR:
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    known = ", ".join(sorted({*_LINEAR, "tanh", "relu", "leaky_relu", "selu"}))
    raise InvalidArgument(
        f"[calculate_gain] unknown nonlinearity. Received: {nonlinearity!r}. Use one of: {known}"
    )


_LINEAR = {"sigmoid", "linear"} | {
    f"conv{end}" for n in (1, 2, 3) for end in (f"{n}d", f"{n}d_transpose", f"_transpose{n}d")
}

_global: dict[bool, Initializer | None] = {False: None, True: None}


def set_global_initializer(
    weight_init: Initializer | None, bias_init: Initializer | None = None
) -> None:
    """Use these for every new parameter that names none; None goes back to the layers' own."""
    for what, value in (("weight_init", weight_init), ("bias_init", bias_init)):
        if value is not None and not isinstance(value, Initializer):
            raise TypeMismatch(
                f"[set_global_initializer] {what} must be an initializer or None. Received: "
                f"{type(value).__name__}"
            )
    _global[False], _global[True] = weight_init, bias_init


def global_initializer(is_bias: bool) -> Initializer | None:
    return _global[is_bias]
