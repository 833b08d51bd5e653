"""Taking and putting elements by position."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import bireme as paddle
from bireme.convert.torch.aten import aten
from bireme.convert.torch.aten.types import Number, Operand, cast, tensor
from bireme.convert.torch.program import TorchFileError
from bireme.core.tensor import Tensor
from bireme.nn import functional as F


def from_start(index: Tensor, size: int) -> Tensor:
    """Positions, with negative ones counted from the end."""
    index = cast(index, "int64")
    return paddle.where(index < 0, index + tensor(size, index.dtype), index)


def _spot(x: Tensor, indices: Sequence[Tensor | None]) -> tuple[Tensor | slice, ...]:
    found: list[Tensor | slice] = []
    for i in indices:
        if i is None:
            found.append(slice(None))
        elif i.dtype.name in ("bool", "uint8"):
            found.append(cast(i, "bool"))
        else:
            found.append(from_start(i, x.shape[_dimension(found)]))
    return tuple(found)


def _dimension(before: Sequence[Tensor | slice]) -> int:
    """The dimension that the next index is for: masks take several."""
    return sum([i.ndim if isinstance(i, Tensor) and i.dtype.name == "bool" else 1 for i in before])


@aten("index", "_unsafe_index")
def index(self: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    return self[_spot(self, indices)]


@aten("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(
    self: Tensor,
    indices: Sequence[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Tensor:
    if accumulate:
        if any(i is None for i in indices):
            raise TorchFileError("index_put that adds along whole dimensions has no rule")
        spot = [from_start(i, self.shape[n]) for n, i in enumerate(indices) if i is not None]
        return paddle.index_put(self, tuple(spot), values, True)
    made = paddle.assign(self)
    made[_spot(self, indices)] = cast(values, self.dtype)
    return made


@aten("index_select")
def index_select(self: Tensor, dim: int, index: Tensor) -> Tensor:
    if not self.ndim:
        return self
    return paddle.index_select(self, from_start(index, self.shape[dim]).reshape([-1]), dim)


@aten("index_add")
def index_add(self: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Number = 1) -> Tensor:
    added = source if alpha == 1 else source * alpha
    added = added if self.ndim else added.reshape([-1])
    return _with_rows(lambda x: paddle.index_add(x, index.reshape([-1]), dim, added), self)


@aten("index_fill")
def index_fill(self: Tensor, dim: int, index: Tensor, value: Number) -> Tensor:
    return _with_rows(lambda x: paddle.index_fill(x, index.reshape([-1]), dim, value), self)


@aten("index_copy")
def index_copy(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    def put(x: Tensor) -> Tensor:
        made = paddle.assign(x)
        spot = from_start(index.reshape([-1]), x.shape[dim])
        made[(*[slice(None)] * (dim % x.ndim), spot)] = source
        return made

    return _with_rows(put, self)


def _with_rows(change: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A tensor without dimensions is a row of one for PyTorch's functions of rows."""
    return change(x) if x.ndim else change(x.reshape([1])).reshape([])


@aten("gather")
def gather(self: Tensor, dim: int, index: Tensor, sparse_grad: bool = False) -> Tensor:
    if not self.ndim or not index.ndim:
        rows, spots = self.reshape([-1]), index.reshape([-1])
        return paddle.take_along_axis(rows, spots, 0, broadcast=False).reshape(index.shape)
    return paddle.take_along_axis(self, index, dim, broadcast=False)


@aten("take")
def take(self: Tensor, index: Tensor) -> Tensor:
    return paddle.take(self, index)


