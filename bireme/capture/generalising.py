"""One graph for two that differ in one size alone, with a symbol for the size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bireme.capture import symbols
from bireme.capture.padded import SizeRange
from bireme.core.aval import Aval, aval
from bireme.core.dims import is_symbolic
from bireme.core.grad_op import GradOp
from bireme.core.graph import Graph, Node
from bireme.core.op import Call

LEAST = 2  # a size of 1 is broadcast, and one of 0 is empty: other rules


class Different(Exception):
    """Two programs do not differ in one size alone."""


@dataclass(frozen=True)
class _Pairs:
    """What differs between two graphs, as `factor * size + rest`."""

    sizes: tuple[int, int]  # the size in each

    def dimension(self, a: int, b: int, symbol: Any) -> Any:
        factor, left = divmod(a - b, self.sizes[0] - self.sizes[1])
        if left:
            raise Different(f"{a} and {b} where the size is {self.sizes}")
        return factor * symbol + (a - factor * self.sizes[0])


def generalised(
    a: Graph, b: Graph, within: Callable[[tuple[int, int]], SizeRange]
) -> tuple[Graph, SizeRange]:
    """The graph of both with a symbol where they differ, for the range that `within` gives for
    their sizes; raises Different."""
    if (
        len(a.nodes) != len(b.nodes)
        or len(a.inputs) != len(b.inputs)
        or any(
            m.args != n.args or m.call.op is not n.call.op
            for m, n in zip(a.nodes, b.nodes, strict=True)
        )
    ):
        raise Different("other operations")
    pairs = _Pairs(_unit(a, b))
    sizes = within(pairs.sizes)
    merge = _Merge(pairs, symbols.bounded(sizes.name, sizes.low, sizes.high))
    inputs = [merge.type(s, t) for s, t in zip(a.inputs, b.inputs, strict=True)]
    nodes = []
    for m, n in zip(a.nodes, b.nodes, strict=True):
        call = merge.call(m.call, n.call)
        outs = tuple([merge.type(s, t) for s, t in zip(m.call.outs, n.call.outs, strict=True)])
        if call.outs != outs:
            raise Different(f"[{call.op.name}] makes {call.outs}, not {outs}")
        nodes.append(Node(call, n.args, n.first, n.tape))
    return b.copy(inputs=inputs, nodes=nodes), sizes


def _unit(a: Graph, b: Graph) -> tuple[int, int]:
    """The size that all others are multiples of: of those that differ, the one that differs least,
    an input's if there is one."""
    found: tuple[int, int] | None = None
    for x, y in _differing(a, b):
        if x != y and (found is None or abs(x - y) < abs(found[0] - found[1])):
            found = x, y
    if found is None:
        raise Different("no size differs")
    return found


def _differing(a: Graph, b: Graph) -> Iterator[tuple[int, int]]:
    types = list(zip(a.inputs, b.inputs, strict=True))
    for m, n in zip(a.nodes, b.nodes, strict=True):
        types += zip(m.call.outs, n.call.outs, strict=True)
    for s, t in types:
        if s is not t:
            if s.ndim != t.ndim:
                raise Different("another number of axes")
            yield from zip(s.shape, t.shape, strict=True)


class _Merge:
    """Builds what two graphs have in common, with `symbol` for the size."""

    def __init__(self, pairs: _Pairs, symbol: Any):
        self._pairs = pairs
        self._symbol = symbol
        self._calls: dict[tuple[int, int], Call] = {}

    def type(self, s: Any, t: Any) -> Any:
        if s is t:
            return s
        if not (isinstance(s, Aval) and isinstance(t, Aval)) or s.dtype is not t.dtype:
            raise Different(f"{s} and {t}")
        if s.ndim != t.ndim:
            raise Different("another number of axes")
        return aval(
            tuple([self.value(x, y) for x, y in zip(s.shape, t.shape, strict=True)]), s.dtype
        )

    def value(self, x: Any, y: Any) -> Any:
        """An attribute, or a size."""
        if x is y:
            return x
        if type(x) is not type(y):
            raise Different(f"{x!r} and {y!r}")
        if type(x) is tuple and len(x) == len(y):
            return tuple([self.value(p, q) for p, q in zip(x, y, strict=True)])
        if isinstance(x, slice):
            parts = ((x.start, y.start), (x.stop, y.stop), (x.step, y.step))
            return slice(*[self.value(p, q) for p, q in parts])
        if x == y:
            return x
        if type(x) is int:
            return self._pairs.dimension(x, y, self._symbol)
        raise Different(f"{x!r} and {y!r}")

    def call(self, c: Call, d: Call) -> Call:
        if c is d:
            return c
        key = (c.id, d.id)
        if key not in self._calls:
            self._calls[key] = self._merged(c, d)
        return self._calls[key]

    def _merged(self, c: Call, d: Call) -> Call:
        if c.op is not d.op or c.layout != d.layout or c.casts != d.casts:
            raise Different("other operations")
        if isinstance(c.op, GradOp):
            if c.attrs["needs"] != d.attrs["needs"]:
                raise Different("other gradients")
            forward = self.call(c.attrs["forward"], d.attrs["forward"])
            present = tuple([t is not None for t in c.types[: c.layout[0]]])
            return forward.gradient(c.attrs["needs"], present)
        types = tuple([self.type(s, t) for s, t in zip(c.types, d.types, strict=True)])
        attrs = {k: self.value(v, d.attrs[k]) for k, v in c.attrs.items()}
        return c.op.call_with(types, c.layout, attrs, c.casts)


class Fit:
    """Whether a graph is a general one with a size in place of the symbol."""

    def __init__(self, name: str, size: int):
        self._sizes = {name: size}
        self._calls: dict[tuple[int, int], bool] = {}

    def graph(self, general: Graph, graph: Graph) -> bool:
        return all(map(self.type, general.inputs, graph.inputs)) and all(
            self.call(m.call, n.call) for m, n in zip(general.nodes, graph.nodes, strict=True)
        )

    def type(self, general: Any, t: Any) -> bool:
        if general is t:
            return True
        if not isinstance(general, Aval) or general.is_static or not isinstance(t, Aval):
            return False
        return symbols.substitute_type(general, self._sizes) is t and all(
            # As a size of one broadcasts and that of none is empty, the graph would be another.
            d >= LEAST
            for g, d in zip(general.shape, t.shape, strict=True)
            if is_symbolic(g)
        )

    def call(self, general: Call, call: Call) -> bool:
        if general is call:
            return True
        key = (general.id, call.id)
        if key not in self._calls:
            self._calls[key] = self._equal(general, call)
        return self._calls[key]

    def _equal(self, general: Call, call: Call) -> bool:
        if (
            general.op is not call.op
            or general.layout != call.layout
            or general.casts != call.casts
            or len(general.types) != len(call.types)
            or not all(map(self.type, general.types, call.types))
        ):
            return False
        if isinstance(general.op, GradOp):
            return general.attrs["needs"] == call.attrs["needs"] and self.call(
                general.attrs["forward"], call.attrs["forward"]
            )
        return all(
            v is call.attrs[k] or symbols.substitute(v, self._sizes) == call.attrs[k]
            for k, v in general.attrs.items()
        )
