"""Copies of programs: every op is recorded again, into another program's trace.

A copy for testing uses an op's test-time rule (`TEST_RULES`), and leaves out gradients and
everything that depends on them, which are the updates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bireme.capture.graph_op import GraphGradOp
from bireme.capture.recorder import CaptureTrace
from bireme.capture.subgraph import Body
from bireme.core.autograd import attach
from bireme.core.grad_op import GradOp
from bireme.core.graph import Graph, Node, Number
from bireme.core.random import default_generator
from bireme.core.tensor import Parameter, Tensor, constant
from bireme.core.trace import state
from bireme.ops import activation, attention, dropout, norm
from bireme.static.program import Program
from bireme.static.recorder import ProgramTrace, Variable, declare_data, recording

_GRADIENTS = (GradOp, GraphGradOp)

# Test-time rules of training ops: rule(inputs, attributes) -> results.
TEST_RULES: dict[str, Callable[[list[Any], dict[str, Any]], list[Tensor]]] = {}


def _rule(name: str) -> Callable[[Any], Any]:
    def register(rule: Any) -> Any:
        TEST_RULES[name] = rule
        return rule

    return register


@_rule("dropout")
def _test_dropout(inputs: list[Any], attrs: dict[str, Any]) -> list[Tensor]:
    x, threshold, scale = inputs[:3]
    if scale != 1.0:  # upscaled in training
        return [x]
    return [dropout._dropout_scaled(x, 1.0 - threshold / dropout._WORD)]


@_rule("alpha_dropout")
def _test_alpha_dropout(inputs: list[Any], attrs: dict[str, Any]) -> list[Tensor]:
    return [inputs[0]]


@_rule("rrelu")
def _test_rrelu(inputs: list[Any], attrs: dict[str, Any]) -> list[Tensor]:
    x, lower, upper = inputs[:3]
    return [activation.rrelu(x, lower, upper, training=False)]


@_rule("attention")
def _test_attention(inputs: list[Any], attrs: dict[str, Any]) -> list[Tensor]:
    return [attention._attention(*inputs[:5], None, None, None, None, attrs["causal"])]


@_rule("batch_norm_train")
def _test_batch_norm(inputs: list[Any], attrs: dict[str, Any]) -> list[Tensor]:
    x, weight, bias, mean, variance, _ = inputs
    if mean is None:  # no running statistics: the batch's own, as in training
        return norm._batch_norm_train(*inputs, attrs["axis"], attrs["epsilon"])
    out = norm._batch_norm_fixed(x, weight, bias, mean, variance, attrs["axis"], attrs["epsilon"])
    return [out, mean, variance]  # the running statistics stay


def copy_program(
    program: Program,
    for_test: bool,
    only: list[int] | None = None,
    fed: dict[int, str] | None = None,
) -> Program:
    """A program that does the same on the same state; with `only`, as far as the values in
    these slots need it. The results in the slots of `fed` are inputs of the copy, by name."""
    made = Program()
    made.random_seed = program.random_seed
    made._initial = dict(program._initial)
    made._graph_passes = program._graph_passes
    made._layouts = dict(program._layouts)
    made._origin = program
    made._trace.lost_rules = [*program._trace.lost_rules, *program._trace.own_rules]
    _Copier(program._trace, made._trace, for_test, only, fed or {}).copy(made._copied)
    return made


def record_again(node: Node, flat: list[Any], for_test: bool) -> list[Any]:
    """Record a node again on other inputs; returns its results."""
    call = node.call
    rule = TEST_RULES.get(call.op.name) if for_test else None
    tape, state.trace.tape = state.trace.tape, node.tape
    try:
        if rule is not None:
            return rule(flat, call.attrs)
        if for_test and any(isinstance(v, Body) for v in call.attrs.values()):
            attrs = {k: _test_body(v) if isinstance(v, Body) else v for k, v in call.attrs.items()}
            call = call.op.call_with(call.types, call.layout, attrs, call.casts)
        made = attach(call, state.trace, flat)
        return [made] if call.single else made
    finally:
        state.trace.tape = tape


def _test_body(body: Body) -> Body:
    """A branch or a loop's body as it is in testing; random keys keep their numbers."""
    graph = body.graph
    inside = CaptureTrace("a body", (), True, None)
    env: dict[Any, Any] = {None: None}
    for i, t in enumerate(graph.inputs):
        env[-1 - i] = Tensor(inside.placeholder(t), None)
    keys = [n for _ in range(body.n_keys // 2) for n in inside.next_key(default_generator)]
    with recording(inside):
        for node in graph.nodes:
            flat = [
                (keys[graph.keys[a]] if a in graph.keys else graph.numbers[a])
                if isinstance(a, Number)
                else env[a]
                for a in node.args
            ]
            env.update(zip(node.results, record_again(node, flat, True), strict=True))
    made = inside.graph([inside.slot_of(env[o]._value) for o in graph.outputs])
    made.names = dict(graph.names)
    return Body(made)


class _Copier:
    def __init__(
        self,
        source: ProgramTrace,
        into: ProgramTrace,
        for_test: bool,
        only: list[int] | None,
        fed: dict[int, str],
    ):
        self.source, self.into, self.for_test, self.fed = source, into, for_test, fed
        self.graph: Graph = source.graph(only or [])
        self.marks = source.marks(self.graph)
        self.nodes = self.graph.nodes
        self.used: set[Any] | None = None
        if only is not None:
            self.nodes, self.used = _needed(self.nodes, only, fed)
        self.env: dict[Any, Any] = {None: None}
        self.keys: dict[int, int] = {}

    def copy(self, copied: dict[int, Tensor]) -> None:
        source, into = self.source, self.into
        variables = {source.known_slot(v.leaf): v for v in source.vars.values()}
        leaves = list(source.leaves)
        for i, value in enumerate(leaves):
            var = variables.get(-1 - i)
            if self.used is not None and -1 - i not in self.used:
                continue
            self.env[-1 - i] = constant(value.buf) if var is None else self._variable(var)
        for slot, name in self.fed.items():
            t = source.values[slot].aval
            sizes = [d if type(d) is int else str(d) for d in t.shape]
            self.env[slot] = declare_data(into, name, sizes, t.dtype)
        for i, generator in enumerate(source.generators):
            self.keys[2 * i], self.keys[2 * i + 1] = into.next_key(generator)
        with recording(into):
            for node in self.nodes:
                start = len(into.code)
                self._node(node)
                into.mark(start, *self.marks[id(node)])
            into.mark(len(into.code), "/", False)
        for slot, tensor in self.env.items():
            if isinstance(slot, int):
                known = leaves[-1 - slot] if slot < 0 else source.values[slot]
                copied[id(known)] = tensor
        for var in source.vars.values():
            if var.name not in into.vars:
                continue
            last = self.env.get(source.known_slot(var.tensor._value))
            mine = into.vars[var.name].tensor
            if last is not None and last is not mine:
                mine._value = last._value
            copied[id(var.tensor._value)] = mine

    def _variable(self, var: Variable) -> Tensor:
        value = self.into.placeholder(var.leaf.aval)
        old = var.tensor
        if isinstance(old, Parameter):
            made: Any = Parameter(value, old.trainable, var.name)
            vars(made).update({k: v for k, v in vars(old).items() if k in _SETTINGS})
        else:
            made = Tensor(value, None)
            made._name, made.persistable = var.name, old.persistable
            if old._node is not None and old.is_leaf:
                made.stop_gradient = False
        self.into.declare(var.name, var.kind, made, var.read).checked = var.checked
        return made

    def _node(self, node: Node) -> None:
        if self.for_test and isinstance(node.call.op, _GRADIENTS):
            return
        flat: list[Any] = []
        for a in node.args:
            if isinstance(a, Number):
                graph = self.graph
                flat.append(self.keys[graph.keys[a]] if a in graph.keys else graph.numbers[a])
            elif a in self.env:
                flat.append(self.env[a])
            else:
                return  # it depends on something that was left out
        for slot, made in zip(node.results, record_again(node, flat, self.for_test), strict=True):
            if (changes := self.source.stops.get(slot)) is not None:
                made.stop_gradient = changes[-1][0]
            if slot not in self.fed:
                self.env[slot] = made


def _needed(nodes: list[Node], only: list[int], fed: dict[int, str]) -> tuple[list[Node], set[Any]]:
    """The nodes behind the values in `only`, as far as those in `fed`; and what they read."""
    used: set[Any] = set(only)
    found = []
    for node in reversed(nodes):
        if any(r in used and r not in fed for r in node.results):
            found.append(node)
            used.update(node.args)
    return found[::-1], used


_SETTINGS = (
    "optimize_attr",
    "regularizer",
    "need_clip",
    "do_model_average",
    "is_distributed",
)
__all__ = ["TEST_RULES", "copy_program", "record_again"]
