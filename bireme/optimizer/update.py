"""The update of all parameters as one op.

An optimizer gives a rule for one parameter; `update_op` makes of it the op that updates all of
them. Inputs: parameters (float32 masters where there are any), gradients (and after them, for
parameters in lazy mode, counts of the rows that they reached), accumulators (all of the first kind,
then all of the second …), the clock (values that all parameters share, such as beta1^t), the
learning rate, and whether to skip (a scaler found an overflow). Results, in order: parameters,
accumulators, clock, and the low-precision copies of masters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bireme.core.aval import aval
from bireme.core.dtype import as_dtype
from bireme.core.lowering import computes_at_once
from bireme.core.op import Call, Op, op
from bireme.host import jax_door

_LARGE = 64 << 20  # bytes of a table

# rule(xp, param, grad, lr, slots, clock, hyper, extra) -> (param, slots)
Rule = Callable[..., tuple[Any, list[Any]]]
# advance(xp, clock, hyper) -> clock
Advance = Callable[..., list[Any]]


class Settings(NamedTuple):
    """What is fixed for one parameter."""

    lr_scale: float = 1.0
    grad_scale: float = 1.0
    decay: str = ""  # 'l1', 'l2' or none
    coeff: float = 0.0
    low: str | None = None  # the dtype of the low-precision copy, if this is a master
    extra: Any = None  # further inputs of the rule
    # Which of the vectors after the gradients says what rows to update; -1: all.
    rows: int = -1
    looked_up: bool = False  # whether that vector counts how often each row was looked up


def update_op(name: str, rule: Rule, advance: Advance | None = None) -> Op:
    """The op that applies `rule` to every parameter, registered under `name`."""

    def body(xp, params, grads, states, clock, lr, skip, each=(), hyper=()):
        count = len(params)
        before = [xp.reshape(c, ()) for c in clock]
        after = advance(xp, before, hyper) if advance is not None else before
        new_params, new_states = [], [None] * len(states)
        one = _one_parameter if computes_at_once(xp) else _once
        for i, (p, setting) in enumerate(zip(params, each, strict=True)):
            olds = [p, *states[i::count]]
            which = grads[count + setting.rows] if setting.rows >= 0 else None
            by_number = which is not None and not setting.looked_up
            if by_number and skip is not None:  # then no row is written
                which = xp.where(skip, p.shape[0], which)
            news = one(xp, rule, setting, hyper, olds, grads[i], which, lr, (before, after))
            if skip is not None and not by_number:
                news = [xp.where(skip, old, new) for old, new in zip(olds, news, strict=True)]
            new_params.append(news[0])
            new_states[i::count] = news[1:]
        new_clock = [
            xp.reshape(a, c.shape).astype(c.dtype) for a, c in zip(after, clock, strict=True)
        ]
        if skip is not None:
            new_clock = [xp.where(skip, c, n) for c, n in zip(clock, new_clock, strict=True)]
        results = [*new_params, *new_states, *new_clock]
        copies = [
            w.astype(as_dtype(s.low).numpy)
            for w, s in zip(results, each, strict=False)
            if s.low is not None
        ]
        return [*results, *copies]

    body.__doc__ = f"One step of {name.removesuffix('_update')} on every parameter."
    inputs = ("*params", "*grads", "*states", "*clock", "lr", "skip")
    made = op(body, name=name, inputs=inputs, differentiable=False, infer=_infer)
    made.op.at_once = _changes_rows_of_a_large_table
    return made.op


def _changes_rows_of_a_large_table(call: Call) -> bool:
    """A compiled program changes rows in place; NumPy would copy the table first."""
    each: tuple[Settings, ...] = call.attrs["each"]
    tables = zip(call.group(call.types)[0], each, strict=True)
    sizes = [t.size * t.dtype.itemsize for t, s in tables if s.rows >= 0 and not s.looked_up]
    return any(size >= _LARGE for size in sizes)


def _one_parameter(
    xp: Any,
    rule: Rule,
    setting: Settings,
    hyper: Any,
    olds: Sequence[Any],
    grad: Any,
    which: Any,
    lr: Any,
    clock: Any,
) -> list[Any]:
    """A parameter and its accumulators after the step, from those before it (`olds`)."""
    if which is None or setting.looked_up:
        news = _updated(xp, rule, setting, hyper, olds, grad, lr, clock)
        if which is None:
            return news
        reached = _rows_reached(xp, grad, which)
        return [xp.where(reached, n, o) for n, o in zip(news, olds, strict=True)]
    taken = [_rows_at(xp, o, which) for o in olds]
    news = _updated(xp, rule, setting, hyper, taken, grad, lr, clock)
    return [_with_rows(xp, o, which, n) for o, n in zip(olds, news, strict=True)]


def _rows_at(xp: Any, table: Any, numbers: Any) -> Any:
    """Rows of a table by number; any row for a number beyond it."""
    return xp.take(table, xp.minimum(numbers, table.shape[0] - 1), axis=0)


def _with_rows(xp: Any, table: Any, numbers: Any, rows: Any) -> Any:
    """The table with other rows at these numbers; those beyond it are dropped."""
    if xp is not np:
        return table.at[numbers].set(rows, mode="drop")
    changed, inside = table.copy(), numbers < table.shape[0]
    changed[numbers[inside]] = rows[inside]
    return changed


def _updated(
    xp: Any,
    rule: Rule,
    setting: Settings,
    hyper: Any,
    olds: Sequence[Any],
    grad: Any,
    lr: Any,
    clock: Any,
) -> list[Any]:
    """What the rule makes of a parameter, or some rows of it, and of its accumulators."""
    p, *states = olds
    kind = "float32" if p.dtype.itemsize < 4 else p.dtype
    weight, g = p.astype(kind), grad.astype(kind)
    slots = [_computing(s, kind) for s in states]
    rate = (lr * setting.lr_scale).astype(kind)
    prepared = _prepared(xp, weight, g, setting)
    weight, slots = rule(xp, weight, prepared, rate, slots, clock, hyper, setting.extra)
    return [n.astype(o.dtype) for n, o in zip([weight, *slots], olds, strict=True)]


# A net has many parameters of few types, and the rule is the same for all of a type.
_once = jax_door.traced_once("xp", "rule", "setting", "hyper")(_one_parameter)


def _rows_reached(xp: Any, grad: Any, counts: Any) -> Any:
    """Which rows of a table are updated in lazy mode, as a column.

    Those that were looked up. A gradient beyond them comes from another use of the table, and is
    dense: then all rows are.
    """
    found = xp.reshape(counts > 0, (-1, 1))
    return found | xp.any((grad != 0) & ~found)


def _computing(slot: Any, kind: Any) -> Any:
    return slot if slot.dtype.kind in "iu" else slot.astype(kind)


def _prepared(xp: Any, weight: Any, grad: Any, setting: Settings) -> Any:
    """The gradient rescaled, with the weight penalty added."""
    if setting.grad_scale != 1.0:
        grad = grad * setting.grad_scale
    if setting.decay == "l2":
        grad = grad + setting.coeff * weight
    elif setting.decay == "l1":
        grad = grad + setting.coeff * xp.sign(weight)
    return grad


def _infer(
    params: Any, grads: Any, states: Any, clock: Any, lr: Any, skip: Any, each: Any, hyper: Any
) -> tuple[Any, ...]:
    copies = [
        aval(p.shape, as_dtype(s.low))
        for p, s in zip(params, each, strict=True)
        if s.low is not None
    ]
    return (*params, *states, *clock, *copies)
