"""In-place forms with a definition of their own; `@public(inplace=True)` makes the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps

from bireme.api.in_place import in_place_of
from bireme.api.public import method, public
from bireme.api.types import Axis, DTypeLike, Ints, Operand, Scalar, Shape
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.core.views import as_view, assign, check_inplace, replace
from bireme.ops import manipulation as shapes
from bireme.ops.axes import ints
from bireme.ops.math_unary import assign_value, cast
from bireme.ops.scan import cumprod, cumsum
from bireme.ops.search import where

# --- forms that change the shape ----------------------------------------------------------------


@public
@in_place_of(shapes.reshape)
def reshape_(x: Tensor, shape: Shape, *more: int, name: str | None = None) -> Tensor:
    """`reshape` in place."""
    check_inplace(x, "reshape_")
    shape = (*ints(shape), *more)
    return replace(x, shapes._reshape(x, shape), shapes.RESHAPE, (shape,))


@public
@in_place_of(shapes.flatten)
def flatten_(
    x: Tensor, start_axis: int = 0, stop_axis: int = -1, name: str | None = None
) -> Tensor:
    """`flatten` in place."""
    return reshape_(x, shapes.flattened(x._value.aval.shape, start_axis, stop_axis))


@public
@in_place_of(shapes.squeeze)
def squeeze_(x: Tensor, axis: Ints | None = None, name: str | None = None) -> Tensor:
    """`squeeze` in place."""
    check_inplace(x, "squeeze_")
    axis = axis if axis is None else ints(axis, "axis")
    return replace(x, shapes._squeeze(x, axis), shapes.SQUEEZE, (axis,))


@public
@in_place_of(shapes.unsqueeze)
def unsqueeze_(x: Tensor, axis: Ints, name: str | None = None) -> Tensor:
    """`unsqueeze` in place."""
    check_inplace(x, "unsqueeze_")
    axis = ints(axis, "axis")
    return replace(x, shapes._unsqueeze(x, axis), shapes.UNSQUEEZE, (axis,))


@public
@in_place_of(shapes.transpose)
def transpose_(x: Tensor, perm: Axis, name: str | None = None) -> Tensor:
    """`transpose` in place."""
    check_inplace(x, "transpose_")
    perm = ints(perm, "perm")
    return replace(x, shapes._transpose(x, perm), shapes.TRANSPOSE, (perm,))


@public
@in_place_of(shapes.t)
def t_(input: Tensor, name: str | None = None) -> Tensor:
    """`t` in place."""
    if input.ndim > 2:
        raise InvalidArgument(
            f"[t_] takes tensors of at most 2 dimensions. Received: shape {input.shape}"
        )
    return transpose_(input, (1, 0)) if input.ndim == 2 else input


@wraps(cumprod)
def _cumprod_with_dtype(
    x: Tensor, dim: int | None = None, dtype: DTypeLike | None = None, name: str | None = None
) -> Tensor:
    return cumprod(x, dim, dtype=dtype)


@public
@in_place_of(_cumprod_with_dtype)
def cumprod_(
    x: Tensor, dim: int | None = None, dtype: DTypeLike | None = None, name: str | None = None
) -> Tensor:
    """`cumprod` in place; without `dim` the tensor becomes flat."""
    if dim is None and x.ndim > 1:
        flatten_(x)
    return assign(x, cumprod(x, dim, dtype=dtype), "cumprod_")


@public
@in_place_of(cumsum)
def cumsum_(
    x: Tensor, axis: int | None = None, dtype: DTypeLike | None = None, name: str | None = None
) -> Tensor:
    """`cumsum` in place; without `axis` the tensor becomes flat."""
    if axis is None and x.ndim > 1:
        flatten_(x)
    return assign(x, cumsum(x, axis, dtype), "cumsum_")


@public
@in_place_of(cast)
def cast_(x: Tensor, dtype: DTypeLike) -> Tensor:
    """`cast` in place."""
    check_inplace(x, "cast_")
    return replace(x, cast(x, dtype), None)


# --- forms that fill ------------------------------------------------------------------------------


@op(name="fill", infer=lambda x, value: x, vjp=lambda xp, grad: (None, None), exact=True)
def _fill(xp, x, value):
    """One number everywhere."""
    return xp.broadcast_to(xp.asarray(value).astype(x.dtype), x.shape)


@method
def fill_(x: Tensor, value: Scalar) -> Tensor:
    """Set every element to `value`."""
    check_inplace(x, "fill_")
    if isinstance(value, Tensor) and value.size != 1:
        raise ShapeMismatch(f"[fill_] value must be one number. Received: shape {value.shape}")
    return assign(x, _fill(x, value), "fill_")


@method
def zero_(x: Tensor) -> Tensor:
    """Set every element to 0."""
    return fill_(x, 0)


@method
def copy_(self: Tensor, other: Tensor, blocking: bool = True) -> Tensor:
    """Take over the contents of `other`, which must have the same shape."""
    if other.dtype is not self.dtype:
        raise InvalidArgument(
            f"[copy_] both tensors must have one dtype. Received: {self.dtype.name} and "
            f"{other.dtype.name}"
        )
    check_inplace(self, "copy_")
    return assign(self, shapes._expand(assign_value(other), self._value.aval.shape), "copy_")


@method
def set_(
    x: Tensor,
    source: Tensor | None = None,
    shape: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    offset: int = 0,
    name: str | None = None,
) -> Tensor:
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


@method
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


@method
def resize_(x: Tensor, shape: Shape, fill_zero: bool = False, name: str | None = None) -> Tensor:
    """Take another shape and keep the elements in their order: the last ones are cut off.

    A larger tensor ends in zeros, with and without `fill_zero`.
    """
    from bireme.ops.padding import pad

    check_inplace(x, "resize_")
    want = ints(shape)
    flat, count = shapes._reshape(x, (-1,)), math.prod(want)
    have = math.prod(x._value.aval.shape)
    if type(have) is not int:
        flat = pad(flat, [0, count])[:count]
    elif count < have:
        flat = flat[:count]
    elif count > have:
        flat = pad(flat, [0, count - have])
    return replace(x, shapes._reshape(flat, want), None)


@method
def apply_(self: Tensor, func: Callable[[Tensor], Tensor]) -> Tensor:
    """Replace the contents by `func(self)`."""
    if not self.stop_gradient:
        from bireme.core.errors import AutogradError

        raise AutogradError("[apply_] cannot change a tensor that needs a gradient")
    return assign(self, func(self), "apply_")


@method
def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Set whether this tensor needs a gradient."""
    self.stop_gradient = not requires_grad
    return self


@public
@in_place_of(where)
def where_(
    condition: Tensor, x: Tensor | None = None, y: Operand | None = None, name: str | None = None
) -> Tensor:
    """`where` in place: changes and returns `x`."""
    return assign(x, where(condition, x, y), "where_")  # type: ignore[arg-type]
