"""Fuse squeeze-and-excitation blocks: channels scaled by a small net of their means."""

from __future__ import annotations

from typing import Any

from bireme.core.dtype import as_dtype
from bireme.core.graph import Graph, Node, Ref
from bireme.ops.fused_products import mean_axes
from bireme.passes.fuse_products import activation, is_constant
from bireme.passes.manager import register
from bireme.passes.matching import Matcher, Put, operands, rewrite


@register("fuse_squeeze", order=62, on=False)
def fuse_squeeze(graph: Graph) -> Graph:
    """Squeeze and excitation as one call: images times factors that two 1x1 convolutions make of
    the channels' means, with the images added again where they are. For engines that have such
    a kernel."""
    return rewrite(graph, _find)


def _find(m: Matcher, node: Node) -> Put | None:
    if m.made_by(node.first, "add") is not None:
        for x, scaled in operands(node):
            product = m.made_by(scaled, "multiply")
            if product is not None and x in product.args and len(m.users[product.first]) == 1:
                return _excited(m, product, 1.0)
        return None
    return None if m.made_by(node.first, "multiply") is None else _excited(m, node, 0.0)


def _excited(m: Matcher, node: Node, plus: float) -> Put | None:
    for x, factors in operands(node):
        made = m.type_of(x)
        if made is None or made is not node.call.outs[0] or made.ndim != 4:
            continue
        if made.dtype is not as_dtype("float32"):
            continue
        outer, ref = activation(m, factors)
        second = _pointwise(m, ref)
        if second is None:
            continue
        inner, ref = activation(m, second.args[0])
        first = _pointwise(m, ref)
        last = bool(second.call.attrs["last"])
        if first is None or bool(first.call.attrs["last"]) != last:
            continue
        if _mean_of(m, first.args[0], last) != x:
            continue
        attrs = {"inner": inner, "outer": outer, "plus": plus, "last": last}
        weights = [_matrix(first), first.args[2], _matrix(second), second.args[2]]
        return Put("squeeze_excite", (x, *weights), attrs)
    return None


def _pointwise(m: Matcher, ref: Ref) -> Node | None:
    """A 1x1 convolution with constant weights and a bias."""
    node = m.made_by(ref, "conv")
    if node is None or not all(is_constant(m, a) for a in node.args[1:3]):
        return None
    attrs, weight = node.call.attrs, node.call.types[1]
    fits = (
        weight.shape[2:] == (1, 1)  # type: ignore[union-attr]
        and attrs["groups"] == 1
        and tuple(attrs["stride"]) == (1, 1)
        and all(tuple(pair) == (0, 0) for pair in attrs["pads"])
    )
    return node if fits else None


def _matrix(node: Node) -> Put:
    """The weight of a 1x1 convolution as [in, out]."""
    weight: Any = node.call.types[1]
    flat = Put("reshape", (node.args[1],), {"shape": weight.shape[:2]})
    return Put("transpose", (flat,), {"perm": (1, 0)})


def _mean_of(m: Matcher, ref: Ref, last: bool) -> Ref:
    """The value whose mean over all pixels `ref` is; None if it is something else."""
    node = m.made_by(ref, "mean", "avg_pool")
    if node is None or mean_axes(node.call) != ((1, 2) if last else (2, 3)):
        return None
    return node.args[0] if node.call.outs[0].ndim == 4 else None
