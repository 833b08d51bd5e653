"""Merge linear layers that read the same input into one call."""

from __future__ import annotations

from bireme.capture.rewrite import GraphBuilder
from bireme.core.graph import Graph, Node
from bireme.core.op import OPS
from bireme.passes.manager import register


@register("merge_products", order=75, on=False)
def merge_products(graph: Graph) -> Graph:
    """Linear layers without bias on one input (queries, keys and values; a gate and what it opens)
    as one call of `linears`. For kernels that read all their weights at once."""
    families: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if _is_plain(node):
            families.setdefault(node.args[0], []).append(node)  # type: ignore[arg-type]
    first = {members[0].first: members for members in families.values() if len(members) > 1}
    if not first:
        return graph
    later = {n.first for members in first.values() for n in members[1:]}
    builder = GraphBuilder(graph)
    builder.copy_inputs()
    for node in graph.nodes:
        members = first.get(node.first)
        if members is not None:
            weights = [n.args[1] for n in members]
            types = (node.call.types[0], *[n.call.types[1] for n in members])
            call = OPS["linears"].call_with(types, (-1, len(weights)), {}, (None,) * len(types))
            args = (builder.ref(node.args[0]), *[builder.ref(w) for w in weights])
            results = builder.add(call, args, node.tape)
            builder.refs.update((n.first, r) for n, r in zip(members, results, strict=True))
        elif node.first not in later:
            builder.copy(node)
    return builder.finish(graph.outputs)


def _is_plain(node: Node) -> bool:
    """A product with an input of the graph, which is there from the start, in its own type."""
    call = node.call
    return (
        call.op.name == "linear"
        and not node.tape
        and node.args[2] is None
        and node.args[1].__class__ is int
        and node.args[1] < 0  # type: ignore[operator]
        and node.args[0].__class__ is int
        and not any(call.casts)
    )
