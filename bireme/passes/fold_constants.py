"""Constant folding: compute nodes that do not depend on any input at build time."""

from __future__ import annotations

import numpy as np

from bireme import backends
from bireme.capture.rewrite import GraphBuilder
from bireme.core import dims
from bireme.core.graph import Graph, Node, Number, Ref
from bireme.passes.manager import register

# A larger result would cost more in the file and in memory than computing it again.
LARGEST = 1 << 20


@register("fold_constants", order=10)
def fold_constants(graph: Graph) -> Graph:
    """Replace calls whose arguments are all known by their results."""
    builder = GraphBuilder(graph)
    builder.copy_inputs()
    known: dict[int, np.ndarray] = {-1 - i: a for i, a in graph.constants.items()}
    backend = backends.reference()
    for node in graph.nodes:
        if not _is_known(node, graph, known):
            builder.copy(node)
            continue
        arrays = [_contents(a, graph, known) for a in node.args]
        with np.errstate(all="ignore"):
            out = backend.run_call(node.call, arrays)
        for r, array in zip(node.results, [out] if node.call.single else out, strict=True):
            known[r] = np.asarray(array)
            builder.refs[r] = builder.constant(known[r])
    return builder.finish(graph.outputs)


def _is_known(node: Node, graph: Graph, known: dict[int, np.ndarray]) -> bool:
    call = node.call
    if not all(t.is_static and t.size * t.dtype.itemsize <= LARGEST for t in call.outs):
        return False
    if any(_is_open(v) for v in call.attrs.values()):
        return False  # sizes as data: known only once the graph is given its inputs
    return all(
        a is None or (a in graph.numbers if isinstance(a, Number) else a in known)
        for a in node.args
    )


def _is_open(attribute: object) -> bool:
    if isinstance(attribute, tuple):
        return any(_is_open(item) for item in attribute)
    return dims.is_dim_expression(attribute)


def _contents(a: Ref, graph: Graph, known: dict[int, np.ndarray]) -> object:
    if a is None:
        return None
    return graph.numbers[a] if isinstance(a, Number) else known[a]
