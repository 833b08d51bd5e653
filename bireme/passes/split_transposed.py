"""Replace transposed convolutions that are products with every pixel."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.capture.rewrite import GraphBuilder
from bireme.core.aval import aval
from bireme.core.graph import Graph, Node
from bireme.core.op import OPS
from bireme.passes.manager import register

# What may come before or after the rearrangement of pixels, and takes numbers only.
_POINTWISE = {"relu", "relu6", "leaky_relu", "hardsigmoid", "hardswish", "sigmoid", "silu", "gelu"}


@register("split_transposed", order=65, on=False)
def split_transposed(graph: Graph) -> Graph:
    """Transposed convolutions of images whose windows lie side by side (the kernel is as large as
    the stride) as a 1x1 convolution, the activation after it, and a rearrangement of the pixels.
    For engines that have better kernels for those."""
    users: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for a in node.args:
            if a.__class__ is int:
                users.setdefault(a, []).append(node)  # type: ignore[arg-type]
    chosen = {n.first: n for n in graph.nodes if _fits(graph, n)}
    if not chosen:
        return graph
    moved: dict[int, Node] = {}  # activations, by the convolution that they go along with
    for first in chosen:
        after = users.get(first, [])
        if len(after) == 1 and first not in graph.outputs and _is_activation(after[0], first):
            moved[first] = after[0]
    taken = {n.first for n in moved.values()}
    builder = GraphBuilder(graph)
    builder.copy_inputs()
    for node in graph.nodes:
        if node.first in chosen:
            last = moved.get(node.first)
            made = _split(graph, builder, node, last)
            builder.refs[node.first if last is None else last.first] = made
        elif node.first not in taken:
            builder.copy(node)
    return builder.finish(graph.outputs)


def _fits(graph: Graph, node: Node) -> bool:
    call = node.call
    if call.op.name != "conv_transpose" or any(c is not None for c in call.casts):
        return False
    for ref in node.args[1:3]:
        if ref is not None and not (isinstance(ref, int) and -1 - ref in graph.constants):
            return False
    x, weight, attrs = call.types[0], call.types[1], call.attrs
    window: tuple[int, ...] = weight.shape[2:]  # type: ignore[union-attr]
    space = () if x.ndim != 4 else x.shape[1:3] if attrs["last"] else x.shape[2:]  # type: ignore
    return (
        bool(space)
        and attrs["groups"] == 1
        and tuple(attrs["stride"]) == window
        and tuple(attrs["dilation"]) == (1, 1)
        and all(pair == (0, 0) for pair in attrs["pads"])
        and all(s * k == o for s, k, o in zip(space, window, attrs["space"], strict=True))
    )


def _is_activation(node: Node, ref: int) -> bool:
    call = node.call
    return (
        call.op.name in _POINTWISE
        and node.args[0] == ref
        and not any(isinstance(a, int) for a in node.args[1:])
        and call.outs[0] is call.types[0]
    )


def _split(graph: Graph, builder: GraphBuilder, node: Node, activation: Node | None) -> int:
    call = node.call
    dtype, last = call.outs[0].dtype, call.attrs["last"]
    weight = np.asarray(graph.constants[-1 - node.args[1]])  # type: ignore[operator]
    channels, count, rows, columns = weight.shape
    parts = rows * columns
    # One output channel per place in a window and channel of the result, in this order.
    flat = weight.transpose(2, 3, 1, 0).reshape(parts * count, channels, 1, 1)
    given = node.args[2]
    bias = (
        np.zeros(count, dtype.numpy) if given is None else np.asarray(graph.constants[-1 - given])  # type: ignore[operator]
    )
    args = (
        builder.ref(node.args[0]),
        builder.constant(np.ascontiguousarray(flat)),
        builder.constant(np.tile(bias.reshape(-1), parts)),
    )
    how = {
        "stride": (1, 1),
        "pads": ((0, 0), (0, 0)),
        "dilation": (1, 1),
        "groups": 1,
        "last": last,
    }
    types = (call.types[0], aval(flat.shape, dtype), aval((parts * count,), dtype))
    made = _add(builder, "conv", types, args, how, node.tape)
    x: Any = call.types[0]
    n, height, width = (x.shape[0], *(x.shape[1:3] if last else x.shape[2:]))
    if activation is not None:
        rest = tuple([builder.ref(a) for a in activation.args[1:]])
        old = activation.call
        types = (builder.graph.nodes[-1].call.outs[0], *old.types[1:])
        fresh = old.op.call_with(types, old.layout, old.attrs, old.casts)
        made = builder.add(fresh, (made, *rest), activation.tape)[0]
    if last:
        wide, perm = (n, height, width, rows, columns, count), (0, 1, 3, 2, 4, 5)
    else:
        wide, perm = (n, rows, columns, count, height, width), (0, 3, 4, 1, 5, 2)
    for name, attrs in (
        ("reshape", {"shape": wide}),
        ("transpose", {"perm": perm}),
        ("reshape", {"shape": call.outs[0].shape}),
    ):
        types = (builder.graph.nodes[-1].call.outs[0],)
        made = _add(builder, name, types, (made,), attrs, node.tape)
    return made


def _add(builder: GraphBuilder, name: str, types: Any, args: Any, attrs: Any, tape: bool) -> int:
    op = OPS[name]
    layout, casts = (-1,) * len(types), (None,) * len(types)
    call = op.call_with(types, layout, {**op.attr_defaults, **attrs}, casts)
    return builder.add(call, args, tape)[0]
