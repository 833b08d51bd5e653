"""Recording a function into a Graph, with the recorder that eager code uses.

The function runs once with placeholders while this thread's trace is a `CaptureTrace`
(capture_trace.py). The recording is then put in order: inputs, outputs, writes to outer tensors,
gradients, and guards, which later calls must find unchanged.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bireme.capture import tree
from bireme.capture.gradient import Pulled, Split, TapeEnd
from bireme.capture.graph_op import GraphOp
from bireme.capture.recorder import (
    CaptureTrace,
    Written,
    recording_into,
)
from bireme.core import autograd
from bireme.core.aval import Aval
from bireme.core.dimension import without_dims
from bireme.core.errors import CaptureError
from bireme.core.graph import Graph
from bireme.core.tensor import Parameter, Tensor, constant
from bireme.core.trace import Value, materialize

# Constants up to this many bytes are built into the graph; larger ones are inputs.
_SMALL = 4096


@dataclass
class Write:
    """An output of the graph that replaces a tensor's contents after every call."""

    target: Tensor | int  # a captured tensor, or the number of an argument
    output: int
    tracked: bool  # whether the new contents carry a gradient


@dataclass
class GradEffect:
    """The effect of a backward inside the function on a tensor's `.grad`."""

    target: Tensor | int  # a captured tensor, or the number of an argument
    output: int | None  # the new gradient, None if it was cleared
    is_zero: bool


@dataclass
class Captured:
    """A function as a graph op, with everything that a call needs except its arguments.

    The op's inputs are the arguments and then `outer`; its outputs are the function's tensors, then
    those of `writes`, then the residuals for the gradient.
    """

    op: GraphOp
    outer: list[Tensor]
    outer_names: list[str | None]
    structure: Any  # of the function's result
    tracked: list[bool]  # which of the function's tensors carry a gradient
    writes: list[Write]
    generators: list[Any]  # one key is drawn from each, in order, per call
    needs: list[bool]  # per input of the op: did it need a gradient at capture?
    guards: list[tuple[weakref.ref[Tensor], Value]]  # values that Python read
    checks: list[tuple[int, Exception]]  # outputs that must be true
    live: list[tuple[Tensor, Callable[[], float]]]  # inputs that are read anew before each call
    grads: list[GradEffect]
    graded: list[tuple[Tensor, bool]]  # leaves of a backward inside, and if they had a gradient
    gradients: list[tuple[int, Tensor]]  # which of `outer` are gradients from outside, and whose

    @property
    def graph(self) -> Graph:
        return self.op.graph


def capture(
    function: Callable[[list[Tensor]], Any],
    types: Sequence[Aval],
    *,
    label: str,
    needs: Sequence[bool] = (),
    names: Sequence[str] = (),
    known: dict[str, Tensor] | None = None,
    tape: bool = True,
    amp: object = None,
) -> Captured:
    """Record `function`, called with one placeholder per type, into a graph.

    `known` are tensors with names (a layer's parameters and buffers). Other outer tensors that
    the function meets are captured too, by reference: later calls see their later contents.
    """
    names = [*names, *(f"x{i}" for i in range(len(names), len(types)))]
    trace = CaptureTrace(label, names, tape, amp)
    arguments = [Tensor(trace.placeholder(t), None) for t in types]
    for tensor, need in zip(arguments, needs, strict=False):
        if need:
            tensor.stop_gradient = False
    trace.enforces = True
    for tensor in (known or {}).values():
        trace.watch_grad(tensor)
    with recording_into(trace):
        result = without_dims(function(arguments))
        outs, structure = tree.flatten(result)
        del result
        tree.check_plain(structure, f"the result of {label}")
        return _Finisher(trace, arguments, outs, structure, known or {}).finish()


