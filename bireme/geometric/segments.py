"""Reductions of consecutive rows that belong together."""

from __future__ import annotations

import numpy as np

from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.ops.contents import Result, reads_contents
from bireme.ops.segment import reduce_rows


@reads_contents(lambda kind, data, ids: Result([None, *data._value.aval.shape[1:]], data.dtype))
def _segments(kind: str, data: Tensor, segment_ids: Tensor) -> Tensor:
    """The result has a row for each number up to the last one, so the numbers are read."""
    if segment_ids.ndim != 1 or data.ndim < 1 or data.shape[0] != segment_ids.shape[0]:
        raise ShapeMismatch(
            f"[segment_{kind}] segment_ids must be a vector with one number for each row of data. "
            f"Received: shapes {data.shape} and {segment_ids.shape}"
        )
    numbers = np.asarray(segment_ids._array())
    if not len(numbers) or numbers[0] < 0 or (numbers[1:] < numbers[:-1]).any():
        raise InvalidArgument(
            f"[segment_{kind}] segment_ids must not be empty, negative or decreasing. Received: "
            f"{numbers.tolist()[:20]}"
        )
    return reduce_rows(kind, data, segment_ids, int(numbers[-1]) + 1)


def segment_sum(data: Tensor, segment_ids: Tensor, name: str | None = None) -> Tensor:
    """The sum of the rows with each number; 0 for numbers that do not occur.

    segment_sum([[1.], [2.], [3.]], [0, 0, 1])   # [[3.], [3.]]
    """
    return _segments("sum", data, segment_ids)


def segment_mean(data: Tensor, segment_ids: Tensor, name: str | None = None) -> Tensor:
    """The mean of the rows with each number; 0 for numbers that do not occur."""
    return _segments("mean", data, segment_ids)


def segment_max(data: Tensor, segment_ids: Tensor, name: str | None = None) -> Tensor:
    """The largest of the rows with each number; 0 for numbers that do not occur."""
    return _segments("max", data, segment_ids)


def segment_min(data: Tensor, segment_ids: Tensor, name: str | None = None) -> Tensor:
    """The smallest of the rows with each number; 0 for numbers that do not occur."""
    return _segments("min", data, segment_ids)
