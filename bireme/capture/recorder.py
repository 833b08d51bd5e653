"""The recorder of a capture: this thread's trace while a function is recorded into a Graph.

Its leaves are placeholders for the arguments, and the outer tensors (parameters, buffers,
constants) that the function meets on its way. Nothing runs. Reading a value raises
`CaptureError` at the user's line.

A tensor from outside is an input, read anew in every call: `leaf` is told the tensor with its
Value. Only what was made from data during the capture (`made`) is a constant, and a value that
Python itself looked at (`read`) is one under the condition that the tensor still holds it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from bireme.core import recorder_hooks
from bireme.core.autograd import GradNode, LeafNode
from bireme.core.aval import Aval, aval
from bireme.core.dtype import float64
from bireme.core.errors import CaptureError, user_line
from bireme.core.graph import Graph, Number
from bireme.core.op import Call, op
from bireme.core.random import Generator
from bireme.core.tensor import Tensor
from bireme.core.trace import Trace, Value, flush_sealed, record, state
from bireme.core.value import Overwritten, keep, overwrite, promise, value_of

# Keys drawn during a capture are these numbers, so that they can be told from constants.
_KEY_MARK = 0x5EEDCAB1E << 26
_KEY_SPAN = 1 << 26


def key_number(index: int) -> int:
    """What stands for a number of a random key in a recording: `Graph.keys` holds the index."""
    return _KEY_MARK + index


@op(name="detach", differentiable=False, infer=lambda x: x, exact=True)
def _detach(xp: Any, x: Any) -> Any:
    """The same contents, cut off from the gradient."""
    return x


def detach_call(t: Aval) -> Call:
    """The Call that cuts a value of this type off from its gradient."""
    return _detach.op.call_with((t,), (-1,), {}, (None,))


class Written:
    """A tensor that was changed in place during a capture, and what it was before."""

    __slots__ = ("node", "overwritten", "tensor", "value")

    def __init__(self, tensor: Tensor):
        self.tensor = weakref.ref(tensor)
        self.value = tensor._value
        self.overwritten = isinstance(tensor._value, Overwritten)
        self.node = tensor._node


class CaptureTrace(Trace):
    """A trace that becomes a graph instead of being run."""

    __slots__ = (
        "_tape", "born", "checks", "enforces", "generators", "grads", "guards", "label", "live",
        "names", "owners", "spans", "written",
    )  # fmt: skip

    def __init__(self, label: str, names: Sequence[str], tape: bool, amp: object):
        self.label = label
        self.names = names  # of the first placeholders
        self.spans: list[tuple[int, bool]] = []  # (position in code, tape) at each change
        self.generators: list[Any] = []
        self.written: dict[int, Written] = {}
        self.owners: dict[int, weakref.ref[Tensor]] = {}  # by id of the Value that was met
        self.born: dict[int, Value] = {}  # made from data during the capture
        self.guards: dict[int, tuple[weakref.ref[Tensor], Value]] = {}
        self.checks: list[tuple[Tensor, Exception]] = []  # what must hold in every call, or else
        self.live: list[tuple[Tensor, Callable[[], float]]] = []  # numbers read in every call
        # The .grad of what was met, and whether it was zeros that nobody had read.
        self.grads: dict[int, tuple[weakref.ref[Tensor], Tensor | None, bool]] = {}
        self.enforces = False  # whether someone looks at the checks
        self.code: list[int] = []
        super().__init__(tape, amp)
        self.limit = 1 << 62

    @property
    def tape(self) -> bool:  # type: ignore[override]
        return self._tape

    @tape.setter
    def tape(self, on: bool) -> None:
        self._tape = on
        self.spans.append((len(self.code), on))

    def placeholder(self, t: Aval) -> Value:
        """A new input of the graph."""
        value = promise(t, self, ~len(self.leaves))
        self.leaves[value] = value.slot
        return value

    def leaf(self, value: Value, holder: object = None) -> int:
        slot = self.leaves.get(value)
        if slot is None:
            inside = value.buf is None and isinstance(value.trace, CaptureTrace)
            if inside and not self.may_enter(value):
                value.trace.materialize_elsewhere(value)  # type: ignore[union-attr]
            self.met(value, _holding(holder, value))
            slot = self.leaves[value] = -1 - len(self.leaves)
        return slot

    def may_use(self, value: Value) -> bool:
        return self.known_slot(value) is not None

    def may_enter(self, value: Value) -> bool:
        """Whether a value that another capture is recording can be used here."""
        return False

    def met(self, value: Value, tensor: Tensor | None) -> None:
        """`value` from outside enters, held by `tensor` if it was not saved for a gradient."""
        if tensor is not None:
            self.owners[id(value)] = weakref.ref(tensor)
            self.watch_grad(tensor)
            _part_aliases(tensor)

    def watch_grad(self, tensor: Tensor) -> None:
        """Remember the gradient that a tensor has before a backward inside changes it."""
        known = self.grads.get(id(tensor))
        if known is None or known[0]() is not tensor:
            self.grads[id(tensor)] = (weakref.ref(tensor), tensor._grad, tensor._grad_is_zero)

    def made(self, value: Value) -> None:
        self.born[id(value)] = value

    def read(self, tensor: Tensor) -> None:
        value = tensor._value
        if id(value) not in self.born:
            self.guards[id(value)] = (weakref.ref(tensor), value)

    def flush(self) -> None:
        """Nothing of a capture runs; a step that was sealed before it does."""
        flush_sealed()

    def seal(self) -> None:
        """A step that is captured ends where its function returns."""

    def materialize(self, value: Value) -> None:
        raise CaptureError(
            f"the value of {self.describe(value)} was read at {user_line()} while {self.label} "
            "was being captured, when there are no values yet. Keep the computation in tensor "
            "operations (paddle.where instead of if, for instance)"
        )

    def materialize_elsewhere(self, value: Value) -> None:
        raise CaptureError(
            f"{self.describe(value)} was made while {self.label} was being captured and kept "
            "outside of it; it has no value. Return it from the function instead"
        )

    def describe(self, value: Value) -> str:
        """What a value is, in the user's terms."""
        if value.slot < 0:
            at = -1 - value.slot
            name = f"'{self.names[at]}' " if at < len(self.names) else ""
            return f"the input {name}of type {value.aval}"
        for node in Graph.from_code(self.code, [], []).nodes:
            if value.slot in node.results:
                return (
                    f"the {value.aval} tensor made by [{node.call.op.name}] "
                    f"(first used at {node.call.source})"
                )
        return f"a tensor of type {value.aval}"

    def wrote(self, tensor: Tensor) -> None:
        value = tensor._value
        if value.trace is self and value.slot >= 0:
            return  # made inside, nobody outside sees it
        known = self.written.get(id(tensor))
        if known is None or known.tensor() is not tensor:
            self.written[id(tensor)] = Written(tensor)

    def wrote_all(self, tensors: list[Any], former: list[Value]) -> None:
        for tensor in tensors:
            self.wrote(tensor)

    def assigned(self, tensor: Tensor) -> None:
        """A capture puts everything back itself."""

    def begin_step(self) -> None:
        """A captured step fails as a whole."""

    def next_key(self, generator: Generator) -> tuple[int, int]:
        at = _KEY_MARK + 2 * len(self.generators)
        self.generators.append(generator)
        return at, at + 1

    def detached(self, tensor: Tensor) -> Value:
        # An identity in the graph, so that a graph without its tape still knows the cut.
        value = tensor._value
        return record(detach_call(value.aval), self, (value,), tensor)[0]

    def graph(self, outputs: list[int]) -> Graph:
        """What was recorded so far, with its numbers and random keys."""
        graph = Graph.from_code(self.code, [v.aval for v in self.leaves], outputs)
        tape_at = self._tape_at()
        position = 0
        for node in graph.nodes:
            node.tape = tape_at(position)
            position += 1 + sum(isinstance(t, Aval) for t in node.call.types)
        marked = range(_KEY_MARK, _KEY_MARK + 2 * len(self.generators))
        for i, number in enumerate(self.floats):
            graph.numbers[Number("float", i)] = number
        for i, number in enumerate(self.ints):
            if number not in marked:
                if _KEY_MARK <= number < _KEY_MARK + _KEY_SPAN:
                    raise CaptureError(
                        f"{self.label} computes with the numbers of a random key; a captured "
                        "graph draws them afresh in every call and can only pass them on"
                    )
                graph.numbers[Number("int", i)] = number
            else:
                graph.keys[Number("int", i)] = number - _KEY_MARK
        return graph

    def _tape_at(self) -> Callable[[int], bool]:
        spans = self.spans

        def tape_at(position: int) -> bool:
            on = spans[0][1]
            for start, value in spans:
                if start > position:
                    break
                on = value
            return on

        return tape_at

    def restore(self) -> None:
        """Give outer tensors their contents back, as if nothing had been recorded."""
        for ref, grad, is_zero in self.grads.values():
            if (tensor := ref()) is not None:
                tensor._grad, tensor._grad_is_zero = grad, is_zero
        for w in self.written.values():
            tensor = w.tensor()
            (overwrite if w.overwritten else keep)(w.value)
            if tensor is not None:
                tensor._value, tensor._node = w.value, w.node


