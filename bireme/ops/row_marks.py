"""Which rows of a table a gradient has reached, for optimizers that leave the others alone.

An optimizer with `lazy_mode=True` sets `marks_rows` on its parameters. `F.embedding(sparse=True)`
then adds an input to its result that changes nothing: a leaf with one number per row, whose
gradient counts how often each row was looked up. It adds up and is cleared as the table's own
gradient does, so the two always speak of the same backward passes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core.op import op
from bireme.core.tensor import Tensor, constant
from bireme.core.trace import state
from bireme.ops.nn_support import scatter_add


def _noted_vjp(xp: Any, grad: Any, ids: Any, types: Any, padding_idx: int) -> tuple[Any, ...]:
    index = xp.reshape(ids, (-1,))
    counted = (index != padding_idx).astype(np.float32)
    return grad, None, scatter_add(xp, xp.zeros(types[2].shape, np.float32), index, counted)


@op(
    name="noted_rows",
    inputs=("x", "ids", "marks"),
    vjp=_noted_vjp,
    infer=lambda x, ids, marks, padding_idx: x,
    exact=True,
)
def _noted_rows(xp, x, ids, marks, padding_idx=-1):
    return x


def noted(rows: Tensor, ids: Tensor, weight: Any, padding_idx: int) -> Tensor:
    """`rows` of `weight`, whose backward pass also counts how often each was looked up."""
    if weight._node is None or not state.trace.tape:
        return rows
    own = weight.__dict__
    own["looked_up_sparsely"] = True
    if not own.get("marks_rows"):
        return rows
    marks = own.get("row_marks")
    if marks is None:
        marks = own["row_marks"] = constant(np.zeros((weight.shape[0],), np.float32))
        marks.stop_gradient = False
    elif weight._grad is None:  # cleared by other means than the optimizer's
        marks._grad = None
    return _noted_rows(rows, ids, marks, padding_idx)
