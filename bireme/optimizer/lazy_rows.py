"""Updates of some rows of a table: those that a gradient reached."""

from __future__ import annotations

from typing import Any

from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn.layer import sync_norm
from bireme.ops.row_gradients import RowGradient, by_row, is_by_row
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


def _check(param: Tensor, setting: Settings, where: str) -> None:
    """Raise where an update of some rows is not what was asked for."""
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


def _counts(param: Tensor, setting: Settings, where: str) -> Tensor | None:
    """How often each row was looked up for a gradient that has all rows; None if nobody knows."""
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
    _check(param, setting, where)
    return marks._grad


def with_rows(
    grads: list[Tensor], each: tuple[Settings, ...], params: list[Any], where: str, lazy: bool
) -> tuple[list[Tensor], tuple[Settings, ...]]:
    """Gradients, rows alone where that is enough, with vectors after them that say which rows; and
    settings that say whose they are. A rule that is not `lazy` changes no row without gradient, so
    it takes rows unless weights decay."""
    grads, which = list(grads), []
    settings = list(each)
    for i, (p, setting) in enumerate(zip(params, each, strict=True)):
        if grads[i].__class__ is not RowGradient and not lazy:
            continue
        (grad,) = by_row([grads[i]])
        if is_by_row(grad) and (lazy or not setting.decay):
            if lazy:
                _check(p, setting, where)
            grads[i] = grad.rows
            settings[i] = setting._replace(rows=len(which))
            which.append(grad.numbers)
        elif lazy and (counts := _counts(p, setting, where)) is not None:
            settings[i] = setting._replace(rows=len(which), looked_up=True)
            which.append(counts)
    return [*grads, *which], tuple(settings)
