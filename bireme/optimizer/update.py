"""The update of all parameters as one op.

An optimizer gives a rule for one parameter; `update_op` makes of it the op that updates all of
them. Inputs: parameters (float32 masters where there are any), gradients, accumulators (all of the
first kind, then all of the second …), the clock (values that all parameters share, such as
beta1^t), the learning rate, and whether to skip (a scaler found an overflow). Results, in order:
parameters, accumulators, clock, and the low-precision copies of masters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from bireme.core.aval import aval
from bireme.core.dtype import as_dtype
from bireme.core.op import Op, op

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
    extra: Any = None  # what the rule wants to know besides


def update_op(name: str, rule: Rule, advance: Advance | None = None) -> Op:
    """The op that applies `rule` to every parameter, registered under `name`."""

    def body(xp, params, grads, states, clock, lr, skip, each=(), hyper=()):
        count = len(params)
        kinds = len(states) // count
        before = [xp.reshape(c, ()) for c in clock]
        after = advance(xp, before, hyper) if advance is not None else before
        new_params, new_states = [], [None] * len(states)
        for i, (p, g, setting) in enumerate(zip(params, grads, each, strict=True)):
            kind = "float32" if p.dtype.itemsize < 4 else p.dtype
            weight, grad = p.astype(kind), _prepared(xp, p.astype(kind), g.astype(kind), setting)
            slots = [_computing(states[k * count + i], kind) for k in range(kinds)]
            rate = (lr * setting.lr_scale).astype(kind)
            weight, slots = rule(
                xp, weight, grad, rate, slots, (before, after), hyper, setting.extra
            )
            new_params.append(weight.astype(p.dtype))
            for k, slot in enumerate(slots):
                new_states[k * count + i] = slot.astype(states[k * count + i].dtype)
        new_clock = [
            xp.reshape(a, c.shape).astype(c.dtype) for a, c in zip(after, clock, strict=True)
        ]
        results = [*new_params, *new_states, *new_clock]
        if skip is not None:
            olds = [*params, *states, *clock]
            results = [xp.where(skip, old, new) for old, new in zip(olds, results, strict=True)]
        copies = [
            w.astype(as_dtype(s.low).numpy)
            for w, s in zip(results, each, strict=False)
            if s.low is not None
        ]
        return [*results, *copies]

    body.__doc__ = f"One step of {name.removesuffix('_update')} on every parameter."
    inputs = ("*params", "*grads", "*states", "*clock", "lr", "skip")
    made = op(body, name=name, inputs=inputs, differentiable=False, infer=_infer)
    return made.op


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
