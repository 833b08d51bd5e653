"""Lazy updates: of a table that was looked up sparsely, only the rows that a gradient reached."""

from __future__ import annotations

from typing import Any

from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn.layer import sync_norm
from bireme.optimizer.update import Settings


class DecayOfSparse(InvalidArgument):
    """A penalty on all weights was asked for together with updates of some rows."""


def ask_for_marks(params: list[Any]) -> None:
    """Have `F.embedding(sparse=True)` count the rows of these parameters."""
    for p in params:
        p.marks_rows = True


def forget_marks(param: Tensor) -> None:
    own = param.__dict__
    own["looked_up_sparsely"] = False
    marks = own.get("row_marks")
    if marks is not None:
        marks._grad = None


def _counts(param: Tensor, setting: Settings, where: str) -> Tensor | None:
    """How often each row was looked up for the gradient; None if the gradient is dense."""
    own = param.__dict__
    if not own.get("looked_up_sparsely"):
        return None
    marks = own.get("row_marks")
    if marks is None or marks._grad is None:
        raise InvalidArgument(
            f"[{where}] lazy_mode=True needs to know which rows of {param.name!r} the gradient "
            "reached, and the rows were looked up before the optimizer knew the parameter, or in a "
            "static program. Make the optimizer before the first training step, or set "
            "lazy_mode=False"
        )
    if setting.decay:
        raise DecayOfSparse(
            f"[{where}] lazy_mode=True with weight_decay does not fit the sparse gradient of "
            f"{param.name!r}: a penalty would change every row. Set weight_decay=None, or "
            "sparse=False"
        )
    if sync_norm.total is not None:
        raise InvalidArgument(
            f"[{where}] lazy_mode=True does not know the rows that other processes looked up in "
            f"{param.name!r}. Set lazy_mode=False, or sparse=False"
        )
    return marks._grad


def with_counts(
    grads: list[Tensor], each: tuple[Settings, ...], params: list[Any], where: str
) -> tuple[list[Tensor], tuple[Settings, ...]]:
    """Gradients with the counts of rows after them, and settings that say whose they are."""
    counts: list[Tensor] = []
    settings = []
    for p, setting in zip(params, each, strict=True):
        found = _counts(p, setting, where)
        if found is not None:
            setting = setting._replace(rows=len(counts))
            counts.append(found)
        settings.append(setting)
    return [*grads, *counts], tuple(settings)
