"""Comparison, logical and bitwise ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.api.keywords import second_name
from bireme.api.public import another_name, in_place, public
from bireme.api.types import Operand
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import TypeMismatch, not_a_tensor
from bireme.core.op import op
from bireme.core.tensor import Tensor, constant
from bireme.host import jax_door

# --- comparison -------------------------------------------------------------------------------


_comparison = op(promote="compare", infer="bool", differentiable=False)


@public(also={"input": "x", "other": "y"}, out=True, inplace=True)
@_comparison
def equal(xp, x, y):
    """Where x == y."""
    return xp.equal(x, y)


@public(also={"input": "x", "other": "y"}, out=True, inplace=True)
@_comparison
def not_equal(xp, x, y):
    """Where x != y."""
    return xp.not_equal(x, y)


@public(also={"input": "x", "other": "y"}, out=True, inplace=True)
@_comparison
def less_than(xp, x, y):
    """Where x < y."""
    return xp.less(x, y)


@public(also={"input": "x", "other": "y"}, out=True, inplace=True)
@_comparison
def less_equal(xp, x, y):
    """Where x <= y."""
    return xp.less_equal(x, y)


@public(also={"input": "x", "other": "y"}, out=True, inplace=True)
@_comparison
def greater_than(xp, x, y):
    """Where x > y."""
    return xp.greater(x, y)


@public(also={"input": "x", "other": "y"}, out=True, inplace=True)
@_comparison
def greater_equal(xp, x, y):
    """Where x >= y."""
    return xp.greater_equal(x, y)


eq = another_name("eq", equal, inplace=False)
ne = another_name("ne", not_equal, inplace=False)
lt = another_name("lt", less_than, inplace=False)
le = another_name("le", less_equal, inplace=False)
gt = another_name("gt", greater_than, inplace=False)
ge = another_name("ge", greater_equal, inplace=False)
less = another_name("less", less_than)
greater = another_name("greater", greater_than, inplace=False)


@op(name="isclose", inputs=("x", "y", "rtol", "atol"), promote="compare", differentiable=False,
    infer="bool")  # fmt: skip
def _isclose(xp, x, y, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Where |x - y| <= atol + rtol * |y|."""
    near = (x == y) | (xp.abs(x - y) <= atol + rtol * xp.abs(y)) & xp.isfinite(y)
    return near | (xp.isnan(x) & xp.isnan(y)) if equal_nan else near


@public(also={"input": "x"}, takes="fc")
def isclose(
    x: Tensor,
    y: Operand | None = None,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
    name: str | None = None,
    *,
    other: Operand | None = None,
) -> Tensor:
    """Where |x - y| <= atol + rtol * |y|."""
    if other is not None:
        y = second_name("isclose", "y", y, "other", other)
    if y is None:
        raise not_a_tensor("isclose", "y", y)
    return _isclose(x, y, float(rtol), float(atol), equal_nan)


@public
def allclose(
    x: Tensor,
    y: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
    name: str | None = None,
) -> Tensor:
    """Whether |x - y| <= atol + rtol * |y| everywhere."""
    from bireme.ops.reduction import _all

    return _all(isclose(x, y, rtol, atol, equal_nan), None, False)


@public
def equal_all(x: Tensor, y: Tensor, name: str | None = None) -> Tensor:
    """Whether x and y have the same shape and the same elements."""
    from bireme.ops.reduction import _all

    if x._value.aval.shape != y._value.aval.shape:
        return constant(np.array(False))
    return _all(equal(x, y), None, False)


# --- logic ------------------------------------------------------------------------------------


@public(also={"input": "x", "other": "y"}, out=True, inplace=True)
@_comparison
def logical_and(xp, x, y):
    """Where both are true."""
    return xp.logical_and(x.astype(bool), y.astype(bool))


@public(also={"input": "x", "other": "y"}, out=True, inplace=True)
@_comparison
def logical_or(xp, x, y):
    """Where either is true."""
    return xp.logical_or(x.astype(bool), y.astype(bool))


