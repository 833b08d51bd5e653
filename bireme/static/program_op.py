"""A program, cut down to what a run needs, as one op."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from bireme.core import dims, fading
from bireme.core.aval import INT, Aval
from bireme.core.errors import InvalidArgument
from bireme.core.grad_op import GradOp
from bireme.core.graph import Graph, Node
from bireme.core.graph_op import GraphOp, TypedGraph
from bireme.core.op import Call
from bireme.core.rewrite import call_with, grad_call

_MAX_SIGNATURES = 64  # sets of input types remembered; beyond, the one unused for longest goes


class ProgramOp(GraphOp):
    """A graph op that remembers a bounded number of signatures, and lets inputs that were
    declared with one unknown size come in several."""

    def __init__(self, graph: Graph):
        super().__init__(graph, "program")
        self.calls: OrderedDict[Any, Call] = OrderedDict()

    def call_for(self, types: tuple[Aval, ...]) -> Call:
        call = self.calls.get(types)
        if call is not None:
            self.calls.move_to_end(types)
            fading.use(call)
            return call
        try:
            call = super().call_for(types)
            self.tables["sizes"].clear()
        except InvalidArgument:
            typed = TypedGraph(specialize_by_types(self.graph, self._spread(types)))
            flat = (*types, *[INT] * len(self.parts))
            layout = (len(types), len(self.parts))
            call = Call(self, flat, layout, {"graph": typed, "sizes": {}}, (None,) * len(flat))
        self.calls[types] = call
        if len(self.calls) > _MAX_SIGNATURES:
            self.calls.popitem(last=False)
        fading.use(call)
        return call

    def _spread(self, types: tuple[Aval, ...]) -> list[Aval]:
        """The types of all inputs, constants among them."""
        spread = list(self.graph.inputs)
        for i, declared, t in zip(self.given, self.declared, types, strict=True):
            fits = declared.dtype is t.dtype and declared.ndim == t.ndim
            if not fits or any(
                type(d) is int and d != have
                for d, have in zip(declared.shape, t.shape, strict=True)
            ):
                raise InvalidArgument(
                    f"{self.graph.names.get(-1 - i, f'input {i}')} must be {declared}. "
                    f"Received: {t}"
                )
            spread[i] = t
        return spread


def specialize_by_types(graph: Graph, inputs: list[Aval]) -> Graph:
    """The graph with the types that follow from `inputs`, op by op, where one symbol stands for
    several sizes (source and target length, both declared as None)."""
    sizes: dict[str, int] = {}
    unclear: set[str] = set()
    for declared, t in zip(graph.inputs, inputs, strict=True):
        for d, have in zip(declared.shape, t.shape, strict=True):
            if type(d) is not int and sizes.setdefault(str(d), have) != have:
                unclear.add(str(d))
    for name in unclear:
        del sizes[name]
    types: dict[int, Aval] = {-1 - i: t for i, t in enumerate(inputs)}
    made: dict[int, list[Call]] = {}  # the new Calls of each old one
    nodes = []
    for node in graph.nodes:
        given = tuple(
            [
                types[a] if isinstance(a, int) else t  # type: ignore[index]
                for a, t in zip(node.args, node.call.types, strict=True)
            ]
        )
        call = _retyped(node.call, given, sizes, made)
        nodes.append(Node(call, node.args, node.first, node.tape))
        types.update(zip(node.results, call.outs, strict=True))
    return Graph(
        list(inputs), nodes, list(graph.outputs), graph.n_floats, graph.n_ints,
        dict(graph.names), dict(graph.constants), dict(graph.numbers), dict(graph.keys),
    )  # fmt: skip


def _retyped(
    call: Call, given: tuple[Any, ...], sizes: dict[str, int], made: dict[int, list[Call]]
) -> Call:
    if isinstance(call.op, GradOp):
        forward: Call = call.attrs["forward"]
        present = tuple([t is not None for t in call.types[: call.layout[0]]])
        for candidate in made.get(forward.id, ()):
            found = grad_call(candidate, call.attrs["needs"], present)
            if found.types == given:
                made.setdefault(call.id, []).append(found)
                return found
        raise InvalidArgument(
            f"[{forward.op.name}] inputs of different sizes were declared with the same unknown "
            "size; give their dimensions different names in static.data, as in ['src', 8]"
        )
    attrs = {k: dims.substitute(v, sizes) for k, v in call.attrs.items()}
    found = call_with(call.op, given, call.layout, attrs, call.casts)
    known = made.setdefault(call.id, [])
    if found not in known:
        known.append(found)
    return found
