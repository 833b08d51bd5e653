"""Symbolic sizes among values: a dimension of unknown size as a 0-d tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core import dims
from bireme.core.aval import aval
from bireme.core.dtype import int64
from bireme.core.op import op
from bireme.core.tensor import Tensor


@op(name="dimension", inputs=(), differentiable=False, infer=lambda size: aval((), int64))
def _dimension(xp: Any, size: Any = 0) -> Any:
    """A symbolic size as a number to compute with; it is known when the program runs."""
    return xp.asarray(size, np.int64)


def dimension(size: object) -> Tensor:
    """A symbolic dimension as a 0-d tensor."""
    return _dimension(size)


def without_dims(result: Any) -> Any:
    """A function's result with tensors in place of symbolic sizes."""
    if isinstance(result, list) and type(result) is not list:  # a tensor's shape
        result = list(result)
    if type(result) in (list, tuple):
        return type(result)([without_dims(r) for r in result])
    if type(result) is dict:
        return {k: without_dims(v) for k, v in result.items()}
    return dimension(result) if dims.is_dim_expression(result) else result