@public(also={"input": "x", "other": "y"}, out=True, inplace=True)
@_comparison
def logical_xor(xp, x, y):
    """Where just one is true."""
    return xp.logical_xor(x.astype(bool), y.astype(bool))


@public(also={"input": "x"}, out=True, inplace=True)
@op(infer="bool", differentiable=False)
def logical_not(xp, x):
    """Where x is false."""
    return ~x.astype(bool)


# --- bits -------------------------------------------------------------------------------------


def _check_bits(x: Any, *others: Any, **_: Any) -> None:
    for t in (x, *others):
        if not (t.dtype.is_integer or t.dtype is dt.bool_):
            raise TypeMismatch("takes integers or bool; cast with .astype('int64')")


_bitwise = op(promote="binary", infer="elementwise", check=_check_bits, differentiable=False)


@public(out_at=2, inplace=True)
@_bitwise
def bitwise_and(xp, x, y):
    """x & y, bit by bit."""
    return x & y


@public(also={"input": "x", "other": "y"}, out_at=2, inplace=True, inplace_also=True)
@_bitwise
def bitwise_or(xp, x, y):
    """x | y, bit by bit."""
    return x | y


@public(out_at=2, inplace=True)
@_bitwise
def bitwise_xor(xp, x, y):
    """x ^ y, bit by bit."""
    return x ^ y


@public(out_at=1, inplace=True)
@op(infer="elementwise", check=_check_bits, differentiable=False)
def bitwise_not(xp, x):
    """Every bit of x flipped."""
    return ~x


bitwise_invert = another_name("bitwise_invert", bitwise_not)


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


@public(out_at=3)
@op(name="bitwise_left_shift", promote="binary", infer="elementwise", check=_check_bits,
    differentiable=False)  # fmt: skip
def bitwise_left_shift(xp, x, y, is_arithmetic=True):
    """x shifted left by y bits."""
    return _shift(xp, x, y, True, is_arithmetic)


@public(out_at=3)
@op(name="bitwise_right_shift", promote="binary", infer="elementwise", check=_check_bits,
    differentiable=False)  # fmt: skip
def bitwise_right_shift(xp, x, y, is_arithmetic=True):
    """x shifted right by y bits, keeping the sign unless is_arithmetic is False."""
    return _shift(xp, x, y, False, is_arithmetic)


# These take `out` too, unlike other in-place forms.
bitwise_left_shift_ = public(out_at=3)(in_place(bitwise_left_shift))
bitwise_right_shift_ = public(out_at=3)(in_place(bitwise_right_shift))


# --- questions about a tensor -----------------------------------------------------------------


@public(also={"obj": "x"}, method=True)
def is_tensor(x: object) -> bool:
    """Whether x is a Tensor."""
    return isinstance(x, Tensor)


@public
def is_empty(x: Tensor, name: str | None = None) -> Tensor:
    """Whether x has no elements."""
    return constant(np.array(0 in x._value.aval.shape))


def _need_tensor(x: Any, name: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeMismatch(f"[{name}] takes a Tensor. Received: {type(x).__name__}")


@public(also={"input": "x"})
def is_complex(x: Tensor) -> bool:
    """Whether the elements are complex numbers."""
    _need_tensor(x, "is_complex")
    return x.dtype.is_complex


@public(also={"input": "x"})
def is_floating_point(x: Tensor) -> bool:
    """Whether the elements are floating numbers."""
    _need_tensor(x, "is_floating_point")
    return x.dtype.is_floating


@public
def is_integer(x: Tensor) -> bool:
    """Whether the elements are integers."""
    _need_tensor(x, "is_integer")
    return x.dtype.is_integer


@public
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


@public(also={"elements": "x", "test_elements": "test_x"})
def isin(
    x: Tensor,
    test_x: Tensor,
    assume_unique: bool = False,
    invert: bool = False,
    name: str | None = None,
) -> Tensor:
    """Whether each element of x is (not, if `invert`) among test_x.

    `assume_unique` only promises something that could save time; the answer is the same.
    """
    return _isin(x, test_x, invert)
