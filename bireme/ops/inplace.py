"""In-place forms: `add_` from `add`, by one rule, and the few that need one of their own."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.op import TENSOR_TYPES, op
from bireme.core.tensor import Tensor
from bireme.core.views import as_view, assign, check_inplace, replace
from bireme.ops import manipulation as shapes
from bireme.ops.axes import ints
from bireme.ops.math_unary import assign_value, cast

# Functions whose in-place form is a function of the `paddle` namespace and a Tensor method.
FUNCTIONS = (
    "abs", "acos", "acosh", "addmm", "asin", "asinh", "atan", "atanh", "baddbmm", "bitwise_and",
    "bitwise_invert", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "copysign", "cos", "cosh", "digamma", "div", "divide", "equal", "erf",
    "expm1", "floor_divide", "floor_mod", "frac", "gammainc", "gammaincc", "gammaln", "gcd",
    "greater_equal", "greater_than", "hypot", "i0", "index_add", "index_fill", "index_put",
    "lcm", "ldexp", "less", "less_equal", "less_than", "lgamma", "log", "log10", "log1p",
    "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "logit", "masked_fill",
    "masked_scatter", "mod", "multigammaln", "multiply", "nan_to_num", "neg", "not_equal",
    "polygamma", "pow", "remainder", "renorm", "scatter", "scatter_add", "sin", "sinc", "sinh",
    "square", "sub", "subtract", "tan", "tanh", "tril", "triu", "trunc",
)  # fmt: skip

# Those whose in-place form is a Tensor method only.
METHODS = (
    "add", "ceil", "clamp", "clip", "erfinv", "exp", "floor", "lerp", "mul", "put_along_axis",
    "reciprocal", "round", "rsqrt", "scale", "sigmoid", "sqrt",
)  # fmt: skip


def make_inplace(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """The form of `function` that gives its result to its first argument."""
    name = function.__name__ + "_"

    def inplace(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return assign(x, function(x, *args, **kwargs), name)

    inplace.__name__ = inplace.__qualname__ = name
    inplace.__module__ = function.__module__
    inplace.__doc__ = f"`{function.__name__}` in place: changes its first argument and returns it."
    inplace.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return inplace


# --- forms that change the shape ----------------------------------------------------------------


def reshape_(x: Tensor, shape: Any, *more: int, name: str | None = None) -> Tensor:
    """`reshape` in place."""
    check_inplace(x, "reshape_")
    shape = (*ints(shape), *more)
    return replace(x, shapes._reshape(x, shape), shapes.RESHAPE, (shape,))


def flatten_(
    x: Tensor, start_axis: int = 0, stop_axis: int = -1, name: str | None = None
) -> Tensor:
    """`flatten` in place."""
    return reshape_(x, shapes.flattened(x._value.aval.shape, start_axis, stop_axis))


def squeeze_(x: Tensor, axis: Any = None, name: str | None = None) -> Tensor:
    """`squeeze` in place."""
    check_inplace(x, "squeeze_")
    axis = axis if axis is None else ints(axis, "axis")
    return replace(x, shapes._squeeze(x, axis), shapes.SQUEEZE, (axis,))


def unsqueeze_(x: Tensor, axis: Any, name: str | None = None) -> Tensor:
    """`unsqueeze` in place."""
    check_inplace(x, "unsqueeze_")
    axis = ints(axis, "axis")
    return replace(x, shapes._unsqueeze(x, axis), shapes.UNSQUEEZE, (axis,))


def transpose_(x: Tensor, perm: Any, name: str | None = None) -> Tensor:
    """`transpose` in place."""
    check_inplace(x, "transpose_")
    perm = ints(perm, "perm")
    return replace(x, shapes._transpose(x, perm), shapes.TRANSPOSE, (perm,))


def t_(input: Tensor, name: str | None = None) -> Tensor:
    """`t` in place."""
    if input.ndim > 2:
        raise InvalidArgument(
            f"[t_] takes tensors of at most 2 dimensions. Received: shape {input.shape}"
        )
    return transpose_(input, (1, 0)) if input.ndim == 2 else input


def cumprod_(
    x: Tensor, dim: int | None = None, dtype: Any = None, name: str | None = None
) -> Tensor:
    """`cumprod` in place; without `dim` the tensor becomes flat."""
    from bireme.ops.scan import cumprod

    if dim is None and x.ndim > 1:
        flatten_(x)
    return assign(x, cumprod(x, dim, dtype=dtype), "cumprod_")


def cumsum_(
    x: Tensor, axis: int | None = None, dtype: Any = None, name: str | None = None
) -> Tensor:
    """`cumsum` in place; without `axis` the tensor becomes flat."""
    from bireme.ops.scan import cumsum

    if axis is None and x.ndim > 1:
        flatten_(x)
    return assign(x, cumsum(x, axis, dtype), "cumsum_")


def cast_(x: Tensor, dtype: Any) -> Tensor:
    """`cast` in place."""
    check_inplace(x, "cast_")
    return replace(x, cast(x, dtype), None)


# --- forms that fill ------------------------------------------------------------------------------


@op(name="fill", infer=lambda x, value: x, vjp=lambda xp, grad: (None, None), exact=True)
def _fill(xp, x, value):
    """One number everywhere."""
    return xp.broadcast_to(xp.asarray(value).astype(x.dtype), x.shape)


def fill_(x: Tensor, value: Any) -> Tensor:
    """Set every element to `value`."""
    check_inplace(x, "fill_")
    if value.__class__ in TENSOR_TYPES and value.size != 1:
        raise ShapeMismatch(f"[fill_] value must be one number. Received: shape {value.shape}")
    return assign(x, _fill(x, value), "fill_")


def zero_(x: Tensor) -> Tensor:
    """Set every element to 0."""
    return fill_(x, 0)


def copy_(self: Tensor, other: Tensor, blocking: bool = True) -> Tensor:
    """Take over the contents of `other`, which must have the same shape."""
    if other.dtype is not self.dtype:
        raise InvalidArgument(
            f"[copy_] both tensors must have one dtype. Received: {self.dtype.name} and "
            f"{other.dtype.name}"
        )
    check_inplace(self, "copy_")
    return assign(self, shapes._expand(assign_value(other), self._value.aval.shape), "copy_")


def set_(
    x: Tensor, source: Tensor | None = None, shape: Any = None, stride: Any = None,
    offset: int = 0, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Become a view of another tensor's memory: its own shape, or one given with strides.

    Strides count elements and the offset bytes, as in `as_strided`; nothing at all gives an
    empty tensor.
    """
    from bireme.ops.creation import empty
    from bireme.ops.rearrange import AS_STRIDED, as_strided

    check_inplace(x, "set_")
    if source is None:
        return replace(x, empty([0], x.dtype), None)
    if source.dtype is not x.dtype:
        raise InvalidArgument(
            f"[set_] both tensors must have one dtype. Received: {x.dtype.name} and "
            f"{source.dtype.name}"
        )
    sizes = source._value.aval.shape if shape is None else ints(shape)
    if stride is None:
        steps = tuple([math.prod(sizes[i + 1 :]) for i in range(len(sizes))])
    else:
        steps = ints(stride, "stride")
    replace(x, as_strided(source, sizes, steps, offset), None)
    return as_view(x, source, AS_STRIDED, (sizes, steps, offset // x.dtype.itemsize))


def reconstruct_from_(self: Tensor, other: Tensor) -> None:
    """Become `other`: its type, its shape and its memory, so that each sees the other's writes."""
    from bireme.ops.rearrange import AS_STRIDED, as_strided

    if not isinstance(other, Tensor):
        raise InvalidArgument(
            f"[reconstruct_from_] takes a Tensor. Received: {type(other).__name__}"
        )
    self.stop_gradient = True  # it becomes `other`, gradients and all
    sizes = other._value.aval.shape
    steps = tuple([math.prod(sizes[i + 1 :]) for i in range(len(sizes))])
    replace(self, as_strided(other, sizes, steps, 0), None)
    as_view(self, other, AS_STRIDED, (sizes, steps, 0))


def resize_(x: Tensor, shape: Any, fill_zero: bool = False, name: str | None = None) -> Tensor:
    """Take another shape and keep the elements in their order: the last ones are cut off.

    A larger tensor ends in zeros, with and without `fill_zero`.
    """
    from bireme.ops.padding import pad

    check_inplace(x, "resize_")
    want = ints(shape)
    flat, count = shapes._reshape(x, (-1,)), math.prod(want)
    have = math.prod(x._value.aval.shape)
    if count < have:
        flat = flat[:count]
    elif count > have:
        flat = pad(flat, [0, count - have])
    return replace(x, shapes._reshape(flat, want), None)


def apply_(self: Tensor, func: Callable[[Tensor], Tensor]) -> Tensor:
    """Replace the contents by `func(self)`."""
    if not self.stop_gradient:
        from bireme.core.errors import AutogradError

        raise AutogradError("[apply_] cannot change a tensor that needs a gradient")
    return assign(self, func(self), "apply_")


def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Set whether this tensor needs a gradient."""
    self.stop_gradient = not requires_grad
    return self


SPECIAL_FUNCTIONS = (
    cast_, cumprod_, cumsum_, flatten_, reshape_, squeeze_, t_, transpose_, unsqueeze_,
)  # fmt: skip
SPECIAL_METHODS = (apply_, copy_, fill_, requires_grad_, resize_, set_, zero_)


def where_(where: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The in-place form of `where`, which changes its second argument."""

    def where_(condition: Tensor, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
        """`where` in place: changes and returns `x`."""
        return assign(x, where(condition, x, y), "where_")

    return where_


def functions(public: dict[str, Any]) -> dict[str, Any]:
    """In-place forms that belong to the `paddle` namespace."""
    made = {n + "_": make_inplace(public[n]) for n in FUNCTIONS if n in public}
    made |= {f.__name__: f for f in SPECIAL_FUNCTIONS}
    if "where" in public:
        made["where_"] = where_(public["where"])
    return made


def methods(public: dict[str, Any]) -> dict[str, Any]:
    """In-place forms that are Tensor methods only."""
    made = {n + "_": make_inplace(public[n]) for n in METHODS if n in public}
    return made | {f.__name__: f for f in SPECIAL_METHODS}
