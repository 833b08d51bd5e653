"""The recorder of a static program: the capture that to_static uses, kept open.

While a program is being written this thread's trace is its `ProgramTrace`. Ops record themselves as
always. Unlike a captured function, a program has named variables: inputs that are fed, state that
lives in a Scope from run to run, and numbers that are read in every run.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.capture import symbols
from bireme.capture.recorder import CaptureTrace
from bireme.core import autograd, recorder_hooks, trace
from bireme.core.aval import Aval, aval
from bireme.core.dtype import DType, float32
from bireme.core.errors import AutogradError, CaptureError, InvalidArgument, user_line
from bireme.core.graph import Graph
from bireme.core.tensor import Tensor
from bireme.core.trace import Trace, Value, materialize, state
from bireme.core.value import keep, value_of
from bireme.static.scope import global_scope

if TYPE_CHECKING:
    from bireme.static.program import Program


@dataclass
class Variable:
    """A named leaf of a program. `tensor` always holds its newest contents in the program;
    `leaf` is what a run starts with."""

    name: str
    # 'data' is fed, 'state' lives in a scope, 'number' is read in every run, 'made' is what an
    # op of the program fills.
    kind: str
    tensor: Tensor
    leaf: Value
    read: Callable[[], float] | None = None
    checked: bool = True  # whether what is fed must have the declared sizes and dtype


class ProgramTrace(CaptureTrace):
    """Records one program. Nothing runs; `Executor.run` compiles the recording."""

    checked_for_sizes = True
    changes_tensors = False

    def __init__(self, program: Program):
        super().__init__("a static program", (), True, None)
        self.program = program
        self.vars: dict[str, Variable] = {}
        self.aliases: dict[Value, int] = {}  # other programs' contents of a state that we have
        self.updated: list[Value] = []  # contents that an update has replaced
        self.prefixes: list[tuple[int, str]] = [(0, "/")]  # name_scope by position in the code
        self.by_name: dict[str, Tensor] = {}  # results that have a name
        self.own_rules: list[str] = []  # gradients that are not those of ops
        self.guarded: list[range] = []  # positions in the code under static.amp.fp16_guard
        # The result before static.amp cast it to another type; copies refer to that one.
        self.recast: dict[int, Value] = {}
        # Where gradients were told to stop or not to, by slot: how it was at first and each
        # setting, with the length of the code at that moment.
        self.stops: dict[int, list[tuple[bool, int]]] = {}
        self.lost_rules: list[str] = []  # such gradients of the program that this is a copy of

    def declare(
        self, name: str, kind: str, tensor: Tensor, read: Callable[[], float] | None = None
    ) -> Variable:
        """Make `tensor`, which holds a leaf of this trace, a variable."""
        made = self.vars[name] = Variable(name, kind, tensor, tensor._value, read)
        return made

    def leaf(self, value: Value, holder: Any = None) -> int:
        slot = self.known_slot(value)
        owner = value.trace
        if slot is None:
            if value.buf is None and isinstance(owner, ProgramTrace):
                slot = self.aliases[value] = self._from_program(owner, value)
            else:
                if value.buf is None:
                    materialize(value)
                slot = self.leaves[value] = -1 - len(self.leaves)
        return slot

    def known_slot(self, value: Value) -> int | None:
        if value.trace is self:
            return value.slot
        return self.leaves.get(value) or self.aliases.get(value)

    def _from_program(self, owner: ProgramTrace, value: Value) -> int:
        """Another program's state, which is ours under the same name."""
        var = owner.variable_of(value)
        if var is None or var.kind != "state":
            raise CaptureError(
                f"{owner.describe(value)} belongs to another program and was used at "
                f"{user_line()}. Programs share parameters only; build this value again in this "
                "program"
            )
        mine = self.vars.get(var.name)
        if mine is None:
            made = Tensor(self.placeholder(var.leaf.aval), None)
            made._name, made.persistable = var.name, True
            mine = self.declare(var.name, "state", made)
        return self.slot_of(mine.leaf)

    def named(self, tensor: Tensor) -> None:
        if tensor._name is not None:
            self.by_name[tensor._name] = tensor

    def variable_of(self, value: Value) -> Variable | None:
        """The variable whose contents, first or newest, are `value`."""
        for var in self.vars.values():
            if var.leaf is value or var.tensor._value is value:
                return var
        return None

    def wrote(self, tensor: Tensor) -> None:
        value = tensor._value
        slot = self.known_slot(value)
        if slot is None or value.buf is not None:
            slot = self.leaf(value)
        if slot >= 0:
            if tensor.persistable:
                self.updated.append(value)
            return
        var = self.variable_of(value)
        if var is None and tensor.persistable:
            # Something with contents (an optimizer's accumulator) that the program changes is
            # state; it starts with the contents that it has now.
            start = np.array(value.buf)
            self.program.initialized_by_startup(tensor.name, value.aval, lambda scope: start)
            var = self.declare(tensor.name, "state", tensor)
        if var is not None and var.kind == "state":
            self.updated.append(value)

    def described(self, tensor: Tensor) -> Variable:
        """The variable that `tensor` holds, or a result as one."""
        known = self.variable_of(tensor._value)
        return known or Variable(tensor.name, "result", tensor, tensor._value)

    def marks(self, graph: Graph) -> dict[int, tuple[str, bool]]:
        """For each node of this trace's graph, by identity: its name_scope, and whether it was
        recorded under static.amp.fp16_guard."""
        found, position = {}, 0
        for node in graph.nodes:
            prefix = [p for start, p in self.prefixes if start <= position][-1]
            found[id(node)] = prefix, any(position in span for span in self.guarded)
            position += 1 + sum(isinstance(t, Aval) for t in node.call.types)
        return found

    def mark(self, start: int, prefix: str, guarded: bool) -> None:
        """Mark what was recorded since the code was `start` long."""
        if self.prefixes[-1][1] != prefix:
            self.prefixes.append((start, prefix))
        if guarded:
            if self.guarded and self.guarded[-1].stop == start:
                start = self.guarded.pop().start
            self.guarded.append(range(start, len(self.code)))

    def own_rule(self, what: str) -> None:
        self.own_rules.append(what)

    def differentiable_again(self) -> None:
        """Let gradients use weights that an update has replaced: a program is functional, so
        they are still there."""
        for value in self.updated:
            keep(value)
        self.updated = []

    def fold(self, value: Value) -> bool:
        """Compute a value that follows from constants alone, which every run would compute."""
        from bireme.static.folding import constant_contents

        if value.trace is self and value.buf is None:
            value.buf = constant_contents(self.program, value.slot)
        return value.buf is not None

    def materialize(self, value: Value) -> None:
        if self.fold(value):
            return
        raise CaptureError(
            f"the value of {self.describe(value)} was read at {user_line()}, but it belongs to a "
            "static program, which has values only while it runs. Fetch it: "
            "exe.run(program, feed={...}, fetch_list=[x])"
        )

    materialize_elsewhere = materialize

    def describe(self, value: Value) -> str:
        var = self.variable_of(value)
        if var is not None:
            return f"variable {var.name!r} of type {value.aval}"
        return super().describe(value)

    def restore(self) -> None:
        """A program goes on where it was left; there is nothing to put back."""

    def find(self, name: str) -> Value | None:
        """The newest contents of a variable, or a result whose tensor has this name."""
        var = self.vars.get(name)
        if var is not None:
            return var.tensor._value
        known = self.by_name.get(name)
        if known is None or known._name != name or self.known_slot(known._value) is None:
            return None
        return known._value


