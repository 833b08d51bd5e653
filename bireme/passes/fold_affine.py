"""Fold scales and shifts of channels into the weights of a convolution or linear layer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bireme.capture.rewrite import GraphBuilder
from bireme.core.aval import aval
from bireme.core.graph import Graph, Node, Number
from bireme.core.op import OPS
from bireme.passes.manager import register

_PRODUCTS = ("linear", "matmul")
_STARTS = ("conv", "conv_transpose", *_PRODUCTS)


@dataclass
class _Chain:
    """A convolution or product and the calls after it that it can take over:
    y = scale * conv(x) + shift."""

    node: Node
    scale: np.ndarray
    shift: np.ndarray
    absorbed: list[int] = field(default_factory=list)
    end: int = -1


@register("fold_affine", order=15)
def fold_affine(graph: Graph) -> Graph:
    """Fold batch_norm, and products and sums with a number per channel, into the convolution or
    linear layer before them (a product with a matrix becomes one). Weights must be constants, and
    the values between must have no other readers."""
    uses: dict[int, int] = {}
    for ref in (*(a for n in graph.nodes for a in n.args), *graph.outputs):
        if isinstance(ref, int) and not isinstance(ref, Number):
            uses[ref] = uses.get(ref, 0) + 1
    chains: dict[int, _Chain] = {}  # by the value that a chain makes so far
    by_node: dict[int, _Chain] = {}
    for at, node in enumerate(graph.nodes):
        chain = _start(graph, node)
        if chain is not None:
            by_node[at] = chains[node.first] = chain
            continue
        chain = _extended(graph, node, chains, uses)
        if chain is not None:
            chain.absorbed.append(at)
            chain.end = node.first
            chains[node.first] = chain
    taken = {at for chain in by_node.values() for at in chain.absorbed}
    if not taken:
        return graph
    builder = GraphBuilder(graph)
    builder.copy_inputs()
    for at, node in enumerate(graph.nodes):
        chain = by_node.get(at)
        if chain is not None and chain.absorbed:
            builder.refs[chain.end] = _folded(graph, builder, chain)
        elif at not in taken:
            builder.copy(node)
    return builder.finish(graph.outputs)


def _constant(graph: Graph, ref: Any) -> np.ndarray | None:
    if isinstance(ref, Number):
        return np.asarray(graph.numbers[ref]) if ref in graph.numbers else None
    if isinstance(ref, int) and ref < 0 and -1 - ref in graph.constants:
        return np.asarray(graph.constants[-1 - ref])
    return None


def _start(graph: Graph, node: Node) -> _Chain | None:
    call = node.call
    name = call.op.name
    if name not in _STARTS or any(c is not None for c in call.casts):
        return None
    if name == "matmul" and (any(call.attrs.values()) or call.types[0].ndim < 2):  # type: ignore
        return None
    weight = _constant(graph, node.args[1])
    given = node.args[2] if len(node.args) > 2 else None
    bias = None if given is None else _constant(graph, given)
    if weight is None or (bias is None and given is not None):
        return None
    if name in _PRODUCTS and weight.ndim != 2:
        return None
    if weight.dtype not in (np.float32, np.float64):
        return None
    count = call.outs[0].shape[_channel_axis(node)]
    shift = np.zeros(count) if bias is None else bias.astype(np.float64).reshape(-1)
    return _Chain(node, np.ones(count), shift)


def _channel_axis(node: Node) -> int:
    last = node.call.op.name in _PRODUCTS or node.call.attrs.get("last")
    return node.call.outs[0].ndim - 1 if last else 1


def _extended(
    graph: Graph, node: Node, chains: dict[int, _Chain], uses: dict[int, int]
) -> _Chain | None:
    """The chain that this node continues, updated by what the node does."""
    call = node.call
    name = call.op.name
    if name not in ("batch_norm", "add", "subtract", "multiply"):
        return None
    if len(call.outs) != 1:
        return None
    if name == "batch_norm":
        if any(c is not None for c in call.casts):
            return None
        chain = _chain_of(node.args[0], chains, uses)
        stats = [None if a is None else _constant(graph, a) for a in node.args[1:]]
        if chain is None or call.attrs["axis"] != _channel_axis(chain.node):
            return None
        weight, bias, mean, variance = stats
        missing = [s is None and a is not None for s, a in zip(stats, node.args[1:], strict=True)]
        if any(missing) or mean is None or variance is None:
            return None
        factor = 1.0 / np.sqrt(variance.astype(np.float64) + call.attrs["epsilon"])
        factor = factor if weight is None else factor * weight
        chain.scale = chain.scale * factor
        chain.shift = (chain.shift - mean) * factor + (0.0 if bias is None else bias)
        return chain
    for mine, other in ((0, 1), (1, 0)):
        chain = _chain_of(node.args[mine], chains, uses)
        if chain is None or call.casts[mine] is not None or (name == "subtract" and mine == 1):
            continue
        value = _per_channel(_constant(graph, node.args[other]), chain, call.outs[0])
        if value is None:
            return None
        if name == "multiply":
            chain.scale, chain.shift = chain.scale * value, chain.shift * value
        else:
            chain.shift = chain.shift + (value if name == "add" else -value)
        return chain
    return None


def _chain_of(ref: Any, chains: dict[int, _Chain], uses: dict[int, int]) -> _Chain | None:
    if not isinstance(ref, int) or isinstance(ref, Number) or uses.get(ref) != 1:
        return None
    return chains.get(ref)


def _per_channel(array: np.ndarray | None, chain: _Chain, out: Any) -> np.ndarray | None:
    """A constant as one number per channel; None where it is more than that."""
    made = chain.node.call.outs[0]
    if array is None or array.ndim > made.ndim or out is not made:
        return None
    axis = _channel_axis(chain.node) - (made.ndim - array.ndim)
    if any(size != 1 for i, size in enumerate(array.shape) if i != axis):
        return None
    flat = array.astype(np.float64).reshape(-1)
    return flat if flat.size in (1, chain.scale.size) else None


def _folded(graph: Graph, builder: GraphBuilder, chain: _Chain) -> int:
    node = chain.node
    call = node.call
    weight = _constant(graph, node.args[1])
    assert weight is not None  # noqa: S101 (a chain starts with a constant weight)
    scale = np.broadcast_to(chain.scale, chain.shift.shape)
    if call.op.name in _PRODUCTS:  # [in, out]
        scaled = weight * scale
    elif call.op.name == "conv":  # [out, in / groups, …]
        scaled = weight * scale.reshape(-1, *[1] * (weight.ndim - 1))
    else:  # [in, out / groups, …]: the rows of one group make that group's outputs
        groups = call.attrs["groups"]
        parts = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
        factor = scale.reshape(groups, 1, weight.shape[1], *[1] * (weight.ndim - 2))
        scaled = (parts * factor).reshape(weight.shape)
    dtype = call.outs[0].dtype
    bias = builder.constant(chain.shift.astype(dtype.numpy))
    args = (builder.ref(node.args[0]), builder.constant(scaled.astype(weight.dtype)), bias)
    types = (*call.types[:2], aval((chain.shift.size,), dtype), *call.types[3:])
    rest = tuple([builder.ref(a) for a in node.args[3:]])
    # A product with a matrix takes no bias; a linear layer is one that does.
    op = OPS["linear"] if call.op.name == "matmul" else call.op
    attrs = dict(op.attr_defaults) if call.op.name == "matmul" else call.attrs
    fresh = op.call_with(types, (-1,) * len(types), attrs, (None,) * len(types))
    return builder.add(fresh, (*args, *rest), node.tape)[0]
