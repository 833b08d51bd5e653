"""Second signatures: functions that Paddle also takes in PyTorch's order of arguments."""

from __future__ import annotations

from typing import Any

from bireme.api.keywords import put
from bireme.api.public import public, second_signature
from bireme.api.types import DTypeLike
from bireme.core import dtype as dt
from bireme.core.errors import TypeMismatch
from bireme.core.tensor import Tensor
from bireme.ops.indexing import gather, put_along_axis, scatter, take_along_axis
from bireme.ops.softmax import _softmax


@public
def softmax(
    input: Tensor,
    dim: int | None = None,
    dtype: DTypeLike | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """exp(input) divided by its sum along `dim`.

    Without `dim` it is the first dimension of 0-d, 1-d and 3-d tensors, else the second.
    `paddle.nn.functional.softmax` takes the last one.
    """
    if dim is None:
        dim = 0 if input._value.aval.ndim in (0, 1, 3) else 1
    made = _softmax(input, dim, None if dtype is None else dt.as_dtype(dtype))
    return made if out is None else put(out, made, "softmax")


@second_signature(gather)
def _gather(input: Tensor, dim: int, index: Tensor, out: Tensor | None = None) -> Tensor:
    """`gather(x, dim, index)`: the element of `input` that each entry of `index` names."""
    made = take_along_axis(input, index, dim, broadcast=False)
    return made if out is None else put(out, made, "gather")


@second_signature(scatter)
def _scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Any = None,
    reduce: str | None = None,
    out: Tensor | None = None,
    value: Any = None,
) -> Tensor:
    """`scatter(x, dim, index, src)`: `src` at the places along `dim` that `index` names."""
    if (src is None) == (value is None):
        raise TypeMismatch(
            "[scatter] takes (input, dim, index, src) with either src or value, or (x, index, "
            "updates)"
        )
    values = value if src is None else src
    made = put_along_axis(input, index, values, dim, reduce or "assign", broadcast=False)
    return made if out is None else put(out, made, "scatter")
