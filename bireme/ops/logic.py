"""Comparison, logical and bitwise ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core import jax_door
from bireme.core.aval import Aval, aval
from bireme.core.errors import TypeMismatch, not_a_tensor, second_name
from bireme.core.op import op
from bireme.core.tensor import Tensor, constant

# --- comparison -------------------------------------------------------------------------------


def _comparison(name: str, doc: str, function: str) -> Any:
    def lowering(xp: Any, x: Any, y: Any) -> Any:
        return getattr(xp, function)(x, y)

    lowering.__doc__ = doc
    lowering.__module__ = __name__
    return op(lowering, name=name, promote="compare", infer="bool", differentiable=False)


equal = _comparison("equal", "Where x == y.", "equal")
not_equal = _comparison("not_equal", "Where x != y.", "not_equal")
less_than = _comparison("less_than", "Where x < y.", "less")
less_equal = _comparison("less_equal", "Where x <= y.", "less_equal")
greater_than = _comparison("greater_than", "Where x > y.", "greater")
greater_equal = _comparison("greater_equal", "Where x >= y.", "greater_equal")

eq, ne, lt, le, gt, ge = equal, not_equal, less_than, less_equal, greater_than, greater_equal
less, greater = less_than, greater_than


@op(name="isclose", inputs=("x", "y", "rtol", "atol"), promote="compare", differentiable=False,
    infer="bool")  # fmt: skip
def _isclose(xp, x, y, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Where |x - y| <= atol + rtol * |y|."""
    near = (x == y) | (xp.abs(x - y) <= atol + rtol * xp.abs(y)) & xp.isfinite(y)
    return near | (xp.isnan(x) & xp.isnan(y)) if equal_nan else near


def isclose(
    x: Tensor, y: Any = None, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False,
    name: str | None = None, *, other: Any = None,
) -> Tensor:  # fmt: skip
    """Where |x - y| <= atol + rtol * |y|."""
    if other is not None:
        y = second_name("isclose", "y", y, "other", other)
    if y is None:
        raise not_a_tensor("isclose", "y", y)
    return _isclose(x, y, float(rtol), float(atol), equal_nan)


