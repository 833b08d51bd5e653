"""Joining tensors and taking them apart: concat, stack, split and their relatives."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from bireme.api.public import another_name, method, public
from bireme.api.types import IntOrTensor
from bireme.core.aval import Aval, aval
from bireme.core.dims import likeliest, may_be_equal
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.ops.axes import axis_in, dimension_in, ints, number
from bireme.ops.manipulation import atleast_1d, atleast_2d, atleast_3d, reshape
from bireme.ops.open_sizes import least, most


def _one_dtype(x: list[Aval]) -> None:
    for t in x:
        if t.dtype is not x[0].dtype:
            raise InvalidArgument(
                f"all tensors must have one dtype, but there are {x[0].dtype.name} and "
                f"{t.dtype.name}; cast them first with .astype()"
            )


def _concat_infer(x: list[Aval], axis: int) -> Aval:
    _one_dtype(x)
    first = x[0]
    if first.ndim == 0:
        raise ShapeMismatch("0-d tensors have no axis to be joined along; use stack()")
    at = axis_in(axis, first.ndim, "concat")
    total: Any = 0
    shape = first.shape
    for t in x:
        if t.ndim != first.ndim or any(
            not may_be_equal(a, b)
            for i, (a, b) in enumerate(zip(t.shape, shape, strict=True))
            if i != at
        ):
            raise ShapeMismatch(
                f"the tensors must have equal shapes except along axis {at}, but there are "
                f"{list(first.shape)} and {list(t.shape)}"
            )
        total = total + t.shape[at]
        shape = tuple(map(likeliest, shape, t.shape))
    return aval((*shape[:at], total, *shape[at + 1 :]), first.dtype)


def _part(xp: Any, x: Any, axis: int, start: Any, stop: Any) -> Any:
    return x[(slice(None),) * axis + (slice(start, stop),)]


def _concat_vjp(xp: Any, grad: Any, types: Any, axis: int) -> tuple[list[Any]]:
    at = axis if axis >= 0 else axis + grad.ndim
    parts, start = [], 0
    for t in types[0]:
        stop = start + t.shape[at]
        parts.append(_part(xp, grad, at, start, stop))
        start = stop
    return (parts,)


@op(name="concat", inputs=("*x",), infer=_concat_infer, vjp=_concat_vjp, exact=True)
def _concat(xp, x, axis=0):
    """Tensors joined along an existing dimension."""
    return xp.concatenate(x, axis=axis)


@public(also={"tensors": "x", "dim": "axis"}, out=True, method=True)
def concat(x: Sequence[Tensor], axis: IntOrTensor = 0, name: str | None = None) -> Tensor:
    """The tensors of the list `x` joined along dimension `axis`."""
    if x.__class__ is not list and x.__class__ is not tuple:
        raise _not_a_list("concat", x)
    if not x:
        raise InvalidArgument("[concat] x must hold at least one tensor, but got empty list")
    return _concat(x, axis if axis.__class__ is int else number(axis))


cat = another_name("cat", concat, method=False)
concatenate = another_name("concatenate", concat, method=False)


def _stack_infer(x: list[Aval], axis: int) -> Aval:
    _one_dtype(x)
    first = x[0]
    for t in x:
        if t.shape != first.shape:
            raise ShapeMismatch(
                f"the tensors must have equal shapes, but there are {list(first.shape)} and "
                f"{list(t.shape)}"
            )
    at = axis_in(axis, first.ndim + 1, "stack")
    return aval((*first.shape[:at], len(x), *first.shape[at:]), first.dtype)


def _stack_vjp(xp: Any, grad: Any, types: Any, axis: int) -> tuple[list[Any]]:
    at = axis if axis >= 0 else axis + grad.ndim
    return ([grad[(slice(None),) * at + (i,)] for i in range(len(types[0]))],)


@op(name="stack", inputs=("*x",), infer=_stack_infer, vjp=_stack_vjp, exact=True)
def _stack(xp, x, axis=0):
    """Tensors of one shape along a new dimension."""
    return xp.stack(x, axis=axis)


@public(also={"tensors": "x", "dim": "axis"}, out=True, method=True)
def stack(x: Sequence[Tensor], axis: IntOrTensor = 0, name: str | None = None) -> Tensor:
    """The tensors of the list `x`, all of one shape, along a new dimension `axis`."""
    if x.__class__ is not list and x.__class__ is not tuple:
        raise _not_a_list("stack", x)
    if not x:
        raise InvalidArgument("[stack] x must hold at least one tensor, but got empty list")
    return _stack(x, axis if axis.__class__ is int else number(axis))


def _not_a_list(name: str, x: Any) -> TypeMismatch:
    return TypeMismatch(
        f"[{name}] argument 'x' must be a list or tuple of tensors. Received: {type(x).__name__}; "
        "put the tensors into a list"
    )


# --- taking apart -----------------------------------------------------------------------------


def _split_infer(x: Aval, sections: tuple[Any, ...], axis: int) -> tuple[Aval, ...]:
    at = axis if axis >= 0 else axis + x.ndim
    return tuple([aval((*x.shape[:at], s, *x.shape[at + 1 :]), x.dtype) for s in sections])


def _split_vjp(xp: Any, grad: Any, axis: int) -> tuple[Any]:
    return (xp.concatenate(grad, axis=axis),)


@op(name="split", infer=_split_infer, vjp=_split_vjp, exact=True)
def _split(xp, x, sections=(), axis=0):
    """Consecutive parts along a dimension."""
    parts, start = [], 0
    at = axis if axis >= 0 else axis + x.ndim
    for size in sections:
        parts.append(_part(xp, x, at, start, start + size))
        start = start + size
    return parts


@public
def split(
    x: Tensor,
    num_or_sections: int | Sequence[int | Tensor],
    axis: IntOrTensor = 0,
    name: str | None = None,
) -> list[Tensor]:
    """`x` in parts along `axis`: that many equal ones, or parts of the given sizes (one -1)."""
    shape = x._value.aval.shape
    at = dimension_in(axis, len(shape), "split")
    size = shape[at]
    if type(num_or_sections) is int:
        count = num_or_sections
        if count <= 0 or (type(size) is int and size % count):
            raise InvalidArgument(
                f"[split] dimension {at} of size {size} cannot be cut into {count} equal parts; "
                "give the sizes in a list, or use tensor_split()"
            )
        sections: tuple[Any, ...] = (size // count,) * count
    else:
        sections = _sections(ints(num_or_sections, "num_or_sections"), size, at)
    return _split(x, sections, at)


def _sections(sections: tuple[Any, ...], size: Any, axis: int) -> tuple[Any, ...]:
    unknown = [i for i, s in enumerate(sections) if type(s) is int and s == -1]
    total: Any = sum(s for s in sections if not (type(s) is int and s == -1))
    fits = len(unknown) < 2 and all(type(s) is not int or s >= -1 for s in sections)
    if fits and unknown and (type(size) is not int or total <= size):
        filled = list(sections)
        filled[unknown[0]] = size - total
        return tuple(filled)
    if not fits or unknown or total != size:
        raise InvalidArgument(
            f"[split] the sections must add up to {size}, the size of dimension {axis}, and one "
            f"of them may be -1. Received: {list(sections)}"
        )
    return sections


@method
def split_with_sizes(self: Tensor, split_sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    """Parts of the given sizes along `dim`."""
    if not isinstance(split_sizes, list | tuple):
        raise TypeMismatch(
            "[split_with_sizes] takes a list of sizes; split(x, n) makes n equal parts. Received: "
            f"split_sizes={split_sizes!r}"
        )
    return split(self, tuple(split_sizes), dim)


@public(also={"input": "x", "dim": "axis"})
def chunk(x: Tensor, chunks: int, axis: IntOrTensor = 0, name: str | None = None) -> list[Tensor]:
    """`x` in `chunks` equal parts along `axis`."""
    return split(x, number(chunks, "chunks"), axis)


@public
def unstack(x: Tensor, axis: int = 0, num: int | None = None) -> list[Tensor]:
    """The slices of `x` along `axis`, each without that dimension."""
    shape = x._value.aval.shape
    at = dimension_in(axis, len(shape), "unstack")
    if num is not None and num != shape[at]:
        raise InvalidArgument(
            f"[unstack] num must be {shape[at]}, the size of dimension {at}. Received: {num}"
        )
    return unstack_at(x, at)


def _unstack_infer(x: Aval, axis: int) -> tuple[Aval, ...]:
    return (aval((*x.shape[:axis], *x.shape[axis + 1 :]), x.dtype),) * x.shape[axis]


@op(
    name="unstack",
    infer=_unstack_infer,
    vjp=lambda xp, grad, axis: (xp.stack(grad, axis),),
    exact=True,
)
def unstack_at(xp, x, axis=0):
    """Slices along a dimension."""
    return [x[(slice(None),) * axis + (i,)] for i in range(x.shape[axis])]


@public(
    also={
        "input": "x",
        "dim": "axis",
        "indices": "num_or_indices",
        "indices_or_sections": "num_or_indices",
        "sections": "num_or_indices",
    }
)
def tensor_split(
    x: Tensor, num_or_indices: int | Sequence[int], axis: IntOrTensor = 0, name: str | None = None
) -> list[Tensor]:
    """`x` cut along `axis` into nearly equal parts, or before each of the given positions."""
    shape = x._value.aval.shape
    if not shape:
        raise InvalidArgument("[tensor_split] a 0-d tensor cannot be split")
    at = axis_in(axis, len(shape), "tensor_split")
    size = shape[at]
    if type(num_or_indices) is int:
        if num_or_indices <= 0:
            raise InvalidArgument(
                f"[tensor_split] the number of parts must be positive. Received: {num_or_indices}"
            )
        if type(size) is not int:
            raise InvalidArgument(
                f"[tensor_split] dimension {at} is open and cannot be cut into a number of parts; "
                "give positions"
            )
        base, extra = divmod(size, num_or_indices)
        sections = (base + 1,) * extra + (base,) * (num_or_indices - extra)
        return _split(x, sections, at)
    places = ints(num_or_indices, "indices")
    cuts = [least(most(i + size if i < 0 else i, 0), size) for i in places]
    bounds = [0, *cuts, size]
    from bireme.ops.slicing import slice_along

    return [slice_along(x, at, a, most(a, b)) for a, b in pairwise(bounds)]


@public
def hsplit(x: Tensor, num_or_indices: int | Sequence[int], name: str | None = None) -> list[Tensor]:
    """Parts side by side: along dimension 1, or 0 for a 1-d tensor."""
    _need_rank("hsplit", x, 1)
    return tensor_split(x, num_or_indices, 0 if x.ndim == 1 else 1)


@public
def vsplit(x: Tensor, num_or_indices: int | Sequence[int], name: str | None = None) -> list[Tensor]:
    """Parts one below the other: along dimension 0."""
    _need_rank("vsplit", x, 2)
    return tensor_split(x, num_or_indices, 0)


@public
def dsplit(x: Tensor, num_or_indices: int | Sequence[int], name: str | None = None) -> list[Tensor]:
    """Parts along dimension 2."""
    _need_rank("dsplit", x, 3)
    return tensor_split(x, num_or_indices, 2)


def _need_rank(name: str, x: Tensor, rank: int) -> None:
    if x.ndim < rank:
        raise InvalidArgument(
            f"[{name}] takes a tensor of {rank} or more dimensions. Received: shape {x.shape}"
        )


# --- joining in NumPy's named directions --------------------------------------------------------


def _as_list(x: Any) -> list[Any]:
    return x if isinstance(x, list) else [x]


@public
def hstack(x: Sequence[Tensor], name: str | None = None) -> Tensor:
    """Tensors side by side: along dimension 1, or 0 if they have one dimension."""
    parts = _as_list(atleast_1d(*x))
    return concat(parts, 0 if parts[0].ndim == 1 else 1)


@public
def vstack(x: Sequence[Tensor], name: str | None = None) -> Tensor:
    """Tensors one below the other, along dimension 0; 1-d tensors count as rows."""
    return concat(_as_list(atleast_2d(*x)), 0)


row_stack = another_name("row_stack", vstack)


@public
def dstack(x: Sequence[Tensor], name: str | None = None) -> Tensor:
    """Tensors behind each other, along dimension 2."""
    return concat(_as_list(atleast_3d(*x)), 2)


@public
def column_stack(x: Sequence[Tensor], name: str | None = None) -> Tensor:
    """Tensors side by side; 0-d and 1-d tensors count as columns."""
    return hstack([reshape(t, (-1, 1)) if t.ndim < 2 else t for t in x])


def _block_diag_vjp(xp: Any, grad: Any, types: Any) -> tuple[list[Any]]:
    parts, row, column = [], 0, 0
    for t in types[0]:
        h, w = _block_shape(t.shape)
        parts.append(grad[row : row + h, column : column + w].reshape(t.shape))
        row, column = row + h, column + w
    return (parts,)


def _block_shape(shape: tuple[Any, ...]) -> tuple[Any, Any]:
    return (1, 1) if not shape else (1, shape[0]) if len(shape) == 1 else (shape[0], shape[1])


def _block_diag_check(inputs: list[Aval]) -> None:
    _one_dtype(inputs)
    if any(t.ndim > 2 for t in inputs):
        raise ShapeMismatch("every block must have at most 2 dimensions")


@op(name="block_diag", inputs=("*inputs",), check=_block_diag_check, vjp=_block_diag_vjp)
def _block_diag(xp, inputs):
    """Matrices along the diagonal of a matrix of zeros."""
    blocks = [xp.reshape(b, _block_shape(b.shape)) for b in inputs]
    width = sum(b.shape[1] for b in blocks)
    rows, left = [], 0
    for b in blocks:
        rows.append(xp.pad(b, ((0, 0), (left, width - left - b.shape[1]))))
        left = left + b.shape[1]
    return xp.concatenate(rows, axis=0)


@public(method=True)
def block_diag(inputs: Sequence[Tensor], name: str | None = None) -> Tensor:
    """A matrix with the given matrices along its diagonal and zeros elsewhere."""
    if not isinstance(inputs, list | tuple):
        raise _not_a_list("block_diag", inputs)
    return _block_diag(inputs)
