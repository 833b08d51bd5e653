"""Graphs inside graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bireme.convert.torch.aten import aten
from bireme.core.tensor import Tensor
from bireme.static.nn import cond, while_loop

Branch = Callable[..., list[Any]]


@aten("higher_order.wrap_with_set_grad_enabled")
def with_set_grad_enabled(enabled: bool, graph: Branch, *operands: Any) -> list[Any]:
    return graph(*operands)


@aten("higher_order.wrap_with_autocast")
def with_autocast(
    device: str, dtype: object, enabled: bool, cache: object, graph: Branch, *operands: Any
) -> list[Any]:
    """The casts are nodes of the graph already."""
    return graph(*operands)


@aten("higher_order.cond")
def cond_(pred: Any, true_fn: Branch, false_fn: Branch, operands: Sequence[Any] = ()) -> list[Any]:
    if not isinstance(pred, Tensor):
        return (true_fn if pred else false_fn)(*operands)
    made = cond(pred, lambda: true_fn(*operands), lambda: false_fn(*operands))
    return list(made) if isinstance(made, list | tuple) else [made]


@aten("higher_order.while_loop")
def while_loop_(
    cond_fn: Branch,
    body_fn: Branch,
    carried_inputs: Sequence[Any],
    additional_inputs: Sequence[Any] = (),
) -> list[Any]:
    return list(
        while_loop(
            lambda *values: cond_fn(*values, *additional_inputs)[0],
            lambda *values: list(body_fn(*values, *additional_inputs)),
            list(carried_inputs),
        )
    )
