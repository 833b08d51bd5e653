"""Sums and extremes of rows that share a number: what sparse tensors and graphs are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core.aval import Aval, aval
from bireme.core.errors import ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.requirements import InRange
from bireme.core.tensor import Tensor
from bireme.ops.creation import ones
from bireme.ops.math import divide, maximum
from bireme.ops.math_unary import cast, trunc
from bireme.ops.nn_support import like, wide


def _check(data: Aval, ids: Aval, num: Any, **_: Any) -> None:
    if data.ndim < 1 or ids.ndim != 1 or data.shape[0] != ids.shape[0]:
        raise ShapeMismatch("the numbers must be a vector with one entry for each row of the data")
    if not ids.dtype.is_integer:
        raise TypeMismatch("the rows' numbers must be integers")


def _type(data: Aval, ids: Aval, num: Any, **_: Any) -> Aval:
    return aval((num, *data.shape[1:]), data.dtype)


def _rows(xp: Any, table: Any, ids: Any) -> Any:
    """table[ids], with zeros for numbers beyond the table."""
    if xp is np:
        inside = (ids >= 0) & (ids < table.shape[0])
        if inside.all():
            return table[ids]
        found = (
            table[np.where(inside, ids, 0)]
            if table.shape[0]
            else np.zeros((len(ids), *table.shape[1:]), table.dtype)
        )
        found[~inside] = 0
        return found
    return table.at[ids].get(mode="fill", fill_value=0)


def _sum_vjp(xp: Any, grad: Any, ids: Any) -> tuple[Any, None]:
    return _rows(xp, grad, ids), None


def _sum_numpy(xp: Any, data: Any, ids: Any, num: int = 1) -> Any:
    inside = (ids >= 0) & (ids < num)
    if not inside.all():
        data, ids = data[inside], ids[inside]
    wide = np.float32 if data.dtype.itemsize < 4 and data.dtype.kind not in "biu" else data.dtype
    made = np.zeros((num, *data.shape[1:]), wide)
    if data.ndim > 1 and len(ids):
        # One pass over rows sorted by their number beats add.at many times.
        order = np.argsort(ids, kind="stable")
        sorted_ids = ids[order]
        starts = np.flatnonzero(np.r_[True, sorted_ids[1:] != sorted_ids[:-1]])
        made[sorted_ids[starts]] = np.add.reduceat(data[order].astype(wide), starts, axis=0)
    else:
        np.add.at(made, ids, data.astype(wide))
    return made.astype(data.dtype)


@op(name="segment_sum", vjp=_sum_vjp, infer=_type, check=_check, numpy=_sum_numpy,
    inputs=("data", "ids"))  # fmt: skip
def segment_sum(xp, data, ids, num=1):
    """The sum of all rows with each number below `num`; rows with other numbers are dropped."""
    rows = wide(xp, data)  # a sum of bfloat16 ones would end at 256
    made = xp.zeros((num, *data.shape[1:]), rows.dtype)
    return like(made.at[ids].add(rows, mode="drop"), data)


def _extreme_vjp(xp: Any, grad: Any, data: Any, ids: Any, out: Any) -> tuple[Any, None]:
    # As in Paddle, every row that attains the extreme gets the whole gradient.
    return xp.where(data == _rows(xp, out, ids), _rows(xp, grad, ids), 0).astype(data.dtype), None


def _lowest(dtype: Any, largest: bool) -> Any:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.min if largest else limits.max
    return -np.inf if largest else np.inf


def _extreme_numpy(xp: Any, data: Any, ids: Any, num: int = 1, largest: bool = True) -> Any:
    inside = (ids >= 0) & (ids < num)
    data, ids = data[inside], ids[inside]
    made = np.full((num, *data.shape[1:]), _lowest(data.dtype, largest), data.dtype)
    (np.maximum if largest else np.minimum).at(made, ids, data)
    empty = np.bincount(ids, minlength=num)[:num] == 0
    made[empty] = 0
    return made


@op(name="segment_extreme", vjp=_extreme_vjp, infer=_type, check=_check, numpy=_extreme_numpy,
    inputs=("data", "ids"))  # fmt: skip
def segment_extreme(xp, data, ids, num=1, largest=True):
    """The largest (or smallest) of all rows with each number below `num`; 0 where there is none."""
    start = xp.full((num, *data.shape[1:]), _lowest(data.dtype, largest), data.dtype)
    at = start.at[ids]
    made = at.max(data, mode="drop") if largest else at.min(data, mode="drop")
    count = xp.zeros((num,), np.int32).at[ids].add(1, mode="drop")
    empty = (count == 0).reshape((-1,) + (1,) * (data.ndim - 1))
    return xp.where(empty, xp.zeros_like(made), made)


@op(name="row_numbers", inputs=("ids",), infer=lambda ids, num: ids, differentiable=False,
    exact=True,
    requires=lambda ids, num: [InRange("ids", 0, num - 1)] if type(num) is int else [])  # fmt: skip
def row_numbers(xp, ids, num=1):
    """ids, each of which must be the number of one of `num` rows."""
    return ids


def segment_count(ids: Tensor, num: Any, dtype: Any, rank: int) -> Tensor:
    """How many rows have each number, shaped to divide rows of `rank` dimensions."""
    count = segment_sum(ones(ids.shape, dtype), ids, num)
    return count.reshape([-1] + [1] * (rank - 1))


def segment_mean(data: Tensor, ids: Tensor, num: Any) -> Tensor:
    """The mean of all rows with each number; 0 where there is none."""
    count = segment_count(ids, num, data.dtype, data.ndim)
    mean = divide(segment_sum(data, ids, num), maximum(count, ones([], data.dtype)))
    return mean if mean.dtype is data.dtype else cast(trunc(mean), data.dtype)  # integers stay so


def reduce_rows(kind: str, data: Tensor, ids: Tensor, num: Any) -> Tensor:
    """`kind` of all rows with each number: sum, mean, max or min."""
    if kind == "sum":
        return segment_sum(data, ids, num)
    if kind == "mean":
        return segment_mean(data, ids, num)
    return segment_extreme(data, ids, num, kind == "max")