def declare_data(
    into: ProgramTrace, name: str, shape: Iterable[Any], dtype: DType, kind: str = "data"
) -> Tensor:
    """A new fed input. Sizes that are not known are shared by axis: `batch`, `dim1` …"""
    sizes = []
    for axis, d in enumerate(shape):
        if isinstance(d, str):
            sizes.append(symbols.parse(d))
        elif d is None or d == -1:
            sizes.append(symbols.symbol("batch" if axis == 0 else f"dim{axis}"))
        else:
            sizes.append(int(d))
    t = aval(tuple(sizes), dtype)
    known = into.vars.get(name)
    if known is not None:
        if known.kind == kind and known.leaf.aval is t:
            return known.tensor
        raise InvalidArgument(
            f"[data] the program already has a variable {name!r} of type {known.leaf.aval}; "
            "give this one another name"
        )
    made = Tensor(into.placeholder(t), None)
    made._name = name
    return into.declare(name, kind, made).tensor


@recorder_hooks.new_state.register
def _new_state(
    into: ProgramTrace, name: str, t: Aval, make: Callable[[], Any], build: Callable[[Value], Any]
) -> Any:
    known = into.vars.get(name)
    if known is not None:
        if known.kind != "state" or known.leaf.aval is not t:
            raise InvalidArgument(
                f"[create_parameter] the program already has a variable {name!r} of type "
                f"{known.leaf.aval}. Received: {t} for the same name"
            )
        return known.tensor
    into.program.initialized_by_startup(name, t, lambda scope: make())
    tensor = build(into.placeholder(t))
    into.declare(name, "state", tensor)
    return tensor


@recorder_hooks.new_copy.register
def _new_copy(
    into: ProgramTrace, name: str, tensor: Any, t: Aval, cast: Callable[[Any], Any]
) -> Any:
    var = into.variable_of(tensor._value)
    if var is None or var.kind != "state":
        return cast(tensor)
    source = var.name
    into.program.initialized_by_startup(name, t, lambda scope: scope.tensor(source).numpy())
    made = Tensor(into.placeholder(t), None)
    made._name, made.persistable = name, True
    return into.declare(name, "state", made).tensor


@recorder_hooks.each_run.register
def _each_run(into: ProgramTrace, name: str, read: Callable[[], float]) -> Any:
    for var in into.vars.values():
        if var.kind == "number" and var.read == read:
            return var.tensor
    made = Tensor(into.placeholder(aval((), float32)), None)
    made._name, made.persistable = name, True
    return into.declare(name, "number", made, read).tensor


