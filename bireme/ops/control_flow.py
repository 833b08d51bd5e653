"""The control-flow ops: a choice between two graphs, and two kinds of loop.

They hold graphs as attributes (`core/subgraph.py`), so they are saved, printed and typed like any
op. NumPy runs one branch, or the loop as a loop; XLA gets its own conditional and loops.
Gradients of any order come from JAX, through the gradient rules of the ops inside. A `while_loop`
of unknown length keeps a fixed number of checkpoints (`core/loops.py`); a `scan` keeps every state.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core import jax_door, loops
from bireme.core.op import op
from bireme.core.subgraph import Body


def _true(x: Any) -> bool:
    return bool(np.asarray(x).reshape(-1)[0])


@op(
    name="cond", inputs=("pred", "*operands", "*keys"),
    infer=lambda pred, operands, keys, then, other: then.types, exact=True,
)  # fmt: skip
def cond(xp: Any, pred: Any, operands: Any, keys: Any, then: Body, other: Body) -> Any:
    """The results of `then` where `pred` is true, and of `other` where it is not."""
    first, rest = keys[: then.n_keys], keys[then.n_keys :]
    if xp is np:
        return then.run(np, operands, first) if _true(pred) else other.run(np, operands, rest)

    def run(body: Body) -> Any:
        at = 0 if body is then else then.n_keys

        def branch(given: Any, numbers: Any) -> Any:
            return body.run(xp, given, numbers[at : at + body.n_keys])

        return branch

    lax = jax_door.jax().lax
    chosen = xp.reshape(pred, (-1,))[0].astype(bool)
    return lax.cond(chosen, run(then), run(other), list(operands), _int64(xp, keys))


@op(
    name="while_loop", inputs=("*carries", "*operands", "*keys"),
    infer=lambda carries, operands, keys, test, step: step.types, exact=True,
)  # fmt: skip
def while_loop(xp: Any, carries: Any, operands: Any, keys: Any, test: Body, step: Body) -> Any:
    """Replace the carries by what `step` makes of them, while `test` of them is true."""
    n = test.n_keys
    if xp is np:
        now, turn = list(carries), 0
        while _true(test.run(np, [*now, *operands], keys[:n], turn)[0]):
            now = step.run(np, [*now, *operands], keys[n:], turn)
            turn += 1
        return now
    count = len(operands)

    def more(turn: Any, now: Any, fixed: Any) -> Any:
        given = [*now, *fixed[:count]]
        return test.run(xp, given, fixed[count : count + n], turn)[0].reshape((-1,))[0].astype(bool)

    def once(turn: Any, now: Any, fixed: Any) -> Any:
        return step.run(xp, [*now, *fixed[:count]], fixed[count + n :], turn)

    given = [xp.asarray(c) for c in carries]
    return loops.while_loop(more, once, given, [*operands, *_int64(xp, keys)])


@op(
    name="scan", inputs=("*carries", "*rows", "*operands", "*keys"),
    infer=lambda carries, rows, operands, keys, step, length: step.types, exact=True,
)  # fmt: skip
def scan(
    xp: Any, carries: Any, rows: Any, operands: Any, keys: Any, step: Body, length: Any
) -> Any:
    """Step `length` times. A step is given its number, the carries, and its row of each of
    `rows`."""
    if xp is np:
        now = list(carries)
        for i in range(length):
            given = [np.asarray(i, np.int64), *now, *[r[i] for r in rows], *operands]
            now = step.run(np, given, keys, i)
        return now
    lax = jax_door.jax().lax
    numbers = _int64(xp, keys)

    def once(now: Any, item: Any) -> Any:
        turn, *row = item
        return step.run(xp, [turn, *now, *row, *operands], numbers, turn), None

    given = [xp.asarray(c) for c in carries]
    turns = xp.arange(length, dtype="int64")
    return lax.scan(once, given, [turns, *rows])[0]


def _int64(xp: Any, keys: Any) -> list[Any]:
    return [xp.asarray(k, "int64") for k in keys]


__all__: list[str] = []
