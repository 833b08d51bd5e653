"""Complex numbers and their parts, which share memory.

A complex number lies in memory as its real part beside its imaginary part. So `real`, `imag`,
`as_real` and `as_complex` are views: writing to one changes the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.api.public import public
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.core.views import Step, as_view
from bireme.ops.math import complex as join
from bireme.ops.math_unary import _real_dtype, from_parts, real_of


def _check_complex(x: Any) -> None:
    if not x.dtype.is_complex:
        raise TypeMismatch("takes a complex tensor; make one with paddle.complex or as_complex")


def _real_vjp(xp: Any, grad: Any) -> tuple[Any]:
    return (from_parts(xp, grad, xp.zeros_like(grad)),)


@op(name="real", vjp=_real_vjp, infer=real_of, check=_check_complex)
def _real(xp, x):
    """The real part of a complex tensor."""
    return xp.real(x)


def _imag_vjp(xp: Any, grad: Any) -> tuple[Any]:
    return (from_parts(xp, xp.zeros_like(grad), grad),)


@op(name="imag", vjp=_imag_vjp, infer=real_of, check=_check_complex)
def _imag(xp, x):
    """The imaginary part of a complex tensor."""
    return xp.imag(x)


_REAL = Step(_real, lambda base, view: join(view, _imag(base)), lambda array: array.real)
_IMAG = Step(_imag, lambda base, view: join(_real(base), view), lambda array: array.imag)


@public
def real(x: Tensor, name: str | None = None) -> Tensor:
    """The real part of a complex tensor, sharing its memory."""
    return as_view(_real(x), x, _REAL)


@public
def imag(x: Tensor, name: str | None = None) -> Tensor:
    """The imaginary part of a complex tensor, sharing its memory."""
    return as_view(_imag(x), x, _IMAG)


def _check_pairs(x: Any) -> None:
    if x.ndim == 0 or x.shape[-1] != 2:
        raise InvalidArgument("the last dimension must be 2: real and imaginary part")
    if x.dtype not in (dt.float32, dt.float64):
        raise TypeMismatch("takes float32 or float64; cast it first")


def _as_complex_type(x: Aval) -> Aval:
    return aval(x.shape[:-1], dt.complex128 if x.dtype is dt.float64 else dt.complex64)


def _pairs(xp: Any, x: Any) -> Any:
    return xp.stack([xp.real(x), xp.imag(x)], axis=-1)


def _joined(xp: Any, x: Any) -> Any:
    return from_parts(xp, x[..., 0], x[..., 1])


@op(
    name="as_complex",
    vjp=lambda xp, grad: (_pairs(xp, grad),),
    infer=_as_complex_type,
    check=_check_pairs,
)
def _as_complex(xp, x):
    """Pairs in the last dimension as complex numbers."""
    return _joined(xp, x)


def _as_real_type(x: Aval) -> Aval:
    return aval((*x.shape, 2), _real_dtype(x.dtype))


@op(
    name="as_real",
    vjp=lambda xp, grad: (_joined(xp, grad),),
    infer=_as_real_type,
    check=_check_complex,
)
def _as_real(xp, x):
    """Complex numbers as pairs in a new last dimension."""
    return _pairs(xp, x)


def _lay_out(dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """An array that is asked for its strides only: there is no memory behind it."""
    return np.lib.stride_tricks.as_strided(np.empty((), dtype), shape, strides)


def _lay_out_complex(array: np.ndarray) -> np.ndarray:
    wide = np.complex128 if array.dtype == np.float64 else np.complex64
    return _lay_out(wide, array.shape[:-1], array.strides[:-1])


def _lay_out_pairs(array: np.ndarray) -> np.ndarray:
    part = np.real(array).dtype
    return _lay_out(part, (*array.shape, 2), (*array.strides, part.itemsize))


_AS_COMPLEX = Step(_as_complex, lambda _, view: _as_real(view), _lay_out_complex, in_order=True)
_AS_REAL = Step(_as_real, lambda _, view: _as_complex(view), _lay_out_pairs, in_order=True)


@public
def as_complex(x: Tensor, name: str | None = None) -> Tensor:
    """Pairs in the last dimension as complex numbers, sharing memory."""
    return as_view(_as_complex(x), x, _AS_COMPLEX)


@public
def as_real(x: Tensor, name: str | None = None) -> Tensor:
    """Complex numbers as pairs in a new last dimension, sharing memory."""
    return as_view(_as_real(x), x, _AS_REAL)


@public
def view_as_complex(input: Tensor) -> Tensor:
    """Pairs in the last dimension as complex numbers, sharing memory."""
    return as_complex(input)


@public
def view_as_real(input: Tensor) -> Tensor:
    """Complex numbers as pairs in a new last dimension, sharing memory."""
    return as_real(input)