@recorder_hooks.call_with_contents.register
def _call_with_contents(
    into: ProgramTrace, function: Any, results: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    from bireme.static.host_calls import record_call

    return record_call(into, function, results, args, kwargs)


@recorder_hooks.read_sizes.register
def _read_sizes(into: ProgramTrace, tensor: Any) -> list[Any]:
    from bireme.static.host_calls import record_sizes

    if into.fold(tensor._value) or not tensor._value.aval.is_static:
        return tensor.numpy().reshape(-1).tolist()
    return record_sizes(into, tensor)


@recorder_hooks.set_contents.register
def _set_contents(into: ProgramTrace, tensor: Any, array: Any) -> bool:
    var = into.variable_of(tensor._value)
    if var is None or var.kind != "state":
        return False
    global_scope().put(var.name, Tensor(value_of(var.leaf.aval, array), None))
    return True


@recorder_hooks.description.register
def _description(into: ProgramTrace, tensor: Any) -> str | None:
    if tensor._value.buf is not None:
        return None
    return (
        f"Variable(name={tensor.name!r}, shape={tensor.shape._plain()}, dtype={tensor.dtype.name}, "
        f"stop_gradient={tensor.stop_gradient}, persistable={tensor.persistable})"
    )


@recorder_hooks.stopped.register
def _stopped(into: ProgramTrace, tensor: Any, stop: bool) -> None:
    slot = into.known_slot(tensor._value)
    if slot is not None:
        known = into.stops.setdefault(slot, [(tensor.stop_gradient, -1)])
        known.append((bool(stop), len(into.code)))


@recorder_hooks.block.register
def _block(into: ProgramTrace) -> Any:
    return into.program.global_block()


@recorder_hooks.parameters.register
def _parameters(into: ProgramTrace) -> list[Any]:
    return [p for p in into.program.all_parameters() if p._node is not None]


@recorder_hooks.differentiate.register
def _differentiate(into: ProgramTrace, loss: Any, params: list[Any], stops: Iterable[Any]) -> None:
    for p, grad in zip(params, gradients_in(into, [loss], [None], params, stops), strict=True):
        p._grad = grad
        if grad is not None:
            grad.name = f"{p.name}@GRAD"


def gradients_in(
    into: ProgramTrace,
    targets: list[Any],
    given: list[Any],
    inputs: list[Any],
    stops: Iterable[Any],
) -> list[Any]:
    """Record the gradients of `targets` by `inputs`; None where there is no path."""
    if into.lost_rules:
        raise AutogradError(
            f"this program is a copy of one with {into.lost_rules[0]}, whose gradient a copy does "
            "not have. Record the gradients first (append_backward, minimize) and clone then"
        )
    into.differentiable_again()
    from bireme.static.late_stops import gradients_anew, stopped_late

    if stopped_late(into, targets):
        return gradients_anew(into, targets, given, inputs, stops)
    return on_the_tape(targets, given, inputs, stops)


def on_the_tape(
    targets: list[Any], given: list[Any], inputs: list[Any], stops: Iterable[Any]
) -> list[Any]:
    """Record the gradients along the tape that was made with the ops."""
    roots = [(t, g) for t, g in zip(targets, given, strict=True) if t._node is not None]
    if not roots:
        warnings.warn(
            "no target depends on anything that needs a gradient: every parameter and input "
            "behind it has stop_gradient=True, so there are no gradients",
            stacklevel=4,
        )
        return [None] * len(inputs)
    wanted = [t for t in inputs if t._node is not None]
    found = iter(
        autograd.run_backward(
            [t for t, _ in roots],
            [g for _, g in roots],
            True,
            True,
            targets=[t._node for t in wanted],
            stops=[s._node for s in stops if s._node is not None],
        )
    )
    return [next(found) if t._node is not None else None for t in inputs]


class _Mode(threading.local):
    """The eager trace that waits while programs are written; None in eager code."""

    aside: Trace | None = None


_mode = _Mode()


def in_static_mode() -> bool:
    return _mode.aside is not None


def write_into(program_trace: ProgramTrace) -> None:
    """Record into this program from now on, if static mode is on."""
    if _mode.aside is not None:
        state.trace = program_trace


def start_static(program_trace: ProgramTrace) -> None:
    if _mode.aside is None:
        trace.flush()
        _mode.aside = state.trace
    state.trace = program_trace


def stop_static() -> None:
    if _mode.aside is not None:
        state.trace, _mode.aside = _mode.aside, None


@contextmanager
def recording(into: CaptureTrace) -> Iterator[None]:
    """Record into this program inside the block, whatever the mode outside is."""
    outer, state.trace = state.trace, into
    try:
        yield
    finally:
        state.trace = outer


@contextmanager
def running() -> Iterator[None]:
    """Eager code inside a block, whatever the mode outside is: an Executor works in it."""
    outer = state.trace
    if _mode.aside is not None:
        state.trace = _mode.aside
    try:
        yield
    finally:
        if _mode.aside is not None:
            _mode.aside = state.trace  # a flush replaces the trace
            state.trace = outer
