"""The graph of a backward pass as a Graphviz file."""

from __future__ import annotations

import datetime
import os
from typing import Any

from bireme.core.autograd import LeafNode, Output
from bireme.core.tensor import Tensor


def write_graph(roots: list[Tensor], folder: str) -> str:
    """Write `<time>_backward_graph.dot` into `folder`; returns its path."""
    os.makedirs(folder, exist_ok=True)
    stamp = datetime.datetime.now().strftime("%Y-%m-%d_%H.%M.%S.%f")
    path = os.path.join(folder, f"{stamp}_backward_graph.dot")
    with open(path, "w", encoding="utf-8") as file:
        file.write(draw(roots))
    return path


def draw(roots: list[Tensor]) -> str:
    """The nodes that a backward pass from `roots` visits; edges carry the gradients' types."""
    names: dict[Any, str] = {}
    lines: list[str] = []
    stack = [_node(r._node) for r in roots if r._node is not None]
    while stack:
        node = stack.pop()
        if node in names:
            continue
        names[node] = f"n{len(names)}"
        lines.append(f'  {names[node]} [label="{_label(node)}"];')
        stack += [_node(e) for e in node.edges if e is not None]
    for node, name in names.items():
        types = getattr(getattr(node, "call", None), "types", None)
        for i, edge in enumerate(node.edges):
            if edge is not None:
                label = f' [label="{types[i]}"]' if types is not None else ""
                lines.append(f"  {name} -> {names[_node(edge)]}{label};")
    return "\n".join(["digraph backward {", "  node [shape=box];", *lines, "}", ""])


def _node(edge: Any) -> Any:
    return edge.node if edge.__class__ is Output else edge


def _label(node: Any) -> str:
    if node.__class__ is LeafNode:
        tensor = node.tensor()
        return "leaf" if tensor is None else f"{tensor.name}\\n{tensor._value.aval}"
    return f"{node.name}_grad"
