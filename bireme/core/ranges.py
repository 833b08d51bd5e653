"""Ranges: static bounds of the elements of a value.

Most index tensors come from the host (labels, token ids) or from ops with bounded results (argmax,
arange, randperm), and are then cut, reshaped and joined. Following these ops gives the inputs and
numbers from which the elements come; their contents are read when the program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bireme.core import requirements
from bireme.core.aval import Aval
from bireme.core.graph import Graph, Node, Number, Ref
from bireme.core.place import default_place
from bireme.core.value import Value

if TYPE_CHECKING:
    from bireme.core.op import Call

_MANY = 16  # leaves that one range may depend on


class Range(NamedTuple):
    """Elements in [low, high], or taken from leaves, or equal to numbers of the run; perhaps NaN
    if `nan`."""

    low: float = inf
    high: float = -inf
    leaves: frozenset[int] = frozenset()
    numbers: frozenset[tuple[Number, int]] = frozenset()  # each with an addend
    nan: bool = False

    def joined(self, other: Range) -> Range:
        return Range(
            min(self.low, other.low),
            max(self.high, other.high),
            self.leaves | other.leaves,
            self.numbers | other.numbers,
            self.nan or other.nan,
        )

    def limits(
        self, leaves: Sequence[Any], floats: Sequence[Any], ints: Sequence[Any]
    ) -> tuple[float, float] | None:
        """(smallest, largest) in this run; None where that is not known on the host."""
        low, high = self.low, self.high
        for i in self.leaves:
            known = limits_of(leaves[i])
            if known is None:
                return None
            low, high = min(low, known[0]), max(high, known[1])
        for number, added in self.numbers:
            value = (floats if number.kind == "float" else ints)[number.index] + added
            if value != value:
                return None
            low, high = min(low, value), max(high, value)
        return low, high


def limits_of(value: Value, ignored: int | None = None) -> tuple[float, float] | None:
    """(smallest, largest) element of a leaf but for those equal to `ignored`, found once; None
    where its elements are on another device."""
    try:
        known = value.limits
    except AttributeError:
        known = value.limits = {}
    found = known.get(ignored)
    if found is None:
        array = _on_host(value)
        if array is None:
            return None
        found = known[ignored] = extremes(array if ignored is None else array[array != ignored])
    return found


def extremes(array: np.ndarray) -> tuple[float, float]:
    """(smallest, largest) element; an empty array has none, and NaN may be any number."""
    if not array.size:
        return inf, -inf
    low, high = array.min().item(), array.max().item()
    return (low, high) if low == low else (-inf, inf)


def _on_host(value: Value) -> np.ndarray | None:
    """The contents of a leaf if reading them costs no transfer."""
    buffer = value.buf
    if buffer.__class__ is np.ndarray:
        return buffer
    if hasattr(value, "host"):
        return value.host
    if default_place().is_cpu_place() and getattr(buffer, "is_fully_addressable", False):
        return np.asarray(buffer)
    return None


class RangeScope:
    """The values of one graph, with the ranges of its inputs."""

    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        inputs: Sequence[Range | None],
        plain: Sequence[int | None],
        number: Callable[[Number], Range | None],
    ):
        self.graph = graph
        self.nodes = nodes
        self.inputs = inputs
        self.plain = plain  # the program's leaf that an input is
        self.number = number
        self.makers = {r: (n, r - n.first) for n in nodes for r in n.results}
        self.known: dict[int, Range | None] = {}

    @staticmethod
    def of_program(graph: Graph, nodes: Sequence[Node]) -> RangeScope:
        """The values of a whole program, whose leaves and numbers a run brings."""
        leaves = [Range(leaves=frozenset([i])) for i in range(len(graph.inputs))]
        return RangeScope(
            graph, nodes, leaves, range(len(leaves)),
            lambda number: Range(numbers=frozenset([(number, 0)])),
        )  # fmt: skip

    def range_of(self, ref: Ref) -> Range | None:
        """The range of a value, an input or a number."""
        if ref is None:
            return None
        if isinstance(ref, Number):
            return self.number(ref)
        if ref < 0:
            return self.inputs[-1 - ref]
        if ref not in self.known:
            node, which = self.makers[ref]
            found = _range(self, node, which)
            if found is not None and len(found.leaves) + len(found.numbers) > _MANY:
                found = None
            self.known[ref] = found
        return self.known[ref]

    def plain_leaf(self, ref: Ref) -> int | None:
        """The program's leaf that a value is, perhaps in another shape."""
        while isinstance(ref, int) and ref >= 0:
            node, _ = self.makers[ref]
            if node.call.op.name not in _SAME:
                return None
            ref = node.args[0]
        return self.plain[-1 - ref] if isinstance(ref, int) else None


def inner_scopes(scope: RangeScope, node: Node) -> list[RangeScope]:
    """The values of the graphs that an entry runs, in the order of `requirements.inner_graphs`."""
    inner = requirements.inner_graphs(node.call.attrs)
    return [_inner_scope(scope, node, g.graph, g.nodes) for g in inner]


