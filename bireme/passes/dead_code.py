"""Dead-code elimination: drop nodes that no output depends on."""

from __future__ import annotations

from bireme.capture.rewrite import GraphBuilder
from bireme.core.graph import Graph, Number
from bireme.passes.manager import register


@register("dead_code", order=90)
def dead_code(graph: Graph) -> Graph:
    """Drop calls and constants that are not used. Other inputs stay: callers pass them."""
    nodes = graph.needed()
    used = {a for node in nodes for a in node.args if a is not None and not isinstance(a, Number)}
    used.update(graph.outputs)
    builder = GraphBuilder(graph)
    for i in range(len(graph.inputs)):
        if i not in graph.constants or -1 - i in used:
            builder.copy_input(-1 - i)
    for node in nodes:
        builder.copy(node)
    return builder.finish(graph.outputs)
