"""paddle.nn.init: give an existing tensor new contents, in place.

>>> paddle.nn.init.normal_(layer.weight, std=0.02)  # doctest: +SKIP
"""

from __future__ import annotations

import numpy as np

from bireme.core.errors import ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.nn.initializer import (
    Assign,
    Constant,
    Dirac,
    KaimingNormal,
    KaimingUniform,
    Normal,
    Orthogonal,
    TruncatedNormal,
    Uniform,
    XavierNormal,
    XavierUniform,
    calculate_gain,
)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Every element becomes `val`."""
    return Constant(val)(tensor)


def zeros_(tensor: Tensor) -> Tensor:
    """Every element becomes 0."""
    return Constant(0.0)(tensor)


def ones_(tensor: Tensor) -> Tensor:
    """Every element becomes 1."""
    return Constant(1.0)(tensor)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Uniform in [a, b)."""
    return Uniform(a, b)(tensor)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Normal with `mean` and `std`."""
    return Normal(mean, std)(tensor)


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> Tensor:
    """Normal with `mean` and `std`, restricted to [a, b]."""
    return TruncatedNormal(mean, std, a, b)(tensor)


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Uniform in ±gain * sqrt(3 / fan); `a` is the negative slope of a leaky_relu."""
    return KaimingUniform(negative_slope=a, nonlinearity=nonlinearity, mode=mode)(tensor)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Normal with std gain / sqrt(fan); `a` is the negative slope of a leaky_relu."""
    return KaimingNormal(negative_slope=a, nonlinearity=nonlinearity, mode=mode)(tensor)


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, fan_in: float | None = None, fan_out: float | None = None
) -> Tensor:
    """Uniform in ±gain * sqrt(6 / (fan_in + fan_out))."""
    return XavierUniform(fan_in, fan_out, gain)(tensor)


def xavier_normal_(
    tensor: Tensor, gain: float = 1.0, fan_in: float | None = None, fan_out: float | None = None
) -> Tensor:
    """Normal with std gain * sqrt(2 / (fan_in + fan_out))."""
    return XavierNormal(fan_in, fan_out, gain)(tensor)


def orthogonal_(tensor: Tensor, gain: float = 1) -> Tensor:
    """Rows (or columns, whichever are fewer) orthonormal, times `gain`."""
    return Orthogonal(gain)(tensor)


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution's weight that passes its input through, in each of `groups`."""
    return Dirac(groups)(tensor)


def eye_(tensor: Tensor) -> Tensor:
    """Ones on the diagonal of a matrix, zeros elsewhere."""
    if len(tensor.shape) != 2:
        raise ShapeMismatch(
            f"[eye_] needs a tensor of 2 dimensions. Received: shape {list(tensor.shape)}"
        )
    return Assign(np.eye(*tensor.shape))(tensor)


__all__ = [
    "calculate_gain",
    "constant_",
    "dirac_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]
