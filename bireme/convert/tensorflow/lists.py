"""TensorFlow's lists of tensors, and its arrays of tensors: one tensor whose rows are the items."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import bireme as paddle
from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.imported import View, check_size, to_value
from bireme.convert.nhwc import sizes_of
from bireme.convert.program import Size
from bireme.convert.tensorflow.arrays import dtype_of
from bireme.convert.tensorflow.rules import rule
from bireme.core.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Items:
    """A list. Until something is put into one whose items have an unknown shape, there are no
    rows; `count` may be an open size."""

    count: Size
    kind: str
    shape: tuple[Size, ...] | None
    rows: Tensor | None = None

    def filled(self) -> Tensor:
        """The rows; items that nobody set are zeros."""
        if self.rows is not None:
            return self.rows
        if self.shape is None or any(d is None for d in self.shape):
            raise UnsupportedModel("a list whose items have an unknown shape is read")
        return zeros(self.count, self.shape, self.kind)

    def like(self, item: Tensor) -> Items:
        """A list that holds items such as this one."""
        if self.rows is not None:
            return self
        return replace(self, rows=zeros(self.count, tuple(item.shape), item.dtype.name))


Held = Items | Tensor | np.ndarray  # what a node may be given


def tensor_of(held: Held) -> Tensor:
    if isinstance(held, Items):
        raise ModelFileError("a list is no tensor")
    return to_value(held)


def zeros(count: Any, shape: tuple[Any, ...], kind: str) -> Tensor:
    check_size([count, *shape])
    return paddle.zeros([count, *shape], kind)


def _items(value: Held) -> Items:
    if not isinstance(value, Items):
        raise ModelFileError("this is no list of tensors")
    return value


def _shape(known: Held) -> tuple[Any, ...] | None:
    """The shape of items: -1 alone is unknown, -1 among others is an open size."""
    value = known.numpy() if isinstance(known, Tensor) else np.asarray(known)
    if value.ndim == 0:
        return None
    return tuple([None if type(d) is int and d < 0 else d for d in sizes_of(value)])


def _count(value: Held) -> Any:
    made = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    (count,) = sizes_of(made)
    if type(count) is int and not 0 <= count <= 1 << 24:
        raise ModelFileError(f"a list cannot have {count} items")
    return count


def _kind(n: View, attr: str) -> str:
    kind = n.attr(attr, "float32")
    if kind == "variant":
        raise UnsupportedModel("lists of lists have no rule")
    return dtype_of(kind).name


def _index(value: Held) -> Tensor:
    return tensor_of(value).reshape([1]).astype("int64")


def _taken(items: Items, index: Held) -> Tensor:
    return paddle.squeeze(paddle.index_select(items.filled(), _index(index), 0), 0)


def _put(items: Items, index: Held, item: Tensor) -> Items:
    items = items.like(item)
    rows = items.filled()
    return replace(items, rows=paddle.scatter(rows, _index(index), item.unsqueeze(0)))


# --- lists ----------------------------------------------------------------------------------


@rule("TensorListReserve", as_is=True)
def reserve(n: View, shape: Held, count: Any) -> Items:
    return Items(_count(count), _kind(n, "element_dtype"), _shape(shape))


@rule("EmptyTensorList", as_is=True)
def empty(n: View, shape: Held, most: Held) -> Items:
    return Items(0, _kind(n, "element_dtype"), _shape(shape))


@rule("TensorListFromTensor", as_is=True)
def from_tensor(n: View, rows: Held, shape: Held) -> Items:
    rows = tensor_of(rows)
    return Items(rows.shape[0], rows.dtype.name, _shape(shape), rows)


@rule("TensorListStack", as_is=True)
def stack(n: View, items: Held, shape: Held) -> Tensor:
    items, wanted = _items(items), _shape(shape)
    if items.rows is None and wanted is not None and None not in wanted:
        return zeros(items.count, wanted, items.kind)
    return items.filled()


@rule("TensorListGetItem", as_is=True)
def get_item(n: View, items: Held, index: Held, shape: Held) -> Tensor:
    return _taken(_items(items), index)


@rule("TensorListSetItem", as_is=True)
def set_item(n: View, items: Held, index: Held, item: Held) -> Items:
    return _put(_items(items), index, tensor_of(item))


@rule("TensorListPushBack", as_is=True)
def push_back(n: View, items: Held, item: Held) -> Items:
    items, item = _items(items), tensor_of(item).unsqueeze(0)
    rows = item if items.rows is None else paddle.concat([items.rows, item], 0)
    return replace(items, count=items.count + 1, rows=rows)


@rule("TensorListPopBack", as_is=True)
def pop_back(n: View, items: Held, shape: Held) -> list[Held]:
    items = _items(items)
    last = _taken(items, np.asarray(items.count - 1))
    rows = items.filled()[: items.count - 1]
    return [replace(items, count=items.count - 1, rows=rows), last]


rule("TensorListLength", as_is=True)(lambda n, items: _length(_items(items)))


def _length(items: Items) -> np.ndarray:
    made = np.empty((), object)
    made[()] = items.count
    return np.array(items.count, np.int32) if type(items.count) is int else made


@rule("TensorListElementShape", as_is=True)
def element_shape(n: View, items: Held) -> np.ndarray:
    found = _items(items)
    shape = found.shape if found.rows is None else found.rows.shape[1:]
    if shape is None or not all(type(d) is int for d in shape):
        raise UnsupportedModel("the shape of a list's items is not known")
    return np.array(shape, n.attr("shape_type", "int32"))


@rule("TensorListConcatV2", "TensorListConcat", as_is=True)
def concat(n: View, items: Held, *others: Held) -> Tensor:
    rows = _items(items).filled()
    return rows.reshape([rows.shape[0] * rows.shape[1], *rows.shape[2:]])


@rule("TensorListGather", as_is=True)
def gather(n: View, items: Held, index: Held, shape: Held) -> Tensor:
    return paddle.index_select(_items(items).filled(), tensor_of(index), 0)


# --- arrays: what they hold travels with their `flow` ---------------------------------------


@rule("TensorArrayV3", as_is=True)
def array(n: View, count: Any) -> list[Items]:
    made = Items(_count(count), _kind(n, "dtype"), n.attr("element_shape"))
    return [made, made]


@rule("TensorArrayReadV3", as_is=True)
def array_read(n: View, handle: Held, index: Held, flow: Held) -> Tensor:
    return _taken(_items(flow), index)


@rule("TensorArrayWriteV3", as_is=True)
def array_write(n: View, handle: Held, index: Held, item: Held, flow: Held) -> Items:
    return _put(_items(flow), index, tensor_of(item))


@rule("TensorArrayScatterV3", as_is=True)
def array_scatter(n: View, handle: Held, index: Held, rows: Held, flow: Held) -> Items:
    items, rows = _items(flow), tensor_of(rows)
    if items.rows is None and _all(index, items.count):
        return replace(items, rows=rows)
    items = replace(items, rows=None).like(rows[0]) if items.rows is None else items
    return replace(items, rows=paddle.scatter(items.filled(), tensor_of(index), rows))


def _all(index: Held, count: Size) -> bool:
    if not isinstance(index, np.ndarray) or type(count) is not int:
        return False
    return np.array_equal(index, np.arange(count))


@rule("TensorArrayGatherV3", as_is=True)
def array_gather(n: View, handle: Held, index: Held, flow: Held) -> Tensor:
    items = _items(flow)
    if _all(index, items.count):
        return items.filled()
    return paddle.index_select(items.filled(), tensor_of(index), 0)


@rule("TensorArrayConcatV3", as_is=True)
def array_concat(n: View, handle: Held, flow: Held) -> Tensor:
    return concat(n, flow)


rule("TensorArraySizeV3", as_is=True)(lambda n, handle, flow: _length(_items(flow)))
