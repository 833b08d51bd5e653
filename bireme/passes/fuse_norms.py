"""Replace layer and RMS normalisation that are written out by the fused ops."""

from __future__ import annotations

from typing import Any

from bireme.core.graph import Graph, Node, Ref
from bireme.passes.manager import register
from bireme.passes.matching import Matcher, Put, last_axes, operands, rewrite


@register("fuse_norms", order=50)
def fuse_norms(graph: Graph) -> Graph:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias as layer_norm; without the mean and
    the bias as rms_norm. Weight and bias may be missing."""
    return rewrite(graph, _find)


def _find(m: Matcher, node: Node) -> Put | None:
    unit = _unit(m, node.first)
    if unit is not None:
        return _put(unit, None, None)
    if m.made_by(node.first, "add") is not None:
        for scaled, bias in operands(node):
            found = _scaled(m, scaled)
            if found is not None and found[0].op == "layer_norm" and _fits(m, bias, found[0]):
                return _put(*found, bias)
    scaled = _scaled(m, node.first)
    return None if scaled is None else _put(*scaled, None)


def _put(unit: Put, weight: Ref, bias: Ref) -> Put:
    rest = (weight, bias) if unit.op == "layer_norm" else (weight,)
    return Put(unit.op, (unit.args[0], *rest), unit.attrs)


def _scaled(m: Matcher, ref: Ref) -> tuple[Put, Ref] | None:
    """(normalised values, weight) of a product of both."""
    node = m.made_by(ref, "multiply")
    if node is None:
        return None
    for a, weight in operands(node):
        unit = _unit(m, a)
        if unit is not None and _fits(m, weight, unit):
            return unit, weight
    return None


def _fits(m: Matcher, ref: Ref, unit: Put) -> bool:
    """Whether a factor or summand has exactly the normalised dimensions."""
    t, x = m.type_of(ref), m.type_of(unit.args[0])
    dims = unit.attrs["dims"]
    return (
        t is not None
        and x is not None
        and t.dtype is x.dtype
        and t.shape == x.shape[x.ndim - dims :]
    )


def _unit(m: Matcher, ref: Ref) -> Put | None:
    """The normalised values without weight and bias: d / sqrt(mean(d^2) + epsilon)."""
    node = m.made_by(ref, "multiply", "divide")
    if node is None:
        return None
    if node.call.op.name == "divide":
        return _normalised(m, *node.args, root="sqrt")  # type: ignore[arg-type]
    for d, factor in operands(node):
        found = _normalised(m, d, factor, root="rsqrt")
        if found is not None:
            return found
    return None


def _normalised(m: Matcher, d: Ref, factor: Ref, root: str) -> Put | None:
    taken = m.made_by(factor, root)
    shifted = None if taken is None else m.made_by(taken.args[0], "add")
    if shifted is None:
        return None
    for spread, small in operands(shifted):
        epsilon = m.number(small)
        if epsilon is None or not 0.0 <= epsilon < 1.0:
            continue
        centred = _centred(m, d)
        if centred is not None:
            x, dims = centred
            if _mean_square(m, spread, d) == dims or _variance(m, spread, x) == dims:
                return _unscaled("layer_norm", x, dims, epsilon)
        dims = _mean_square(m, spread, d)
        if dims is not None:
            return _unscaled("rms_norm", d, dims, epsilon)
    return None


def _unscaled(op: str, x: Ref, dims: int, epsilon: float) -> Put:
    return Put(op, (x,), {"dims": dims, "epsilon": epsilon})


def _centred(m: Matcher, ref: Ref) -> tuple[Ref, int] | None:
    """(x, dimensions) of x - mean(x)."""
    node = m.made_by(ref, "subtract")
    mean = None if node is None else m.made_by(node.args[1], "mean")
    if node is None or mean is None or mean.args[0] != node.args[0]:
        return None
    dims = _dims(m, mean)
    return None if dims is None else (node.args[0], dims)


def _mean_square(m: Matcher, ref: Ref, d: Ref) -> int | None:
    """The dimensions over which `ref` is the mean of d^2."""
    mean = m.made_by(ref, "mean")
    if mean is None:
        return None
    inner: Any = m.made_by(mean.args[0], "square", "small_power", "multiply", "power")
    if inner is None or inner.args[0] != d:
        return None
    name = inner.call.op.name
    if name == "small_power" and inner.call.attrs["n"] != 2:
        return None
    if name == "multiply" and inner.args[1] != d:
        return None
    if name == "power" and not m.is_number(inner.args[1], 2.0):
        return None
    return _dims(m, mean)


def _variance(m: Matcher, ref: Ref, x: Ref) -> int | None:
    node = m.made_by(ref, "var")
    if node is None or node.args[0] != x or node.call.attrs["correction"] != 0.0:
        return None
    return _dims(m, node)


def _dims(m: Matcher, reduction: Node) -> int | None:
    """How many last dimensions a reduction with keepdim goes over. All of them would flatten
    to one row, which the fused ops take too."""
    t = m.type_of(reduction.args[0])
    if t is None or not reduction.call.attrs["keepdim"] or not t.dtype.is_floating:
        return None
    return last_axes(reduction.call.attrs["axis"], t.ndim)
