"""Fuse the following sum, activation, scale and shift into convolutions and linear layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bireme.capture.rewrite import GraphBuilder
from bireme.core.aval import aval
from bireme.core.dtype import as_dtype
from bireme.core.graph import Graph, Node, Ref
from bireme.passes.manager import register
from bireme.passes.matching import Matcher, Put, is_value, operands, rewrite

# Activations that fused ops know, and how many numbers each takes.
_ACTIVATIONS = {
    "relu": 0, "relu6": 0, "leaky_relu": 1, "hardsigmoid": 2, "hardswish": 0, "sigmoid": 0,
    "silu": 0, "gelu": 0,
}  # fmt: skip


@register("fuse_products", order=70, on=False)
def fuse_products(graph: Graph) -> Graph:
    """Convolutions and linear layers with constant weights as one call with what follows: a sum
    with another value, an activation, a number that scales and one that shifts. For engines
    that have such kernels."""
    return rewrite(_with_biases(graph), _find)


@dataclass
class _After:
    """The fused operations after a product, last ones first."""

    factor: float = 1.0
    shift: float = 0.0
    activation: tuple[str, tuple[float, ...]] = ("", ())
    added: Ref = None


def _find(m: Matcher, node: Node) -> Put | None:
    after = _After()
    ref: Ref = node.first
    made = m.type_of(ref)
    if made is None or made.dtype is not as_dtype("float32"):
        return None
    ref = _affine(m, ref, after)
    ref = _activation(m, ref, after)
    found = _product(m, ref)
    if found is None:
        found = _sum(m, ref, after)
    if found is None or m.type_of(found.first) is not made:
        return None
    then = (*after.activation, after.factor, after.shift)
    args = (*found.args[:3], after.added)
    name = f"fused_{found.call.op.name}"
    return Put(name, args, {**found.call.attrs, "then": then})


def _affine(m: Matcher, ref: Ref, after: _After) -> Ref:
    """Past `* number` and `+ number`, in this order or one of them."""
    node = m.made_by(ref, "add")
    if node is not None:
        for value, number in operands(node):
            shift = m.number(number)
            if shift is not None and m.type_of(value) is node.call.outs[0]:
                after.shift, ref = shift, value
                break
    node = m.made_by(ref, "multiply")
    if node is not None:
        for value, number in operands(node):
            factor = m.number(number)
            if factor is not None and m.type_of(value) is node.call.outs[0]:
                after.factor, ref = factor, value
                break
    return ref


def _activation(m: Matcher, ref: Ref, after: _After) -> Ref:
    after.activation, ref = activation(m, ref)
    return ref


def activation(m: Matcher, ref: Ref) -> tuple[tuple[str, tuple[float, ...]], Ref]:
    """(the activation that made `ref`, with its numbers; its input)."""
    nothing = ("", ())
    node = m.made_by(ref, *_ACTIVATIONS)
    if node is None or any(node.call.attrs.values()):  # gelu by tanh
        return nothing, ref
    numbers = [n for a in node.args[1:] if (n := m.number(a)) is not None]
    if len(numbers) != _ACTIVATIONS[node.call.op.name]:
        return nothing, ref
    return (node.call.op.name, tuple(numbers)), node.args[0]


def _sum(m: Matcher, ref: Ref, after: _After) -> Node | None:
    node = m.made_by(ref, "add")
    if node is None:
        return None
    for mine, other in operands(node):
        found = _product(m, mine)
        if (
            found is not None
            and is_value(other)
            and m.type_of(other) is m.type_of(mine)
            and mine != other
            and len(m.users[found.first]) == 1
        ):
            after.added = other
            return found
    return None


def _product(m: Matcher, ref: Ref) -> Node | None:
    """A convolution of images or a linear layer with a constant weight and bias."""
    node = m.made_by(ref, "conv", "linear")
    if node is None or not all(is_constant(m, a) for a in node.args[1:3]):
        return None
    x, weight = node.call.types[:2]
    if node.call.op.name == "linear":
        return node if x.ndim >= 2 else None  # type: ignore[union-attr]
    groups = node.call.attrs["groups"]
    fits = x.ndim == 4 and (groups == 1 or weight.shape[:2] == (groups, 1))  # type: ignore
    return node if fits and all(p >= 0 for pair in node.call.attrs["pads"] for p in pair) else None


def is_constant(m: Matcher, ref: Any) -> bool:
    return is_value(ref) and ref < 0 and -1 - ref in m.graph.constants


def _with_biases(graph: Graph) -> Graph:
    """The graph in which every convolution and linear layer has a bias, of zeros if need be."""
    lacking = {
        n.first for n in graph.nodes if n.call.op.name in ("conv", "linear") and n.args[2] is None
    }
    if not lacking:
        return graph
    builder = GraphBuilder(graph)
    builder.copy_inputs()
    for node in graph.nodes:
        if node.first not in lacking:
            builder.copy(node)
            continue
        call = node.call
        last = call.op.name == "linear" or call.attrs.get("last")
        out = call.outs[0]
        count = out.shape[out.ndim - 1 if last else 1]
        bias = builder.constant(np.zeros(count, out.dtype.numpy))
        types = (*call.types[:2], aval((count,), out.dtype))
        args = (*[builder.ref(a) for a in node.args[:2]], bias)
        fresh = call.op.call_with(types, (-1,) * 3, call.attrs, (None,) * 3)
        results = builder.add(fresh, args, node.tape)
        builder.refs.update(zip(node.results, results, strict=True))
    return builder.finish(graph.outputs)