@aten("take_along_dim")
def take_along_dim(self: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    if dim is None:
        return paddle.take_along_axis(self.reshape([-1]), indices.reshape([-1]), 0)
    return paddle.take_along_axis(self, indices, dim)


@aten("scatter")
def scatter(
    self: Tensor,
    dim: int,
    index: Tensor,
    src: Operand | None = None,
    value: Number | None = None,
    reduce: str | None = None,
) -> Tensor:
    given = src if value is None else value
    values = _fitting(tensor(given, self.dtype), index)  # type: ignore[arg-type]
    kinds = {None: "assign", "add": "add", "multiply": "mul"}
    return paddle.put_along_axis(self, index, values, dim, kinds[reduce], broadcast=False)


@aten("scatter_add")
def scatter_add(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    return paddle.put_along_axis(self, index, _fitting(src, index), dim, "add", broadcast=False)


@aten("scatter_reduce")
def scatter_reduce(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool = True
) -> Tensor:
    kind = {"sum": "add", "prod": "mul", "mean": "mean", "amax": "amax", "amin": "amin"}[reduce]
    return paddle.put_along_axis(
        self, index, _fitting(src, index), dim, kind, include_self, broadcast=False
    )


def _fitting(values: Tensor, index: Tensor) -> Tensor:
    """The part of the values that has the positions' shape."""
    if not values.ndim:
        return paddle.broadcast_to(values, index.shape)
    return values[tuple([slice(0, n) for n in index.shape])]


@aten("masked_fill")
def masked_fill(self: Tensor, mask: Tensor, value: Operand) -> Tensor:
    return paddle.where(cast(mask, "bool"), tensor(value, self.dtype), self)


@aten("masked_select")
def masked_select(self: Tensor, mask: Tensor) -> Tensor:
    self, mask = paddle.broadcast_tensors([self, mask])
    return paddle.masked_select(self, mask)


@aten("masked_scatter")
def masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    return paddle.masked_scatter(self, mask, source)


@aten("slice_scatter")
def slice_scatter(
    self: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    made = paddle.assign(self)
    end = None if isinstance(end, int) and end >= 2**62 else end
    made[(*[slice(None)] * (dim % self.ndim), slice(start, end, step))] = src
    return made


@aten("select_scatter")
def select_scatter(self: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    made = paddle.assign(self)
    made[(*[slice(None)] * (dim % self.ndim), index)] = src
    return made


@aten("embedding")
def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    made = F.embedding(indices, weight)
    if padding_idx < 0 or weight.stop_gradient:
        return made
    # The row of padding gets no gradient, but unlike Paddle's it is not zero.
    return paddle.where((indices == padding_idx).unsqueeze(-1), made.detach(), made)


@aten("one_hot")
def one_hot(self: Tensor, num_classes: int = -1) -> Tensor:
    if num_classes < 0:
        raise TorchFileError("one_hot without a number of classes has no rule")
    return cast(F.one_hot(self, num_classes), "int64")


@aten("topk")
def topk(
    self: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> list[Tensor]:
    return list(paddle.topk(self, k, dim, largest))


@aten("sort")
def sort(
    self: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> list[Tensor]:
    places = paddle.argsort(self, dim, descending, True)
    return [paddle.take_along_axis(self, places, dim), places]


@aten("msort")
def msort(self: Tensor) -> Tensor:
    return paddle.sort(self, 0)


@aten("argsort")
def argsort(
    self: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> Tensor:
    return paddle.argsort(self, dim, descending, True)


@aten("nonzero")
def nonzero(self: Tensor) -> Tensor:
    return paddle.nonzero(self)


@aten("searchsorted")
def searchsorted(
    sorted_sequence: Tensor,
    self: Tensor,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    if sorter is not None:
        raise TorchFileError("searchsorted with a sorter has no rule")
    return paddle.searchsorted(sorted_sequence, self, out_int32, right or side == "right")


@aten("bucketize")
def bucketize(
    self: Tensor, boundaries: Tensor, out_int32: bool = False, right: bool = False
) -> Tensor:
    return paddle.searchsorted(boundaries, self, out_int32, right)


@aten("isin")
def isin(
    elements: Tensor, test_elements: Tensor, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    return paddle.isin(elements, test_elements, invert=invert)