class _Finisher:
    """Turns the recording into a `Captured`, while the capture is still active."""

    def __init__(
        self,
        trace: CaptureTrace,
        arguments: list[Tensor],
        outs: list[Tensor],
        structure: Any,
        known: dict[str, Tensor],
    ):
        self.trace = trace
        self.arguments = arguments
        self.outs = outs
        self.structure = structure
        self.known_names = {id(t): n for n, t in known.items()}
        self.known = list(known.values())

    def finish(self) -> Captured:
        trace, outs = self.trace, self.outs
        writes = self._writes()
        checked = [ok for ok, _ in trace.checks]
        effects = self._grad_effects()
        grads = [t._grad for t in effects if t._grad is not None]
        results = (*outs, *[w[1] for w in writes], *checked, *grads)
        forward_outputs = [self._slot(t) for t in results]
        end = len(trace.code)
        owners = self._owners()
        edges = [owners[i]._node if i in owners else None for i in range(len(trace.leaves))]
        for w in trace.written.values():
            slot = trace.leaves.get(w.value)
            if slot is not None:
                edges[-1 - slot] = w.node
        roots = [_differentiable(t._node) for t in outs]
        roots += [None if t._node is w.node else _differentiable(t._node) for w, t in writes]
        roots += [None] * len([*checked, *grads])
        tracked = [node is not None for node in roots]
        n_leaves = len(trace.leaves)
        pulled, again = self._pull_back(roots, edges, forward_outputs, end)
        whole = self.trace.graph(forward_outputs)
        whole.constants = {
            i: self._contents(v)
            for i, v in enumerate(trace.leaves)
            if i not in owners and (self._is_small(v) or i >= n_leaves) and v.buf is not None
        }
        split = Split(whole, self._node_count(end), n_leaves)
        forward = split.forward(forward_outputs, pulled)
        if pulled.found:
            count = len(forward_outputs)
            backward = split.backward(forward, count, pulled)
            backward.attach(forward, split.backward(forward, count, again, saving=pulled))
        outer: list[Tensor] = []
        names: list[str | None] = []
        leaves = list(trace.leaves)
        for i in range(len(self.arguments), n_leaves):
            if i not in whole.constants:
                tensor = owners.get(i)
                if tensor is None:
                    tensor = constant(self._contents(leaves[i]))
                outer.append(tensor)
                names.append(self.known_names.get(id(tensor)))
        for i, name in zip(split.given, [*trace.names, *names], strict=True):
            if name is not None:
                forward.graph.names[-1 - i] = name
        forward.names = [forward.graph.names.get(-1 - i, f"input {i}") for i in forward.given]
        n = len(outs)
        by_id = {id(t): i for i, t in enumerate(self.arguments)}
        return Captured(
            forward,
            outer,
            names,
            self.structure,
            tracked[:n],
            [Write(by_id.get(id(t), t), n + i, tracked[n + i]) for i, (_, t) in enumerate(writes)],
            trace.generators,
            [edges[i] is not None for i in split.given],
            self._guards(),
            [(n + len(writes) + i, error) for i, (_, error) in enumerate(trace.checks)],
            trace.live,
            self._described(effects, n + len(writes) + len(checked)),
            self._graded(bool(effects) or any(isinstance(t, Parameter) for _, t in writes)),
            self._gradients(outer),
        )

    def _gradients(self, outer: list[Tensor]) -> list[tuple[int, Tensor]]:
        """Which of the outer tensors are gradients, and whose. After the next backward pass the
        gradient is another tensor."""
        met = [(ref(), grad) for ref, grad, _ in self.trace.grads.values()]
        owners = {id(grad): t for t, grad in met if t is not None and grad is not None}
        return [(i, owners[id(t)]) for i, t in enumerate(outer) if id(t) in owners]

    def _graded(self, has_step: bool) -> list[tuple[Tensor, bool]]:
        """Outer tensors that can have a gradient. Whether they had one before a function that
        computes gradients itself decides what it recorded."""
        if not has_step:
            return []
        met = [(ref(), grad is not None) for ref, grad, _ in self.trace.grads.values()]
        return [(t, had) for t, had in met if t is not None and t._node is not None]

    def _grad_effects(self) -> list[Tensor]:
        """Tensors whose gradient has changed."""
        met = [(ref(), grad, is_zero) for ref, grad, is_zero in self.trace.grads.values()]
        changed = [
            t
            for t, grad, is_zero in met
            if t is not None and (t._grad is not grad or t._grad_is_zero is not is_zero)
        ]
        return changed + [t for t in self.arguments if t._grad is not None]

    def _described(self, effects: list[Tensor], first: int) -> list[GradEffect]:
        by_id = {id(t): i for i, t in enumerate(self.arguments)}
        made = []
        for tensor in effects:
            output = None
            if tensor._grad is not None:
                output, first = first, first + 1
            number = by_id.get(id(tensor))
            target = tensor if number is None else number
            made.append(GradEffect(target, output, tensor._grad_is_zero))
        return made

    def _writes(self) -> list[tuple[Written, Tensor]]:
        """Outer tensors with new contents. A tensor that the function made itself from data (a
        constant) and changed is none, even if it is returned."""
        returned = {id(t) for t in self.outs} - {id(t) for t in (*self.known, *self.arguments)}
        writes = []
        for w in self.trace.written.values():
            tensor = w.tensor()
            if tensor is not None and id(tensor) not in returned and tensor._value is not w.value:
                writes.append((w, tensor))
        return writes

    def _slot(self, tensor: Tensor) -> int:
        return self.trace.slot_of(tensor._value, tensor)

    def _owners(self) -> dict[int, Tensor]:
        """The tensor of each leaf, by leaf number."""
        trace = self.trace
        owners = dict(enumerate(self.arguments))
        before = {id(w.tensor()): w.value for w in trace.written.values()}
        for tensor in self.known:
            slot = trace.leaves.get(before.get(id(tensor), tensor._value))
            if slot is not None:
                owners.setdefault(-1 - slot, tensor)
        for w in trace.written.values():
            slot, tensor = trace.leaves.get(w.value), w.tensor()
            if slot is not None and tensor is not None:
                owners.setdefault(-1 - slot, tensor)
        for i, value in enumerate(trace.leaves):
            if i not in owners:
                found = self._owner(value)
                if found is not None:
                    owners[i] = found
        return owners

    def _owner(self, value: Value) -> Tensor | None:
        """The outer tensor that a Value was read from; None for values made from data."""
        passed = self.trace.owners.get(id(value))
        tensor = None if passed is None else passed()
        if id(value) in self.trace.born:
            return None
        if tensor is None or tensor._value is not value:
            raise CaptureError(
                f"{self.trace.label} uses a tensor of type {value.aval} from outside that nothing "
                "holds any more, so that a later call could not find it. Pass it as an argument"
            )
        return tensor

    def _guards(self) -> list[tuple[weakref.ref[Tensor], Value]]:
        for ref, value in self.trace.guards.values():
            if ref() is None:
                raise CaptureError(
                    f"{self.trace.label} reads the value of a tensor of type {value.aval} that "
                    "nothing holds any more, so that a later call could not compare it"
                )
        return list(self.trace.guards.values())

    def _pull_back(
        self, roots: list[Any], edges: list[Any], outputs: list[int], end: int
    ) -> tuple[Pulled, Pulled]:
        """Record the gradients of every leaf that needs one: of the outputs, and for higher
        derivatives also of the residuals of the first gradient."""
        tape = TapeEnd(self.trace, edges, [r for r in roots if r is not None])
        heads = [(i, outputs[i], r) for i, r in enumerate(roots) if r is not None]
        pulled = tape.pull(heads)
        if not pulled.found:
            return pulled, pulled
        producers = tape.producers()
        residuals = Split(self.trace.graph([]), self._node_count(end), len(edges)).residuals(pulled)
        heads += [
            (len(outputs) + i, slot, producers[slot])
            for i, slot in enumerate(residuals)
            if producers.get(slot) is not None
        ]
        return pulled, tape.pull(heads)

    def _node_count(self, end: int) -> int:
        """How many calls lie before position `end` of the code."""
        whole = Graph.from_code(self.trace.code[:end], [], [])
        return len(whole.nodes)

    def _contents(self, value: Value) -> np.ndarray:
        if value.buf is None:
            materialize(value)  # an outer result that is still pending and whose tensor is gone
        return np.asarray(value.buf)

    @staticmethod
    def _is_small(value: Value) -> bool:
        t = value.aval
        return value.buf is not None and t.is_static and t.size * t.dtype.itemsize <= _SMALL


def _differentiable(node: Any) -> Any:
    """The node, unless a backward inside the function has consumed it."""
    return None if node is None or autograd._locate(node)[0].released else node
