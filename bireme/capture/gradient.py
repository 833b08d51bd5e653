"""The gradient of a captured function: recorded from its tape, then separated into a graph.

The eager engine runs the backward pass while the capture is still active, so its entries follow the
forward's in the same trace, made by the same rules and the same hooks. `Split` cuts the trace in
two: the residuals, values that the backward pass takes from the forward graph, become further
outputs of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bireme.capture.graph_op import Backward, GraphOp
from bireme.capture.rewrite import GraphBuilder
from bireme.core import autograd
from bireme.core.graph import Graph, Number
from bireme.core.tensor import Tensor
from bireme.core.trace import Trace, Value


@dataclass
class Pulled:
    """Gradients in the trace: of leaves `targets` in slots `found`, from the gradients of the
    outputs `grads` (output number: slot of the leaf that stands for its gradient)."""

    grads: dict[int, int]
    found: list[int]
    targets: list[int]


class TapeEnd:
    """The tape that a capture left, from its outputs (`starts`) back to its leaves. `edges` has
    for each leaf where the outer tape goes on, or None; it is cut there."""

    def __init__(self, trace: Trace, edges: list[Any], starts: list[Any]):
        self.trace: Trace = trace
        self.starts = starts
        self.wanted = [i for i, edge in enumerate(edges) if edge is not None]
        places = [autograd._locate(edges[i]) for i in self.wanted]
        self._stub = Tensor(next(iter(trace.leaves)), None) if trace.leaves else None
        self.fresh = {place: autograd.LeafNode(self._stub) for place in places}  # type: ignore
        self.ends = [self.fresh[place] for place in places]
        self.nodes = self._cut()

    def _cut(self) -> list[Any]:
        """Make every edge to an outer node lead to a leaf of our own; returns the nodes."""
        stack = [autograd._locate(e) for e in self.starts]
        seen: dict[Any, None] = {}
        while stack:
            node, index = stack.pop()
            outside = (node, index) in self.fresh or node.__class__ is autograd.LeafNode
            if outside or node in seen:
                continue
            seen[node] = None
            node.edges = tuple(
                [e if e is None else self.fresh.get(autograd._locate(e), e) for e in node.edges]
            )
            stack += [autograd._locate(e) for e in node.edges if e is not None]
        return list(seen)

    def pull(self, heads: list[tuple[int, int, Any]]) -> Pulled:
        """Record the gradients from `heads`: (output number, slot of its value, tape edge)."""
        if not heads or not self.wanted:
            return Pulled({}, [], [])
        trace: Any = self.trace
        roots, given = [], []
        grads: dict[int, int] = {}
        leaves = list(trace.leaves)
        for number, slot, edge in heads:
            value = trace.values[slot] if slot >= 0 else leaves[-1 - slot]
            roots.append(Tensor(value, self.fresh.get(autograd._locate(edge), edge)))
            grad = trace.placeholder(value.aval)
            grads[number] = grad.slot
            given.append(Tensor(grad, None))
        found = autograd.run_backward(roots, given, True, False, targets=self.ends)
        have = [(g, i) for g, i in zip(found, self.wanted, strict=True) if g is not None]
        return Pulled(grads, [trace.slot_of(g._value, g) for g, _ in have], [i for _, i in have])

    def producers(self) -> dict[int, Any]:
        """For every value that the tape saved, by slot: the edge to its producer."""
        made: dict[int, Any] = {}
        for node in self.nodes:
            if isinstance(node, autograd.GradNode):
                if node.saved is None:  # a backward pass inside has consumed it
                    continue
                for at, value in zip(node.call.saved_at, node.saved, strict=True):
                    slot = self.trace.known_slot(value) if isinstance(value, Value) else None
                    if slot is not None:
                        own = node if node.call.single else autograd.Output(node, -1 - at)
                        edge = node.edges[at] if at >= 0 else own
                        if at < 0 and not value.aval.dtype.differentiable:
                            edge = None
                        made.setdefault(slot, edge)
            else:  # a PyLayer's context keeps tensors
                for tensor in getattr(node.context, "_saved", ()):
                    slot = None
                    if isinstance(tensor, Tensor):
                        slot = self.trace.known_slot(tensor._value)
                    if slot is not None:
                        made.setdefault(slot, tensor._node)
        return made


class Split:
    """Cuts a recorded forward (the first `n_nodes` calls) and backward into graphs."""

    def __init__(self, whole: Graph, n_nodes: int, n_leaves: int):
        self.whole = whole
        self.first = whole.nodes[:n_nodes]
        self.rest = whole.nodes[n_nodes:]
        self.n_leaves = n_leaves
        self.n_values = self.first[-1].results.stop if self.first else 0
        self.given = [i for i in range(n_leaves) if i not in whole.constants]

    def _needed(self, pulled: Pulled) -> list[Any]:
        return Graph(self.whole.inputs, self.rest, pulled.found).needed()

    def _taken(self, pulled: Pulled) -> list[Any]:
        """The values that the backward pass takes from outside, in order of first use."""
        used: dict[Any, None] = {}
        for node in self._needed(pulled):
            for a in node.args:
                if isinstance(a, Number) or (a is not None and a < self.n_values):
                    used[a] = None
        used.update((f, None) for f in pulled.found if f < self.n_values)
        return list(used)

    def residuals(self, pulled: Pulled) -> list[int]:
        """The forward's results that the backward takes."""
        return [a for a in self._taken(pulled) if type(a) is int and a >= 0]

    def forward(self, outputs: list[int], pulled: Pulled) -> GraphOp:
        """The forward as an op; residuals follow its outputs."""
        wanted = [*outputs, *self.residuals(pulled)]
        builder = GraphBuilder(self.whole)
        builder.copy_inputs(self.n_leaves)
        for node in Graph(self.whole.inputs, self.first, wanted).needed():
            builder.copy(node)
        keys = self.whole.keys
        parts = {keys[a] for a in self._taken(pulled) if a in keys}
        return GraphOp(builder.finish(wanted), "graph_call", parts)

    def backward(
        self, forward: GraphOp, n_outputs: int, pulled: Pulled, saving: Pulled | None = None
    ) -> Backward:
        """The gradient as a graph. With `saving` its inputs include the residuals of that other
        gradient."""
        whole = self.whole
        builder = GraphBuilder(whole)
        for slot in pulled.grads.values():
            builder.copy_input(slot)
        types = whole.value_types()
        position = {leaf: p for p, leaf in enumerate(self.given)}
        n_residuals = 0
        saved_at: dict[int, None] = {}
        for a in self._taken(saving or pulled):
            if isinstance(a, Number):
                if a in whole.keys:
                    saved_at[len(self.given) + forward.parts.index(whole.keys[a])] = None
            elif a >= 0:
                builder.refs[a] = builder.input(types[a])
                saved_at[-1 - (n_outputs + n_residuals)] = None
                n_residuals += 1
            elif -1 - a < self.n_leaves:
                builder.copy_input(a)
                if -1 - a in position:
                    saved_at[position[-1 - a]] = None
        for node in self._needed(pulled):
            builder.copy(node)
        graph = builder.finish(pulled.found)
        targets = tuple([position[t] for t in pulled.targets])
        return Backward(graph, tuple(pulled.grads), targets, tuple(saved_at))