@contextmanager
def recording_into(trace: CaptureTrace) -> Iterator[None]:
    """Record into `trace` instead of this thread's own; outer tensors come back as they were."""
    outer = state.trace
    state.trace = trace
    try:
        yield
    finally:
        state.trace = outer
        trace.restore()


def _part_aliases(tensor: Tensor) -> None:
    """Give tensors that share contents with this one (detach()) Values of their own. A capture
    tells inputs apart by their Values, and only one of the two may carry the gradient."""
    value = tensor._value
    link = tensor._view
    root = tensor if link is None else link[0]()
    if root is None or value.buf is None:
        return
    for other in [root, *[r() for r in root._views or ()]]:
        if other is not None and other is not tensor and other._value is value:
            other._value = value_of(value.aval, value.buf)


@recorder_hooks.each_run.register
def _each_run(into: CaptureTrace, name: str, read: Callable[[], float]) -> Any:
    while isinstance(getattr(into, "parent", None), CaptureTrace):
        into = into.parent  # type: ignore[attr-defined]
    for tensor, known in into.live:
        if known == read:
            return tensor
    made = Tensor(value_of(aval((), float64), np.array(read())), None)
    into.live.append((made, read))
    return made


def _holding(holder: Any, value: Value) -> Tensor | None:
    """The tensor that holds `value`, among what an op was called with: tensors, lists of them, and
    the node whose saved values it computes a gradient with."""
    if isinstance(holder, Tensor):
        if vars(holder).get("_value") is not value:
            return None
        return holder if holder._alias_of is None else _holding(holder._alias_of(), value)
    if isinstance(holder, GradNode):
        leaves = [e.tensor() for e in holder.edges if isinstance(e, LeafNode)]
        return _holding(leaves, value)
    if isinstance(holder, list | tuple):
        for item in holder:
            found = _holding(item, value)
            if found is not None:
                return found
    return None


def is_capturing() -> bool:
    return isinstance(state.trace, CaptureTrace)
