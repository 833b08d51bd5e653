"""A program's ops recorded once more, in the types that autocast gives them.

The first recording stays behind as dead code; references to its results become references to the
new ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bireme.amp.auto_cast import Autocast
from bireme.capture.subgraph import Body
from bireme.core import dtype as dt
from bireme.core import ownership
from bireme.core.autograd import attach
from bireme.core.aval import Aval
from bireme.core.errors import TypeMismatch
from bireme.core.grad_op import GradOp
from bireme.core.graph import Graph, Node, Number
from bireme.core.op import Call
from bireme.core.tensor import Tensor
from bireme.core.trace import Value, state
from bireme.static.program import default_main_program
from bireme.static.recorder import ProgramTrace, recording


@contextmanager
def fp16_guard() -> Iterator[None]:
    """Mark the ops that `decorate(..., use_amp_guard=True)` may put into low precision."""
    trace = default_main_program()._trace
    start = len(trace.code)
    try:
        yield
    finally:
        trace.guarded.append(range(start, len(trace.code)))


@dataclass(frozen=True)
class Rules:
    """Which ops change: those that `setting` names. With `white_only` the ops that are not white
    stay in their types; so do those that read a variable in `kept`, and with `guarded` those
    outside of `fp16_guard`."""

    setting: Autocast
    white_only: bool
    kept: frozenset[str]
    guarded: bool


def cast_ops(trace: ProgramTrace, wanted: list[int], rules: Rules) -> set[str]:
    """Record what the results in these slots need once more, by these rules. Returns the names of
    the variables that ops now read in low precision."""
    holders: list[Tensor] = [t for t in ownership.every(Tensor) if _is_result(trace, t)]
    caster = _Caster(trace, wanted, rules)
    with recording(trace):
        caster.run()
    for holder in holders:
        made = caster.env.get(trace.known_slot(holder._value))
        if made is not None and made is not holder:
            trace.recast[id(made._value)] = trace.recast.get(id(holder._value), holder._value)
            holder._value, holder._node = made._value, made._node
    return caster.lowered


def _is_result(trace: ProgramTrace, tensor: Tensor) -> bool:
    value = vars(tensor).get("_value")
    return isinstance(value, Value) and value.trace is trace and value.slot >= 0


class _Caster:
    def __init__(self, trace: ProgramTrace, wanted: list[int], rules: Rules):
        self.graph: Graph = trace.graph(wanted)
        self.rules = rules
        self.marks = trace.marks(self.graph)
        self.env: dict[Any, Any] = {None: None}
        self.names: dict[int, str] = {}
        self.lowered: set[str] = set()
        for var in trace.vars.values():
            slot = trace.slot_of(var.leaf)
            self.names[slot] = var.name
            holds_it = var.tensor._value is var.leaf
            self.env[slot] = var.tensor if holds_it else Tensor(var.leaf, None)
        for i, value in enumerate(trace.leaves):
            self.env.setdefault(-1 - i, Tensor(value, None))
        self.keys: dict[int, int] = {}
        for i, generator in enumerate(list(trace.generators)):
            self.keys[2 * i], self.keys[2 * i + 1] = trace.next_key(generator)

    def run(self) -> None:
        for node in self.graph.needed():
            flat: list[Any] = []
            for a in node.args:
                if isinstance(a, Number):
                    at = self.graph.keys.get(a)
                    flat.append(self.graph.numbers[a] if at is None else self.keys[at])
                else:
                    flat.append(self.env[a])
            tape, state.trace.tape = state.trace.tape, node.tape
            try:
                made = self._record(node, flat)
            finally:
                state.trace.tape = tape
            self.env.update(zip(node.results, made, strict=True))

    def _record(self, node: Node, flat: list[Any]) -> list[Tensor]:
        call = node.call
        if self._may_change(node):
            try:
                inputs = [tuple(g) if isinstance(g, list) else g for g in call.group(flat)]
                call = call.op.resolve(inputs, call.attrs, self.rules.setting)
            except TypeMismatch:  # an op that takes no mix of types keeps its own
                call = node.call
        low = self.rules.setting.dtype
        self.lowered |= {
            self.names[a]
            for a, kind in zip(node.args, call.casts, strict=True)
            if kind is low and isinstance(a, int) and a in self.names
        }
        if call is node.call:
            flat = [_as_before(x, t) for x, t in zip(flat, call.types, strict=True)]
        made: Any = attach(call, state.trace, flat)
        return [made] if call.single else made

    def _may_change(self, node: Node) -> bool:
        call: Call = node.call
        if isinstance(call.op, GradOp) or any(
            isinstance(v, Body | Graph) for v in call.attrs.values()
        ):
            return False
        if self.rules.guarded and not self.marks[id(node)][1]:
            return False
        if any(self.names.get(a) in self.rules.kept for a in node.args if isinstance(a, int)):
            return False
        setting = self.rules.setting
        return not self.rules.white_only or setting.cast(call.op, dt.float32) is setting.dtype


def _as_before(x: Any, t: Any) -> Any:
    """An input of an op that stays as it was, in the type that it had."""
    if isinstance(x, Tensor) and isinstance(t, Aval) and x.dtype is not t.dtype:
        return x.astype(t.dtype)
    return x
