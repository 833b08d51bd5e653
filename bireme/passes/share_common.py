"""Common-subexpression elimination: compute equal nodes once."""

from __future__ import annotations

from typing import Any

from bireme.capture.rewrite import GraphBuilder
from bireme.core.graph import Graph, Number, Ref
from bireme.passes.manager import register


@register("share_common", order=20)
def share_common(graph: Graph) -> Graph:
    """Replace a call by an earlier one of the same op on the same arguments.

    Ops have no effects, and random ones take their key as an argument, so equal calls give
    equal results.
    """
    builder = GraphBuilder(graph)
    builder.copy_inputs()
    seen: dict[Any, range] = {}
    for node in graph.nodes:
        args = tuple([_identity(a, graph, builder) for a in node.args])
        key = (node.call.id, args, node.tape)
        before = seen.get(key)
        if before is None:
            seen[key] = builder.copy(node)
        else:
            builder.refs.update(zip(node.results, before, strict=True))
    return builder.finish(graph.outputs)


def _identity(a: Ref, graph: Graph, builder: GraphBuilder) -> Any:
    if isinstance(a, Number) and a in graph.numbers:
        value = graph.numbers[a]
        return (a.kind, repr(value))  # tells 0.0 from -0.0, and finds NaN equal to itself
    return builder.ref(a)
