"""Shapes: reshape, transpose, squeeze, expand, tile and the like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.api.keywords import second_name
from bireme.api.public import another_name, method, public
from bireme.api.types import Axis, DTypeLike, Ints, Shape
from bireme.core.aval import Aval, aval
from bireme.core.dims import may_be_equal
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch, not_a_tensor
from bireme.core.op import broadcast_shapes as common_shape
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.core.views import Step, as_view, reshapes_in_place
from bireme.ops.axes import axes_in, axis_in, dimension_in, ints

# --- reshape ----------------------------------------------------------------------------------


def resolve_shape(have: tuple[Any, ...], want: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shape that `want` stands for: 0 keeps the dimension at its place, -1 is inferred."""
    shape = list(want)
    unknown = None
    for i, d in enumerate(want):
        if type(d) is not int or d > 0:
            continue
        if d == 0:
            if 0 in have:
                continue  # a tensor without elements: 0 is meant
            if i < len(have):
                shape[i] = have[i]
            else:
                raise ShapeMismatch(
                    f"a 0 in the new shape keeps the dimension at its place, but the tensor has "
                    f"no dimension {i}"
                )
        elif d == -1 and unknown is None:
            unknown = i
        else:
            raise InvalidArgument(
                "a new shape may hold one -1, zeros and positive numbers; write -1 only once"
            )
    total = math.prod(have)
    if unknown is None:
        if not may_be_equal(math.prod(shape), total):
            raise ShapeMismatch(
                f"a tensor of {total} elements does not fit into shape {list(want)}; the product "
                "of the new shape must stay the same, and one dimension may be -1"
            )
        return tuple(shape)
    del shape[unknown]
    known = math.prod(shape)
    if type(known) is int and known == 0:
        inferred: Any = math.prod(d for d in have if d) // math.prod(d for d in shape if d)
    elif type(known) is int and type(total) is int and total % known:
        raise ShapeMismatch(
            f"{total} elements cannot be split into rows of {known} for the -1 in shape "
            f"{list(want)}"
        )
    else:
        inferred = total // known
    shape.insert(unknown, inferred)
    return tuple(shape)


def _reshape_infer(x: Aval, shape: tuple[Any, ...]) -> Aval:
    return aval(resolve_shape(x.shape, shape), x.dtype)


def _reshape_vjp(xp: Any, grad: Any, types: Any) -> tuple[Any]:
    return (xp.reshape(grad, types[0].shape),)


@op(name="reshape", infer=_reshape_infer, vjp=_reshape_vjp, exact=True)
def _reshape(xp, x, shape=()):
    """The same elements, in order, in another shape."""
    return xp.reshape(x, resolve_shape(x.shape, shape))


def _reshape_write(base: Tensor, view: Tensor, *args: Any) -> Tensor:
    return _reshape(view, base._value.aval.shape)


