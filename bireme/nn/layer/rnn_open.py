"""A cell over sequences whose length is open while a program is built: one loop in the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bireme
from bireme.capture import tree
from bireme.core.tensor import Tensor
from bireme.ops.control_loops import scan


def run_open(
    step: Callable[[Any, Any, Tensor | None], tuple[Any, Any]],
    inputs: Any,
    states: Any,
    mask: Tensor | None,
    steps: Any,
    reverse: bool,
) -> tuple[Any, Any]:
    """(outputs, final states) of `step(inputs of a time, states, mask of that time)`, time first.

    The outputs' types are those of a step whose results nobody uses; it is pruned.
    """
    rows, kind = tree.flatten(inputs)
    before, held = tree.flatten(states)
    if mask is not None:
        rows = [*rows, mask]
    if reverse:
        rows = [bireme.flip(r, axis=[0]) for r in rows]

    def one(items: list[Tensor], carried: list[Tensor]) -> tuple[Any, Any]:
        runs = items[-1] if mask is not None else None
        return step(tree.unflatten(kind, items), tree.unflatten(held, carried), runs)

    sample, made = tree.flatten(one([r[0] for r in rows], before)[0])
    empty = [bireme.zeros([steps, *s.shape], s.dtype) for s in sample]

    def body(at: Tensor, items: list[Tensor], carried: list[Any]) -> list[Any]:
        now, filled = carried
        out, new = one(items, now)
        for buffer, part in zip(filled, tree.flatten(out)[0], strict=True):
            buffer[at] = part
        return [tree.flatten(new)[0], filled]

    final, filled = scan(body, rows, steps, ["states", "outputs"], [before, empty])
    if reverse:
        filled = [bireme.flip(f, axis=[0]) for f in filled]
    return tree.unflatten(made, filled), tree.unflatten(held, final)