def _inner_scope(scope: RangeScope, node: Node, graph: Graph, nodes: Sequence[Node]) -> RangeScope:
    inputs: list[Range | None] = [None] * len(graph.inputs)
    plain: list[int | None] = [None] * len(graph.inputs)
    for i, ref in node.call.op.passed_on(node.call, node.args, len(graph.inputs)):
        inputs[i], plain[i] = scope.range_of(ref), scope.plain_leaf(ref)
    for i, array in graph.constants.items():
        inputs[i] = Range(*extremes(np.asarray(array)))

    def number(which: Number) -> Range | None:
        value = graph.numbers.get(which)
        return None if value is None else Range(value, value)

    return RangeScope(graph, nodes, inputs, plain, number)


# --- ops ----------------------------------------------------------------------------------------

# Ops that only give their first input another shape or type.
_SAME = frozenset(
    ["reshape", "flatten_all", "squeeze", "unsqueeze", "cast", "assign_value", "detach"]
)
# Ops whose results are elements of their first input.
_TAKEN = _SAME | frozenset(
    [
        "transpose", "expand", "tile", "split", "unstack", "getitem", "getitem_at", "flip", "roll",
        "diagonal", "as_strided", "unfold", "gather", "gather_nd", "take_along_axis", "take",
        "take_rows", "take_last", "take_elements", "masked_select", "index", "pad_copy", "sort",
        "topk",
    ]
)  # fmt: skip
_UNIT = frozenset(["sigmoid", "softmax"])  # in [0, 1] or NaN, whatever is given


def _joined(scope: RangeScope, refs: Iterable[Any]) -> Range | None:
    made = Range()
    for ref in refs:
        found = scope.range_of(ref)
        if found is None:
            return None
        made = made.joined(found)
    return made


def _below(size: Any) -> Range | None:
    return Range(0, size - 1) if type(size) is int and size > 0 else None


def _size_along(call: Call) -> Any:
    t = call.types[0]
    axis = call.attrs.get("axis")
    if not isinstance(t, Aval):
        return None
    if axis is None or not t.shape:
        return t.size
    return t.shape[axis] if type(axis) is int else None


def _range(scope: RangeScope, node: Node, which: int) -> Range | None:
    call, args = node.call, node.args
    name = call.op.name
    if call.outs[which].dtype.name == "bool" or name == "one_hot":
        return Range(0, 1)
    if name in ("sort", "topk") and which == 1:
        return _below(_size_along(call))
    if name == "cast" and not _keeps_range(call):
        return None
    if name in _TAKEN:
        return scope.range_of(args[0])
    if name in ("argmax", "argmin"):
        return _below(_size_along(call))
    rule = _RULES.get(name)
    return None if rule is None else rule(scope, node)


def _keeps_range(call: Call) -> bool:
    """Whether a cast leaves the numbers as they are, or rounds within their limits."""
    have, want = call.types[0].dtype, call.outs[0].dtype  # type: ignore[union-attr]
    if have.name == "bool":
        return True
    if have.is_integer and want.is_integer:
        return (want.itemsize >= have.itemsize and want.name != "uint8") or want.itemsize >= 4
    return have.is_floating and want.is_floating


def _randint(scope: RangeScope, node: Node) -> Range | None:
    low, high = scope.range_of(node.args[2]), scope.range_of(node.args[3])
    if low is None or high is None or high.leaves:
        return None
    below = Range(
        high.low - 1, high.high - 1, numbers=frozenset((n, a - 1) for n, a in high.numbers)
    )
    return low.joined(below)


def _clip(scope: RangeScope, node: Node) -> Range | None:
    if node.args[1] is None or node.args[2] is None:
        return None
    found = _joined(scope, node.args[1:3])
    return None if found is None else found._replace(nan=node.call.outs[0].dtype.is_floating)


_RULES: dict[str, Callable[[RangeScope, Node], Range | None]] = {
    "where": lambda scope, node: _joined(scope, node.args[1:3]),
    "masked_fill": lambda scope, node: _joined(scope, (node.args[0], node.args[2])),
    "setitem": lambda scope, node: _joined(scope, node.args[:2]),
    "setitem_at": lambda scope, node: _joined(scope, node.args[:2]),
    "index_set": lambda scope, node: _joined(scope, node.args[:2]),
    "pad_constant": lambda scope, node: _joined(scope, node.args[:2]),
    "concat": lambda scope, node: _joined(scope, node.args),
    "stack": lambda scope, node: _joined(scope, node.args),
    "full": lambda scope, node: scope.range_of(node.args[0]),
    "randperm": lambda scope, node: _below(node.call.attrs["n"]),
    "randint": _randint,
    "clip": _clip,
    "multinomial": lambda scope, node: _below(node.call.types[0].shape[-1]),  # type: ignore
    **dict.fromkeys(_UNIT, lambda scope, node: Range(0, 1, nan=True)),
}
