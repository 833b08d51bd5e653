"""Special functions: error, gamma, Bessel; from SciPy in one tier and from JAX in the other."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.api.public import another_name, public
from bireme.core.errors import InvalidArgument
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.host.arrays import Array, Namespace


def _library(xp: Any) -> Any:
    return importlib.import_module("scipy.special" if xp is np else "jax.scipy.special")


def _call(xp: Any, name: str, *xs: Any) -> Any:
    """A special function; types that the library lacks are computed in float32."""
    function = getattr(_library(xp), name)
    dtype = xs[-1].dtype
    if dtype.itemsize < 4:
        return function(*[x.astype(np.float32) for x in xs]).astype(dtype)
    return function(*xs)


def _special(slope: Callable[[Any, Any], Any]) -> Callable[[Callable[..., Any]], Any]:
    """A function of floats with the derivative `slope(xp, x)`."""

    def rule(xp: Namespace, grad: Array, x: Array) -> tuple[Any]:
        return (grad * slope(xp, x),)

    return op(vjp=rule, promote="float", infer="elementwise", takes="f")


@public(inplace="function", sample=[((3, 4),)])
@_special(lambda xp, x: (2 / math.sqrt(math.pi)) * xp.exp(-x * x))
def erf(xp, x):
    """The error function."""
    return _call(xp, "erf", x)


@public(inplace=True)
@_special(lambda xp, x: _call(xp, "digamma", x))
def lgamma(xp, x):
    """log |gamma(x)|."""
    return _call(xp, "gammaln", x)


@public(inplace=True)
@_special(lambda xp, x: _polygamma_at(xp, x, 1))
def digamma(xp, x):
    """The derivative of log gamma."""
    return _call(xp, "digamma", x)


@public(inplace=True, sample=[((3, 4),)])
@_special(lambda xp, x: _call(xp, "i1", x))
def i0(xp, x):
    """Modified Bessel function of the first kind, order 0."""
    return _call(xp, "i0", x)


@public(sample=[((3, 4),)])
@_special(lambda xp, x: _call(xp, "i1e", x) - xp.sign(x) * _call(xp, "i0e", x))
def i0e(xp, x):
    """i0(x) * exp(-|x|)."""
    return _call(xp, "i0e", x)


def _over_x(xp: Any, value: Any, x: Any) -> Any:
    """value / x, which tends to 1/2 at 0 for the Bessel functions of order 1."""
    safe = xp.where(x == 0, xp.ones_like(x), x)
    return xp.where(x == 0, 0.5 * xp.ones_like(x), value / safe)


@public(sample=[((3, 4),)])
@_special(lambda xp, x: _call(xp, "i0", x) - _over_x(xp, _call(xp, "i1", x), x))
def i1(xp, x):
    """Modified Bessel function of the first kind, order 1."""
    return _call(xp, "i1", x)


@public(sample=[((3, 4),)])
@_special(
    lambda xp, x: (
        _call(xp, "i0e", x) - xp.sign(x) * _call(xp, "i1e", x) - _over_x(xp, _call(xp, "i1e", x), x)
    )
)
def i1e(xp, x):
    """i1(x) * exp(-|x|)."""
    return _call(xp, "i1e", x)


gammaln = another_name("gammaln", lgamma)


def _erfinv_vjp(xp: Any, grad: Any, out: Any) -> tuple[Any]:
    return (grad * ((math.sqrt(math.pi) / 2) * xp.exp(out * out)),)


@public(inplace="method")
@op(vjp=_erfinv_vjp, promote="float", infer="elementwise", amp="black", takes="f")
def erfinv(xp, x):
    """The inverse of the error function."""
    return _call(xp, "erfinv", x)


def _polygamma_vjp(xp: Any, grad: Any, x: Any, n: int) -> tuple[Any]:
    return (grad * _polygamma_at(xp, x, n + 1),)


def _polygamma_at(xp: Any, x: Any, n: int) -> Any:
    if n == 0:
        return _call(xp, "digamma", x)
    # The order must be an integer for JAX; both libraries compute in x's precision or better.
    order = xp.full(x.shape, n, np.int32)
    wide = x.astype(np.float32) if x.dtype.itemsize < 4 else x
    return _library(xp).polygamma(order, wide).astype(x.dtype)


@op(name="polygamma", vjp=_polygamma_vjp, promote="float", infer="elementwise", takes="f")
def _polygamma(xp, x, n=1):
    """The n-th derivative of digamma."""
    return _polygamma_at(xp, x, n)


@public(inplace=True, takes="ifc")
def polygamma(x: Tensor, n: int, name: str | None = None) -> Tensor:
    """The n-th derivative of digamma, n >= 0."""
    if not isinstance(n, int) or n < 0:
        raise InvalidArgument(f"[polygamma] n must be a non-negative integer. Received: {n!r}")
    return _polygamma(x, n)


@public(inplace=True, takes="fc")
def multigammaln(x: Tensor, p: int, name: str | None = None) -> Tensor:
    """The logarithm of the gamma function of dimension p."""
    if not isinstance(p, int) or p < 1:
        raise InvalidArgument(f"[multigammaln] p must be a positive integer. Received: {p!r}")
    from bireme.ops.math import minus, plus

    total = None
    for i in range(p):
        term = lgamma(minus(x, i / 2))
        total = term if total is None else plus(total, term)
    return plus(total, p * (p - 1) / 4 * math.log(math.pi))


def _incomplete_slope(xp: Any, x: Any, y: Any) -> Any:
    """The derivative of the lower incomplete gamma function by y."""
    return xp.exp((x - 1) * xp.log(y) - y - _call(xp, "gammaln", x))


def _gammainc_vjp(xp: Any, grad: Any, x: Any, y: Any) -> tuple[None, Any]:
    return None, grad * _incomplete_slope(xp, x, y)


def _gammaincc_vjp(xp: Any, grad: Any, x: Any, y: Any) -> tuple[None, Any]:
    return None, -grad * _incomplete_slope(xp, x, y)


@public(inplace=True)
@op(vjp=_gammainc_vjp, promote="float_binary", infer="elementwise", takes="f")
def gammainc(xp, x, y):
    """The regularised lower incomplete gamma function P(x, y); differentiable by y."""
    return _call(xp, "gammainc", x, y)


@public(inplace=True)
@op(vjp=_gammaincc_vjp, promote="float_binary", infer="elementwise", takes="f")
def gammaincc(xp, x, y):
    """The regularised upper incomplete gamma function Q(x, y); differentiable by y."""
    return _call(xp, "gammaincc", x, y)
