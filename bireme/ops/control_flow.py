"""The control-flow ops: a choice between two graphs, and two kinds of loop.

They hold graphs as attributes (`capture/subgraph.py`), so they are saved, printed and typed like
any op. NumPy runs one branch, or the loop as a loop; XLA gets its own conditional and loops.
Gradients of any order come from JAX, through the gradient rules of the ops inside. A `while_loop`
of unknown length keeps a fixed number of checkpoints (`ops/loops.py`); a `scan` keeps every state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.capture.subgraph import Body
from bireme.core.op import op
from bireme.core.requirements import InnerEvidence, count, joined
from bireme.host import jax_door
from bireme.host.arrays import Array, Namespace
from bireme.ops import loops


def _true(x: Any) -> bool:
    return bool(np.asarray(x).reshape(-1)[0])


@op(
    name="cond",
    inputs=("pred", "*operands", "*keys"),
    infer=lambda pred, operands, keys, then, other: then.types,
    exact=True,
)
def cond(
    xp: Namespace, pred: Any, operands: Any, keys: Sequence[Array], then: Body, other: Body
) -> Any:
    """The results of `then` where `pred` is true, and of `other` where it is not."""
    first, rest = keys[: then.n_keys], keys[then.n_keys :]
    if xp is np:
        return then.run(np, operands, first) if _true(pred) else other.run(np, operands, rest)

    met, met_otherwise = InnerEvidence(count(then.nodes)), InnerEvidence(count(other.nodes))

    def chosen(given: Any, numbers: Any) -> Any:
        out, evidence = met.run(lambda: then.run(xp, given, numbers[: then.n_keys]))
        return out, evidence, met_otherwise.nothing()

    def otherwise(given: Any, numbers: Any) -> Any:
        out, evidence = met_otherwise.run(lambda: other.run(xp, given, numbers[then.n_keys :]))
        return out, met.nothing(), evidence

    lax = jax_door.jax().lax
    is_chosen = xp.reshape(pred, (-1,))[0].astype(bool)
    out, evidence, evidence_otherwise = lax.cond(
        is_chosen, chosen, otherwise, list(operands), _int64(xp, keys)
    )
    met.deliver(evidence)
    met_otherwise.deliver(evidence_otherwise)
    return out


@op(
    name="while_loop",
    inputs=("*carries", "*operands", "*keys"),
    infer=lambda carries, operands, keys, test, step: step.types,
    exact=True,
)
def while_loop(
    xp: Namespace, carries: Any, operands: Any, keys: Sequence[Array], test: Body, step: Body
) -> Any:
    """Replace the carries by what `step` makes of them, while `test` of them is true."""
    n = test.n_keys
    if xp is np:
        now, turn = list(carries), 0
        while _true(test.run(np, [*now, *operands], keys[:n], turn)[0]):
            now = step.run(np, [*now, *operands], keys[n:], turn)
            turn += 1
        return now
    outer, changing = len(operands), len(carries)
    tested, met = InnerEvidence(count(test.nodes)), InnerEvidence(count(step.nodes))

    def tests(turn: Any, now: Any, fixed: Any) -> Any:
        given = [*now[:changing], *fixed[:outer]]
        return test.run(xp, given, fixed[outer : outer + n], turn)

    def more(turn: Any, now: Any, fixed: Any) -> Any:
        return tests(turn, now, fixed)[0].reshape((-1,))[0].astype(bool)

    # The loop carries the evidence of its requirements. A test returns none, so where that is
    # wanted it runs again: in each step, and behind the loop.
    def tested_again(turn: Any, now: Any, fixed: Any) -> list[Any]:
        return tested.run(lambda: tests(turn, now, fixed))[1] if tested.wanted else []

    def once(turn: Any, now: Any, fixed: Any) -> Any:
        given = [*now[:changing], *fixed[:outer]]
        out, found = met.run(lambda: step.run(xp, given, fixed[outer + n :], turn))
        found = [*tested_again(turn, now, fixed), *found]
        return [*out, *joined(now[changing:], found)]

    first = [*[xp.asarray(c) for c in carries], *tested.nothing(), *met.nothing()]
    fixed = [*operands, *_int64(xp, keys)]
    turns, now = loops.while_loop(more, once, first, fixed)
    end = changing + len(tested.wanted)
    tested.deliver(joined(now[changing:end], tested_again(turns, now, fixed)))
    met.deliver(now[end:])
    return now[:changing]


@op(
    name="scan",
    inputs=("*carries", "*rows", "*operands", "*keys"),
    infer=lambda carries, rows, operands, keys, step, length: step.types,
    exact=True,
)
def scan(
    xp: Namespace,
    carries: Any,
    rows: Any,
    operands: Any,
    keys: Sequence[Array],
    step: Body,
    length: Any,
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
    numbers, changing = _int64(xp, keys), len(carries)
    met = InnerEvidence(count(step.nodes))

    def once(now: Any, item: Any) -> Any:
        turn, *row = item
        given = [turn, *now[:changing], *row, *operands]
        out, found = met.run(lambda: step.run(xp, given, numbers, turn))
        return [*out, *joined(now[changing:], found)], None

    given = [*[xp.asarray(c) for c in carries], *met.nothing()]
    turns = xp.arange(length, dtype="int64")
    out = lax.scan(once, given, [turns, *rows])[0]
    met.deliver(out[changing:])
    return out[:changing]


def _int64(xp: Any, keys: Any) -> list[Any]:
    return [xp.asarray(k, "int64") for k in keys]