def allclose(
    x: Tensor, y: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Whether |x - y| <= atol + rtol * |y| everywhere."""
    from bireme.ops.reduction import _all

    return _all(isclose(x, y, rtol, atol, equal_nan), None, False)


def equal_all(x: Tensor, y: Tensor, name: str | None = None) -> Tensor:
    """Whether x and y have the same shape and the same elements."""
    from bireme.ops.reduction import _all

    if x._value.aval.shape != y._value.aval.shape:
        return constant(np.array(False))
    return _all(equal(x, y), None, False)


# --- logic ------------------------------------------------------------------------------------


def _truth(name: str, doc: str, function: str) -> Any:
    def lowering(xp: Any, x: Any, y: Any) -> Any:
        return getattr(xp, function)(x.astype(bool), y.astype(bool))

    lowering.__doc__ = doc
    lowering.__module__ = __name__
    return op(lowering, name=name, promote="compare", infer="bool", differentiable=False)


logical_and = _truth("logical_and", "Where both are true.", "logical_and")
logical_or = _truth("logical_or", "Where either is true.", "logical_or")
logical_xor = _truth("logical_xor", "Where just one is true.", "logical_xor")


@op(infer="bool", differentiable=False)
def logical_not(xp, x):
    """Where x is false."""
    return ~x.astype(bool)


# --- bits -------------------------------------------------------------------------------------


def _check_bits(x: Any, *others: Any, **_: Any) -> None:
    for t in (x, *others):
        if not (t.dtype.is_integer or t.dtype is dt.bool_):
            raise TypeMismatch("takes integers or bool; cast with .astype('int64')")


def _bitwise(name: str, doc: str, body: Callable[..., Any]) -> Any:
    def lowering(xp: Any, x: Any, y: Any) -> Any:
        return body(x, y)

    lowering.__doc__ = doc
    lowering.__module__ = __name__
    return op(
        lowering, name=name, promote="binary", infer="elementwise", check=_check_bits,
        differentiable=False,
    )  # fmt: skip


bitwise_and = _bitwise("bitwise_and", "x & y, bit by bit.", lambda x, y: x & y)
bitwise_or = _bitwise("bitwise_or", "x | y, bit by bit.", lambda x, y: x | y)
bitwise_xor = _bitwise("bitwise_xor", "x ^ y, bit by bit.", lambda x, y: x ^ y)


@op(infer="elementwise", check=_check_bits, differentiable=False)
def bitwise_not(xp, x):
    """Every bit of x flipped."""
    return ~x


bitwise_invert = bitwise_not


def _shift(xp: Any, x: Any, y: Any, left: bool, is_arithmetic: bool) -> Any:
    """Shifts by the width or more give 0 (or the sign): hardware and C leave that open."""
    width = x.dtype.itemsize * 8
    amount = xp.clip(y, 0, width - 1).astype(x.dtype)
    over = (y < 0) | (y >= width)
    if left:
        return xp.where(over, xp.zeros_like(x), x << amount)
    if is_arithmetic or x.dtype.kind == "u":
        return x >> xp.where(over, width - 1, amount).astype(x.dtype)
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    moved = (x.astype(unsigned) >> amount.astype(unsigned)).astype(x.dtype)
    return xp.where(over, xp.zeros_like(x), moved)


@op(name="bitwise_left_shift", promote="binary", infer="elementwise", check=_check_bits,
    differentiable=False)  # fmt: skip
def bitwise_left_shift(xp, x, y, is_arithmetic=True):
    """x shifted left by y bits."""
    return _shift(xp, x, y, True, is_arithmetic)


@op(name="bitwise_right_shift", promote="binary", infer="elementwise", check=_check_bits,
    differentiable=False)  # fmt: skip
def bitwise_right_shift(xp, x, y, is_arithmetic=True):
    """x shifted right by y bits, keeping the sign unless is_arithmetic is False."""
    return _shift(xp, x, y, False, is_arithmetic)


# --- questions about a tensor -----------------------------------------------------------------


def is_tensor(x: Any) -> bool:
    """Whether x is a Tensor."""
    return isinstance(x, Tensor)


def is_empty(x: Tensor, name: str | None = None) -> Tensor:
    """Whether x has no elements."""
    return constant(np.array(0 in x._value.aval.shape))


def _need_tensor(x: Any, name: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeMismatch(f"[{name}] takes a Tensor. Received: {type(x).__name__}")


def is_complex(x: Tensor) -> bool:
    """Whether the elements are complex numbers."""
    _need_tensor(x, "is_complex")
    return x.dtype.is_complex


def is_floating_point(x: Tensor) -> bool:
    """Whether the elements are floating numbers."""
    _need_tensor(x, "is_floating_point")
    return x.dtype.is_floating


def is_integer(x: Tensor) -> bool:
    """Whether the elements are integers."""
    _need_tensor(x, "is_integer")
    return x.dtype.is_integer


def rank(input: Tensor) -> Tensor:
    """The number of dimensions, as a 0-d int32 tensor."""
    _need_tensor(input, "rank")
    return constant(np.array(input.ndim, np.int32))


def _isin_type(x: Aval, test_x: Aval, invert: bool) -> Aval:
    return aval(x.shape, dt.bool_)


@op(name="isin", promote="compare", infer=_isin_type, differentiable=False)
def _isin(xp, x, test_x, invert=False):
    """Whether each element of x is among test_x."""
    if xp is np:
        return np.isin(x, test_x, invert=invert)
    return jax_door.jnp().isin(x, test_x, invert=invert)


def isin(
    x: Tensor, test_x: Tensor, assume_unique: bool = False, invert: bool = False,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Whether each element of x is (not, if `invert`) among test_x.

    `assume_unique` only promises something that could save time; the answer is the same.
    """
    return _isin(x, test_x, invert)


__all__ = [
    "allclose", "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_not", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "eq", "equal", "equal_all", "ge", "greater",
    "greater_equal", "greater_than", "gt", "is_complex", "is_empty", "is_floating_point",
    "is_integer", "is_tensor", "isclose", "isin", "le", "less", "less_equal", "less_than",
    "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "ne", "not_equal", "rank",
]  # fmt: skip