def _keep_order(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.reshape(array, resolve_shape(array.shape, shape))


RESHAPE = Step(_reshape, _reshape_write, _keep_order, in_order=True)


@public(also={"input": "x"})
def reshape(x: Tensor, shape: Shape, *more: int, name: str | None = None) -> Tensor:
    """`x` in another shape; one -1 is inferred, and 0 keeps the dimension at its place.

    The result shares memory with `x` wherever the elements lie in order.
    """
    if shape.__class__ is not tuple:
        # Tensors within a list are read by the op's general path.
        shape = tuple(shape) if isinstance(shape, list) else (*ints(shape), *more)
    out = _reshape(x, shape)
    if x._view is not None and not reshapes_in_place(x, out._value.aval.shape):
        return out
    return as_view(out, x, RESHAPE, (shape,))


@public(also={"dtype": "shape_or_dtype", "size": "shape_or_dtype"})
def view(
    x: Tensor, shape_or_dtype: Shape | DTypeLike, *more: int, name: str | None = None
) -> Tensor:
    """`x` in another shape, or its bytes read as another dtype, always sharing memory."""
    if isinstance(shape_or_dtype, list | tuple | int):
        shape = (*ints(shape_or_dtype), *more)
        out = _reshape(x, shape)
        if x._view is not None and not reshapes_in_place(x, out._value.aval.shape):
            raise InvalidArgument(
                f"[view] the elements of this tensor lie out of order in memory (it is a "
                f"transposed or sliced view), so it has no view of shape {list(shape)}; use "
                "reshape(), which copies"
            )
        return as_view(out, x, RESHAPE, (shape,))
    from bireme.core.dtype import as_dtype

    to = as_dtype(shape_or_dtype)
    return as_view(_bitcast(x, to), x, _BITCAST, (to,))


@public
def view_as(x: Tensor, other: Tensor, name: str | None = None) -> Tensor:
    """`x` in the shape of `other`, sharing memory."""
    return view(x, other._value.aval.shape)


def _bitcast_infer(x: Aval, dtype: Any) -> Aval:
    have, want = x.dtype.itemsize, dtype.itemsize
    if have == want:
        return aval(x.shape, dtype)
    if x.ndim == 0:
        raise ShapeMismatch(f"a 0-d tensor of {x.dtype.name} cannot be read as {dtype.name}")
    last = x.shape[-1] * have
    if type(last) is int and last % want:
        raise ShapeMismatch(
            f"the last dimension holds {last} bytes, which is no multiple of the {want} bytes of "
            f"{dtype.name}"
        )
    return aval((*x.shape[:-1], last // want), dtype)


@op(name="bitcast", infer=_bitcast_infer, differentiable=False, exact=True)
def _bitcast(xp, x, dtype: Any = None):
    """The bytes of `x` read as another dtype."""
    if xp is np:
        return np.ascontiguousarray(x).view(dtype.numpy).reshape(_bitcast_shape(x, dtype))
    from bireme.host.jax_door import jax

    lax = jax().lax
    shape = _bitcast_shape(x, dtype)
    ratio = dtype.itemsize // x.dtype.itemsize
    if ratio > 1:
        x = xp.reshape(x, (*shape, ratio))
    return xp.reshape(lax.bitcast_convert_type(x, dtype.numpy), shape)


def _bitcast_shape(x: Any, dtype: Any) -> tuple[Any, ...]:
    have, want = x.dtype.itemsize, dtype.itemsize
    return x.shape if have == want else (*x.shape[:-1], x.shape[-1] * have // want)


def _bitcast_write(base: Tensor, view: Tensor, dtype: Any) -> Tensor:
    return _bitcast(view, base.dtype)


_BITCAST = Step(
    _bitcast, _bitcast_write, lambda array, dtype: array.view(dtype.numpy), in_order=True
)


def flattened(shape: tuple[Any, ...], start_axis: int, stop_axis: int) -> tuple[Any, ...]:
    """The shape with dimensions `start_axis` to `stop_axis` joined into one."""
    ndim = len(shape)
    if ndim == 0:
        return (1,)
    start = axis_in(start_axis, ndim, "flatten", "start_axis")
    stop = axis_in(stop_axis, ndim, "flatten", "stop_axis")
    if start > stop:
        raise InvalidArgument(
            f"[flatten] start_axis must not come after stop_axis. Received: {start_axis} and "
            f"{stop_axis}"
        )
    return (*shape[:start], math.prod(shape[start : stop + 1]), *shape[stop + 1 :])


@public(also={"input": "x", "end_dim": "stop_axis", "start_dim": "start_axis"})
def flatten(x: Tensor, start_axis: int = 0, stop_axis: int = -1, name: str | None = None) -> Tensor:
    """Dimensions `start_axis` to `stop_axis` joined into one."""
    return reshape(x, flattened(x._value.aval.shape, start_axis, stop_axis))


@public
def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension."""
    return reshape(input, (-1,))


@public(also={"input": "x", "dim": "axis", "sizes": "shape"})
def unflatten(x: Tensor, axis: int, shape: Shape, name: str | None = None) -> Tensor:
    """Dimension `axis` split into the dimensions `shape`, one of which may be -1."""
    have = x._value.aval.shape
    at = dimension_in(axis, len(have), "unflatten")
    parts = resolve_shape((have[at],), ints(shape))
    return reshape(x, (*have[:at], *parts, *have[at + 1 :]))


# --- squeeze and unsqueeze --------------------------------------------------------------------


def _squeezed(shape: tuple[Any, ...], axis: Any) -> tuple[Any, ...]:
    ndim = len(shape)
    if axis is None:
        drop = {i for i, d in enumerate(shape) if type(d) is int and d == 1}
    else:
        named = [axis_in(a, ndim, "squeeze") for a in (axis if type(axis) is tuple else (axis,))]
        drop = {i for i in named if ndim and type(shape[i]) is int and shape[i] == 1}
    return tuple([d for i, d in enumerate(shape) if i not in drop])


def _squeeze_infer(x: Aval, axis: Any) -> Aval:
    return aval(_squeezed(x.shape, axis), x.dtype)


@op(name="squeeze", infer=_squeeze_infer, vjp=_reshape_vjp, exact=True)
def _squeeze(xp, x, axis=None):
    """Without dimensions of size 1."""
    return xp.reshape(x, _squeezed(x.shape, axis))


SQUEEZE = Step(
    _squeeze,
    _reshape_write,
    lambda array, axis: array.reshape(_squeezed(array.shape, axis)),
    in_order=True,
)


@public(also={"input": "x", "dim": "axis"})
def squeeze(x: Tensor, axis: Ints | None = None, name: str | None = None) -> Tensor:
    """Without the dimensions of size 1 named by `axis` (all of them by default).

    A named dimension of another size stays.
    """
    if axis is not None and axis.__class__ is not int:
        axis = ints(axis, "axis")
    return as_view(_squeeze(x, axis), x, SQUEEZE, (axis,))


def _unsqueezed(shape: tuple[Any, ...], axis: Any) -> tuple[Any, ...]:
    made = list(shape)
    for a in axis if type(axis) is tuple else (axis,):
        made.insert(axis_in(a, len(made) + 1, "unsqueeze"), 1)
    return tuple(made)


def _unsqueeze_infer(x: Aval, axis: Any) -> Aval:
    return aval(_unsqueezed(x.shape, axis), x.dtype)


@op(name="unsqueeze", infer=_unsqueeze_infer, vjp=_reshape_vjp, exact=True)
def _unsqueeze(xp, x, axis=0):
    """With new dimensions of size 1."""
    return xp.reshape(x, _unsqueezed(x.shape, axis))


UNSQUEEZE = Step(
    _unsqueeze,
    _reshape_write,
    lambda array, axis: array.reshape(_unsqueezed(array.shape, axis)),
    in_order=True,
)


@public(also={"input": "x", "dim": "axis"})
def unsqueeze(x: Tensor, axis: Ints, name: str | None = None) -> Tensor:
    """With a new dimension of size 1 at each place that `axis` names, one after the other."""
    if axis.__class__ is not int:
        axis = ints(axis, "axis")
    return as_view(_unsqueeze(x, axis), x, UNSQUEEZE, (axis,))


# --- transpose --------------------------------------------------------------------------------


def _permutation(ndim: int, perm: tuple[int, ...]) -> tuple[int, ...]:
    order = [axis_in(p, ndim, "transpose", "perm") for p in perm]
    if len(set(order)) != len(order):
        raise InvalidArgument("perm must name each dimension once")
    # As in Paddle, a short perm orders the leading dimensions and the others stay.
    return (*order, *range(len(order), ndim))


def _transpose_infer(x: Aval, perm: tuple[int, ...]) -> Aval:
    if len(perm) > x.ndim:
        raise ShapeMismatch(f"perm has {len(perm)} entries for a tensor of {x.ndim} dimensions")
    order = _permutation(x.ndim, perm)
    if len(set(order)) != len(order):
        raise InvalidArgument("perm must name each dimension once")
    return aval(tuple([x.shape[p] for p in order]), x.dtype)


def _inverse(ndim: int, perm: tuple[int, ...]) -> tuple[int, ...]:
    back = [0] * ndim
    for i, p in enumerate(_permutation(ndim, perm)):
        back[p] = i
    return tuple(back)


def _transpose_vjp(xp: Any, grad: Any, perm: Any) -> tuple[Any]:
    return (xp.transpose(grad, _inverse(grad.ndim, perm)),)


@op(name="transpose", infer=_transpose_infer, vjp=_transpose_vjp, exact=True)
def _transpose(xp, x, perm=()):
    """Dimensions in another order."""
    return xp.transpose(x, _permutation(x.ndim, perm))


def _transpose_write(base: Tensor, view: Tensor, perm: tuple[int, ...]) -> Tensor:
    return _transpose(view, _inverse(len(view._value.aval.shape), perm))


def _transposed(array: np.ndarray, perm: tuple[int, ...]) -> np.ndarray:
    return array.transpose(_permutation(array.ndim, perm))


TRANSPOSE = Step(_transpose, _transpose_write, _transposed)


@public(also={"input": "x"})
def transpose(
    x: Tensor, perm: Axis | None = None, *more: int, name: str | None = None, **swapped: int
) -> Tensor:
    """Dimensions in the order `perm`; two numbers instead of a list swap two dimensions, also as
    `dim0` and `dim1`, or `axis0` and `axis1`."""
    order: Any = perm
    if order.__class__ is not tuple:
        if order is None or swapped:
            order = _swap(x.ndim, *_named_pair(order, more, swapped))
        elif order.__class__ is int:
            order = (order, *more) if len(more) != 1 else _swap(x.ndim, order, more[0])
        else:
            order = tuple(order) if order.__class__ is list else ints(order, "perm")
    return as_view(_transpose(x, order), x, TRANSPOSE, (order,))


def _named_pair(perm: Any, more: tuple[int, ...], named: dict[str, int]) -> tuple[int, int]:
    """The two dimensions of transpose(x, dim0=0, dim1=1); the first may go by position."""
    given = {name.replace("axis", "dim"): d for name, d in named.items()}
    if perm is not None:
        given["dim0"] = perm
    if given.keys() == {"dim0", "dim1"} and not more:
        return given["dim0"], given["dim1"]
    raise TypeMismatch(
        "[transpose] takes the new order of the dimensions, as in transpose(x, [1, 0]), or two to "
        f"swap, as dim0 and dim1. Received: perm={perm}, {named or 'nothing else'}"
    )


def _swap(ndim: int, first: int, second: int) -> tuple[int, ...]:
    a, b = (dimension_in(d, ndim, "transpose") for d in (first, second))
    order = list(range(ndim))
    order[a], order[b] = order[b], order[a]
    return tuple(order)


swapaxes = another_name("swapaxes", transpose)
swapdims = another_name("swapdims", transpose)


@public(spread=1)
def permute(input: Tensor, dims: Axis) -> Tensor:
    """Dimensions in the order `dims`, given as one list or one by one."""
    return transpose(input, ints(dims, "dims"))


@public
def t(input: Tensor, name: str | None = None) -> Tensor:
    """A matrix transposed; tensors of fewer dimensions as they are."""
    ndim = input._value.aval.ndim
    if ndim > 2:
        raise InvalidArgument(
            f"[t] takes tensors of at most 2 dimensions. Received: shape {input.shape}; use "
            "transpose() or matrix_transpose()"
        )
    return transpose(input, (1, 0) if ndim == 2 else tuple(range(ndim)))


@public(spaces=("paddle", "paddle.linalg"))
def matrix_transpose(x: Tensor, name: str | None = None) -> Tensor:
    """The last two dimensions exchanged."""
    ndim = x._value.aval.ndim
    if ndim < 2:
        raise InvalidArgument(
            f"[matrix_transpose] takes tensors of 2 or more dimensions. Received: shape {x.shape}"
        )
    return transpose(x, (*range(ndim - 2), ndim - 1, ndim - 2))


@public
def moveaxis(x: Tensor, source: Axis, destination: Axis, name: str | None = None) -> Tensor:
    """Dimensions `source` moved to the places `destination`; the others keep their order."""
    ndim = x._value.aval.ndim
    from_axes = axes_in(source, ndim, "moveaxis", "source")
    to_axes = axes_in(destination, ndim, "moveaxis", "destination")
    if len(from_axes) != len(to_axes):
        raise InvalidArgument(
            f"[moveaxis] source and destination must have the same length. Received: {source!r} "
            f"and {destination!r}"
        )
    order = [i for i in range(ndim) if i not in from_axes]
    for to, at in sorted(zip(to_axes, from_axes, strict=True)):
        order.insert(to, at)
    return transpose(x, tuple(order))


# --- expand and tile --------------------------------------------------------------------------


def _expanded(have: tuple[Any, ...], want: tuple[Any, ...]) -> tuple[Any, ...]:
    extra = len(want) - len(have)
    if extra < 0:
        raise ShapeMismatch(
            f"the new shape {list(want)} has fewer dimensions than the tensor's {list(have)}"
        )
    shape = list(want)
    for i, d in enumerate(want):
        if type(d) is int and d == -1:
            if i < extra:
                raise ShapeMismatch("a -1 in the new shape needs a dimension to keep")
            shape[i] = have[i - extra]
    for i, d in enumerate(have):
        if type(d) is int and d != 1 and type(shape[i + extra]) is not int:
            shape[i + extra] = d  # a size that a run reads can be no other
        if not (d is shape[i + extra] or d == shape[i + extra] or (type(d) is int and d == 1)):
            raise ShapeMismatch(
                f"dimension {i} of the tensor is {d} and would become {shape[i + extra]}; only "
                "dimensions of size 1 can be expanded"
            )
    return tuple(shape)


def _expand_infer(x: Aval, shape: tuple[Any, ...]) -> Aval:
    return aval(_expanded(x.shape, shape), x.dtype)


def _as_it_is(xp: Any, grad: Any) -> tuple[Any]:
    return (grad,)  # the engine sums a gradient over what was broadcast


@op(name="expand", infer=_expand_infer, vjp=_as_it_is, exact=True)
def _expand(xp, x, shape=()):
    """Dimensions of size 1 repeated."""
    return xp.broadcast_to(x, _expanded(x.shape, shape))


def _expand_like_infer(x: Aval, y: Aval) -> Aval:
    extra = y.ndim - x.ndim
    pairs = zip(x.shape, y.shape[max(extra, 0) :], strict=False)
    known = [(a, b) for a, b in pairs if type(a) is int and type(b) is int]
    if extra < 0 or any(a not in (1, b) for a, b in known):
        raise ShapeMismatch(
            f"a tensor of shape {list(x.shape)} cannot take the shape {list(y.shape)}; only "
            "dimensions of size 1 can be expanded"
        )
    return aval(y.shape, x.dtype)


@op(name="expand_as", infer=_expand_like_infer, vjp=lambda xp, grad: (grad, None), exact=True)
def _expand_like(xp, x, y):
    """Dimensions of size 1 repeated until `x` has the shape of `y`."""
    return xp.broadcast_to(x, y.shape)


@public(also={"input": "x", "size": "shape"})
def expand(x: Tensor, shape: Shape, *more: int, name: str | None = None) -> Tensor:
    """Dimensions of size 1 repeated until `x` has `shape`; -1 keeps a dimension."""
    if shape.__class__ is not tuple:
        shape = tuple(shape) if isinstance(shape, list) else (*ints(shape), *more)
    return _expand(x, shape)


@public(also={"input": "x", "size": "shape"})
def broadcast_to(x: Tensor, shape: Shape, name: str | None = None) -> Tensor:
    """`x` repeated along dimensions of size 1 until it has `shape`."""
    return expand(x, shape)


@public(also={"input": "x"})
def expand_as(
    x: Tensor, y: Tensor | None = None, name: str | None = None, *, other: Tensor | None = None
) -> Tensor:
    """`x` expanded to the shape of `y`."""
    if other is not None:
        y = second_name("expand_as", "y", y, "other", other)
    if y is None:
        raise not_a_tensor("expand_as", "y", y)
    if y._value.aval.is_static:
        return _expand(x, y._value.aval.shape)
    return _expand_like(x, y)


@public(method=True)
def broadcast_shape(x_shape: Sequence[int], y_shape: Sequence[int]) -> list[int]:
    """The shape of an elementwise result of two tensors of these shapes."""
    return list(common_shape(tuple(x_shape), tuple(y_shape)))


@public(method=True)
def broadcast_shapes(*shapes: Sequence[int]) -> list[int]:
    """The shape of an elementwise result of tensors of these shapes."""
    return list(common_shape(*[tuple(s) for s in shapes]))


@public(method=True)
def broadcast_tensors(input: Sequence[Tensor], name: str | None = None) -> list[Tensor]:
    """All tensors expanded to their common shape."""
    if not input:
        raise InvalidArgument("[broadcast_tensors] takes at least one tensor. Received: none")
    shape = common_shape(*[x._value.aval.shape for x in input])
    return [_expand(x, shape) for x in input]


def _tiled(shape: tuple[Any, ...], times: tuple[int, ...]) -> tuple[Any, ...]:
    extra = len(times) - len(shape)
    shape = (1,) * extra + shape
    times = (1,) * -extra + times
    return tuple([d * n for d, n in zip(shape, times, strict=True)])


def _tile_infer(x: Aval, repeat_times: tuple[int, ...]) -> Aval:
    if any(n < 0 for n in repeat_times):
        raise InvalidArgument("repeat_times must not be negative")
    return aval(_tiled(x.shape, repeat_times), x.dtype)


def _tile_vjp(xp: Any, grad: Any, types: Any, repeat_times: Any) -> tuple[Any]:
    shape = types[0].shape
    extra = len(repeat_times) - len(shape)
    shape = (1,) * extra + shape
    times = (1,) * -extra + repeat_times
    split = [d for pair in zip(times, shape, strict=True) for d in pair]
    summed = xp.sum(xp.reshape(grad, split), axis=tuple(range(0, len(split), 2)))
    return (xp.reshape(summed, types[0].shape),)


@op(name="tile", infer=_tile_infer, vjp=_tile_vjp, exact=True)
def _tile(xp, x, repeat_times=()):
    """The whole tensor repeated along its dimensions."""
    return xp.tile(x, repeat_times)


@public(also={"input": "x", "dims": "repeat_times"})
def tile(x: Tensor, repeat_times: Shape, name: str | None = None) -> Tensor:
    """`x` repeated `repeat_times` along each dimension, counted from the last."""
    return _tile(x, ints(repeat_times, "repeat_times"))


@method
def repeat(input: Tensor, repeats: Ints, *more: int) -> Tensor:
    """`input` repeated along each dimension: `x.repeat(2, 3)` or `x.repeat([2, 3])`."""
    return _tile(input, (*ints(repeats, "repeats"), *more))


def _at_least(inputs: tuple[Any, ...], before: Sequence[int], after: Sequence[int]) -> Any:
    """Each input with sizes of 1 before its own dimensions, by their number, and after them."""
    from bireme.ops.creation import to_tensor

    if (
        len(inputs) == 1
        and isinstance(inputs[0], list | tuple)
        and any(isinstance(i, Tensor) for i in inputs[0])
    ):
        inputs = tuple(inputs[0])
    made = []
    for x in inputs:
        x = x if isinstance(x, Tensor) else to_tensor(x)
        if x.ndim < len(before):
            shape = (*[1] * before[x.ndim], *x._value.aval.shape, *[1] * after[x.ndim])
            x = reshape(x, shape)
        made.append(x)
    return made[0] if len(made) == 1 else made


@public(method=True)
def atleast_1d(*inputs: Any, name: str | None = None) -> Any:
    """Each input with dimensions of size 1 added until it has 1."""
    return _at_least(inputs, (1,), (0,))


@public(method=True)
def atleast_2d(*inputs: Any, name: str | None = None) -> Any:
    """Each input with dimensions of size 1 added until it has 2."""
    return _at_least(inputs, (2, 1), (0, 0))


@public(method=True)
def atleast_3d(*inputs: Any, name: str | None = None) -> Any:
    """Each input with dimensions of size 1 added until it has 3."""
    return _at_least(inputs, (3, 1, 0), (0, 1, 1))
