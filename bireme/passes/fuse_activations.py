"""Replace GELU and SiLU that are written out by the fused ops."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from bireme.core.graph import Graph, Node, Ref
from bireme.passes.manager import register
from bireme.passes.matching import Matcher, Put, is_value, operands, rewrite, same

Factors = tuple[float, Counter[int]]  # a number, and how often each value occurs


@register("fuse_activations", order=60)
def fuse_activations(graph: Graph) -> Graph:
    """x * sigmoid(x) as silu, 0.5 * x * (1 + erf(x / sqrt(2))) and its tanh form as gelu."""
    return rewrite(graph, _find)


def _find(m: Matcher, node: Node) -> Put | None:
    if m.made_by(node.first, "multiply", "divide") is None:
        return None
    return _silu(m, node) or _gelu(m, node)


def _silu(m: Matcher, node: Node) -> Put | None:
    x: Ref = None
    if node.call.op.name == "multiply":
        for a, b in operands(node):
            gate = m.made_by(b, "sigmoid")
            if gate is not None and gate.args[0] == a:
                x = a
    else:  # x / (1 + exp(-x))
        below = _one_plus(m, node.args[1])
        power = m.made_by(below, "exp")
        negative = None if power is None else _factors(m, power.args[0])
        if negative == (-1.0, Counter({node.args[0]: 1})):
            x = node.args[0]
    return None if x is None else Put("silu", (x,), {})


def _gelu(m: Matcher, node: Node) -> Put | None:
    for inner, curve in _curves(m, node.first):
        for x in _candidates(m, inner):
            if _factors(m, node.first, stop=(x, curve)) != (0.5, Counter({x: 1, curve: 1})):
                continue
            made = m.makers[inner]
            approximate = made.call.op.name == "tanh"
            argument = made.args[0]
            fits = _is_tanh_argument if approximate else _is_erf_argument
            if is_value(argument) and fits(m, argument, x):  # type: ignore[arg-type]
                return Put("gelu", (x,), {"approximate": approximate})
    return None


def _curves(m: Matcher, ref: int) -> list[tuple[int, int]]:
    """(erf or tanh, 1 + it) for such factors of the product `ref`."""
    found = []
    for factor in _factors(m, ref)[1]:
        inner = _one_plus(m, factor)
        if m.made_by(inner, "erf", "tanh") is not None:
            found.append((inner, factor))
    return found  # type: ignore[return-value]


def _candidates(m: Matcher, inner: int) -> list[int]:
    """Values that may be the x of the curve's argument: all near above it."""
    found: list[int] = []
    todo: list[int] = [inner]
    for _ in range(5):
        args: list[Any] = [a for r in todo if r in m.makers for a in m.makers[r].args]
        todo = [a for a in dict.fromkeys(args) if is_value(a)]
        found += [a for a in todo if a not in found]
    return found


def _is_erf_argument(m: Matcher, ref: int, x: int) -> bool:
    number, values = _factors(m, ref, stop=(x,))
    return same(number, math.sqrt(0.5)) and values == Counter({x: 1})


def _is_tanh_argument(m: Matcher, ref: int, x: int) -> bool:
    """sqrt(2 / pi) * (x + 0.044715 * x^3), or x taken out of the sum."""
    number, values = _factors(m, ref, stop=(x,))
    total = [v for v in values if v != x]
    if not same(number, math.sqrt(2 / math.pi)) or len(total) != 1 or values[total[0]] != 1:
        return False
    outside = values[x]
    node = m.made_by(total[0], "add")
    if node is None or outside > 1:
        return False
    for a, b in operands(node):
        plain = m.is_number(a, 1.0) if outside else a == x
        if plain and is_value(b):
            cubic, powers = _factors(m, b, stop=(x,))
            if same(cubic, 0.044715) and powers == Counter({x: 3 - outside}):
                return True
    return False


def _one_plus(m: Matcher, ref: Ref) -> Ref:
    node = m.made_by(ref, "add")
    if node is None:
        return None
    return next((b for a, b in operands(node) if m.is_number(a, 1.0)), None)


def _factors(m: Matcher, ref: Ref, stop: tuple[Ref, ...] = ()) -> Factors:
    """A product as a number and values; values in `stop` are not taken apart."""
    number, values = 1.0, Counter[int]()
    todo: list[tuple[Ref, int]] = [(ref, 1)]
    while todo:
        at, power = todo.pop()
        constant = m.number(at)
        if constant is not None:
            number *= constant**power
            continue
        node = None
        if at not in stop:
            node = m.made_by(at, "multiply", "divide", "square", "small_power", "neg")
        name = None if node is None else node.call.op.name
        if node is None or (name == "divide" and not m.number(node.args[1])):
            values[at] += power  # type: ignore[index]
        elif name == "multiply":
            todo += [(a, power) for a in node.args]
        elif name == "divide":
            number /= (m.number(node.args[1]) or 1.0) ** power
            todo.append((node.args[0], power))
        elif name == "neg":
            number *= (-1.0) ** power
            todo.append((node.args[0], power))
        else:
            n = 2 if name == "square" else node.call.attrs["n"]
            todo.append((node.args[0], power * n))
    return number, values
