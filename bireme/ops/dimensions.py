"""Sizes as data: what `paddle.shape` gives inside a graph with open sizes."""

from __future__ import annotations

from typing import Any

from bireme.core import dtype as dt
from bireme.core.aval import aval
from bireme.core.op import op


def _type(dims: tuple[Any, ...], dtype: str) -> Any:
    return aval((len(dims),), dt.as_dtype(dtype))


# The type is known from the attributes, so the lowering only ever sees a graph whose symbols
# were replaced by sizes.
@op(inputs=(), infer=_type, differentiable=False)
def dimensions(xp, dims=(), dtype="int64"):
    """These sizes as a vector."""
    return xp.asarray(dims, dt.as_dtype(dtype).numpy)
