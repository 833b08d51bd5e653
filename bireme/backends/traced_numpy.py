"""NumPy's functions on traced arrays: each with its gradients (see numpy_gradient.py)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bireme.backends.numpy_gradient import NotTraced, Traced, level_of, note, plain
from bireme.host import thresholds
from bireme.host.arrays import Array

Pull = Callable[..., Sequence[Any]]


def _function(compute: Callable[..., Any], pull: Pull) -> Callable[..., Any]:
    """A function of arrays that is traced. `pull(grad, out, *args, **options)` returns the
    gradients of the leading arguments."""

    def call(*args: Any, **options: Any) -> Any:
        level = level_of(args)
        if level == 0:
            return compute(*args, **options)

        def back(grad: Array, out: Array, inner: list[Any], which: list[int]) -> list[Any]:
            found = pull(grad, out, *inner, **options)
            return [found[i] for i in which]

        return note(call, args, options, level, back)

    return call


def _fit(grad: Any, like: Any) -> Any:
    """A gradient summed over what was broadcast from `like`."""
    shape = np.shape(plain(like))
    extra = len(grad.shape) - len(shape)
    axes = [*range(extra)]
    axes += [i + extra for i, d in enumerate(shape) if d == 1 and grad.shape[i + extra] != 1]
    return reshape(total(grad, axis=tuple(axes)), shape) if axes else grad


def _elementwise(compute: Any, *pulls: Callable[..., Any]) -> Callable[..., Any]:
    """A function that broadcasts; each of `pulls` is (grad, out, *args) -> the gradient of one
    argument."""

    def back(grad: Array, out: Array, inner: list[Any], which: list[int]) -> list[Any]:
        return [_fit(pulls[i](grad, out, *inner), inner[i]) for i in which]

    def call(*args: Any) -> Any:
        level = level_of(args)
        return compute(*args) if level == 0 else note(call, args, {}, level, back)

    return call


# --- elementwise --------------------------------------------------------------------------------


def _share(x: Any, y: Any, larger: Any) -> Any:
    """1 where x is chosen, one half where x and y are equal, as in JAX."""
    x, y = plain(x), plain(y)
    return (larger(x, y) + 0.5 * (x == y)).astype(np.result_type(x, y))


def _by_base(g: Any, out: Any, x: Any, y: Any) -> Any:
    if isinstance(y, int | float):
        return g * (y * power(x, y - 1)) if y else g * 0
    zero = np.equal(y, 0)
    return g * where(zero, 0, y * power(x, np.where(zero, 1, y - 1).astype(x.dtype)))


def _no_pull(*_: Any) -> Any:
    raise NotTraced("a function of this argument")


add = _elementwise(np.add, lambda g, o, x, y: g, lambda g, o, x, y: g)
subtract = _elementwise(np.subtract, lambda g, o, x, y: g, lambda g, o, x, y: -g)
multiply = _elementwise(np.multiply, lambda g, o, x, y: g * y, lambda g, o, x, y: g * x)
divide = _elementwise(np.divide, lambda g, o, x, y: g / y, lambda g, o, x, y: -g * o / y)
power = _elementwise(np.power, _by_base, _no_pull)
negative = _elementwise(np.negative, lambda g, o, x: -g)
exp = _elementwise(np.exp, lambda g, o, x: g * o)
expm1 = _elementwise(np.expm1, lambda g, o, x: g * (o + 1))
log = _elementwise(np.log, lambda g, o, x: g / x)
log1p = _elementwise(np.log1p, lambda g, o, x: g / (x + 1))
sqrt = _elementwise(np.sqrt, lambda g, o, x: g * (0.5 / o))
square = _elementwise(np.square, lambda g, o, x: g * (2 * x))
sin = _elementwise(np.sin, lambda g, o, x: g * cos(x))
cos = _elementwise(np.cos, lambda g, o, x: -g * sin(x))
sinh = _elementwise(np.sinh, lambda g, o, x: g * cosh(x))
cosh = _elementwise(np.cosh, lambda g, o, x: g * sinh(x))
tanh = _elementwise(np.tanh, lambda g, o, x: g * (1 - o * o))
absolute = _elementwise(np.abs, lambda g, o, x: g * np.sign(plain(x)))
maximum = _elementwise(
    np.maximum,
    lambda g, o, x, y: g * _share(x, y, np.greater),
    lambda g, o, x, y: g * _share(y, x, np.greater),
)
minimum = _elementwise(
    np.minimum,
    lambda g, o, x, y: g * _share(x, y, np.less),
    lambda g, o, x, y: g * _share(y, x, np.less),
)
where = _elementwise(
    np.where, _no_pull, lambda g, o, c, x, y: where(c, g, 0), lambda g, o, c, x, y: where(c, 0, g)
)


def _flat(compute: Any) -> Callable[..., Any]:
    """A function without a slope: of the arrays, without notes."""
    return lambda *args, **options: compute(*[plain(a) for a in args], **options)


# --- forms --------------------------------------------------------------------------------------


def _spread(grad: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    """The gradient of a sum: `grad` in all places that were summed."""
    shape = x.shape
    if not keepdims:
        axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        kept = {a % len(shape) for a in axes}
        grad = reshape(grad, tuple([1 if i in kept else d for i, d in enumerate(shape)]))
    return broadcast_to(grad, shape)


def mean(x: Array, axis: Any = None, keepdims: bool = False) -> Any:
    """A sum and a division."""
    summed = total(x, axis=axis, keepdims=keepdims)
    return summed / (math.prod(x.shape) / max(math.prod(summed.shape), 1))


def _into(g: Any, out: Any, x: Any, key: Any) -> list[Any]:
    """The gradient of x[key]: `g` at those places."""
    return [_put(g, key, tuple(x.shape))]


def _put_at(g: Any, key: Any, shape: tuple[int, ...]) -> Any:
    made = np.zeros(shape, g.dtype)
    keys = key if isinstance(key, tuple) else (key,)
    if all(isinstance(k, slice | int | type(None) | type(...)) for k in keys):
        made[key] = g
    else:  # positions may repeat
        np.add.at(made, key, g)
    return made


def _with(x: Any, key: Any, value: Any) -> Any:
    made = x.copy()
    made[key] = value
    return made


def _without(g: Any, out: Any, x: Any, key: Any, value: Any) -> list[Any]:
    taken = getitem(g, key)
    return [replaced(g, key, np.zeros((), g.dtype)), None, _fit(taken, value)]


def _order_back(g: Any, out: Any, x: Any, axes: Any = None) -> list[Any]:
    if axes is None:
        return [transpose(g)]
    return [transpose(g, tuple(np.argsort([a % len(axes) for a in axes]).tolist()))]


def _by_matrices(g: Any, out: Any, x: Any, y: Any) -> list[Any]:
    if min(len(x.shape), len(y.shape)) < 2:
        raise NotTraced("a product with a vector")
    return [_fit(matmul(g, swapaxes(y, -1, -2)), x), _fit(matmul(swapaxes(x, -1, -2), g), y)]


reshape = _function(np.reshape, lambda g, o, x, shape: [reshape(g, x.shape)])
broadcast_to = _function(np.broadcast_to, lambda g, o, x, shape: [_fit(g, x)])
total = _function(
    np.sum,
    lambda g, o, x, axis=None, keepdims=False: [_spread(g, x, axis, keepdims)],
)
transpose = _function(np.transpose, _order_back)
swapaxes = _function(np.swapaxes, lambda g, o, x, a, b: [swapaxes(g, a, b)])
expand_dims = _function(np.expand_dims, lambda g, o, x, axis: [reshape(g, x.shape)])
squeeze = _function(np.squeeze, lambda g, o, x, axis=None: [reshape(g, x.shape)])
astype = _function(lambda x, dtype: x.astype(dtype), lambda g, o, x, d: [astype(g, x.dtype)])
getitem = _function(lambda x, key: x[key], _into)
replaced = _function(_with, _without)  # x with x[key] = value
_put = _function(_put_at, lambda g, o, x, key, shape: [getitem(g, key)])
matmul = _function(np.matmul, _by_matrices)


def concatenate(parts: Sequence[Any], axis: int = 0) -> Any:
    """Arrays side by side."""
    return _joined(*parts, axis=axis)


def _parts_of(g: Any, out: Any, *parts: Any, axis: int = 0) -> list[Any]:
    found, at = [], 0
    for part in parts:
        key: list[Any] = [slice(None)] * len(part.shape)
        key[axis] = slice(at, at + part.shape[axis])
        at += part.shape[axis]
        found.append(getitem(g, tuple(key)))
    return found


_joined = _function(lambda *parts, axis=0: np.concatenate(parts, axis), _parts_of)


def stack(parts: Sequence[Any], axis: int = 0) -> Any:
    """Arrays along a new axis."""
    return concatenate([expand_dims(p, axis) for p in parts], axis % (len(parts[0].shape) + 1))


def cumprod(x: Array, axis: int, dtype: Any = None) -> Any:
    """Products of all elements so far: exact, also for zeros."""
    if x.__class__ is not Traced:
        return np.cumprod(x, axis=axis, dtype=dtype)
    if dtype not in (None, x.dtype):
        raise NotTraced("a product in another type")
    axis, count = axis % x.ndim, x.shape[axis]
    if count > thresholds.LONG_PRODUCT:
        raise NotTraced("a long product")
    before: tuple[Any, ...] = (slice(None),) * axis
    parts: list[Any] = []
    for i in range(count):
        part = x[(*before, slice(i, i + 1))]
        parts.append(part if i == 0 else parts[-1] * part)
    return concatenate(parts, axis)


# --- the namespace ------------------------------------------------------------------------------

_TRACED = {
    "abs": absolute, "absolute": absolute, "add": add, "broadcast_to": broadcast_to,
    "concatenate": concatenate, "cos": cos, "cosh": cosh, "cumprod": cumprod, "divide": divide,
    "exp": exp, "expand_dims": expand_dims, "expm1": expm1, "log": log, "log1p": log1p,
    "matmul": matmul, "maximum": maximum, "mean": mean, "minimum": minimum, "multiply": multiply,
    "negative": negative, "power": power, "replaced": replaced, "reshape": reshape, "sin": sin,
    "sinh": sinh, "sqrt": sqrt, "square": square, "squeeze": squeeze, "stack": stack,
    "subtract": subtract, "sum": total, "swapaxes": swapaxes, "tanh": tanh, "transpose": transpose,
    "true_divide": divide, "where": where,
}  # fmt: skip
# Functions without a slope, and those of a shape and type alone.
_FLAT = frozenset({
    "argmax", "argmin", "ceil", "equal", "floor", "full_like", "greater", "greater_equal",
    "isfinite", "isinf", "isnan", "less", "less_equal", "logical_and", "logical_not", "logical_or",
    "not_equal", "ones_like", "rint", "round", "sign", "trunc", "zeros_like",
})  # fmt: skip


class _Namespace:
    """`numpy` for traced arrays."""

    computes_at_once = True  # see core/lowering.py

    def __getattr__(self, name: str) -> Any:
        found = _TRACED.get(name)
        if found is None:
            own = getattr(np, name, None)
            if own is None:
                raise NotTraced(name)
            if name in _FLAT:
                found = _flat(own)
            elif callable(own) and not isinstance(own, type):
                found = _untraced(name, own)
            else:
                found = own
        setattr(self, name, found)
        return found

    def asarray(self, x: Array, dtype: Any = None) -> Any:
        if x.__class__ is Traced:
            return x if dtype is None or x.dtype == dtype else astype(x, dtype)
        return np.asarray(x, dtype)

    def real(self, x: Array) -> Any:
        return x  # complex numbers are not traced


def _untraced(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        for a in (*args, *options.values()):
            if a.__class__ is Traced or (
                isinstance(a, list | tuple) and any(i.__class__ is Traced for i in a)
            ):
                raise NotTraced(name)
        return function(*args, **options)

    return call


namespace = _Namespace()


def _add_methods() -> None:
    arithmetic = {
        "add": add,
        "sub": subtract,
        "mul": multiply,
        "truediv": divide,
        "pow": power,
        "matmul": matmul,
    }
    for name, function in arithmetic.items():
        setattr(Traced, f"__{name}__", function)
        setattr(Traced, f"__r{name}__", lambda x, y, function=function: function(y, x))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Traced, f"__{name}__", _flat(getattr(operator, name)))
    methods = {
        "__abs__": absolute, "__getitem__": getitem, "__neg__": negative, "T": property(transpose),
        "astype": lambda x, dtype, **_: astype(x, dtype), "mean": mean, "reshape": _reshaped,
        "sum": total, "swapaxes": swapaxes,
    }  # fmt: skip
    for name, method in methods.items():
        setattr(Traced, name, method)


def _reshaped(x: Any, *shape: Any) -> Any:
    return reshape(x, shape[0] if len(shape) == 1 else shape)


_add_methods()
