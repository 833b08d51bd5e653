"""A model of Bireme Lite in the making: graphs of values and nodes, sizes, constants."""

from __future__ import annotations

import ast
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import bireme
from bireme.capture import symbols
from bireme.core.errors import BiremeError, InvalidArgument
from bireme.lite.flat import Table, Vector, encode

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import IO

VERSION = 1
TYPES = {
    "bool": 0,
    "uint8": 1,
    "int8": 2,
    "int32": 3,
    "uint32": 4,
    "int64": 5,
    "float32": 6,
    "float64": 7,
}
WEIGHTS = ("float32", "float16", "int8")
_COMPUTED, _INPUT, _CONSTANT = range(3)
_EXPRESSION = -(1 << 63)  # plus i: the i-th expression
_MAX_RANK = 8
_ALIGN = 64
_LEAST_PACKED = 256  # elements of a constant that is stored in fewer bits

# A size: a number or a symbolic dimension.
Dim = object


class UnsupportedForm(BiremeError, NotImplementedError):
    """An operation that Bireme Lite has no form for."""


class Operand(NamedTuple):
    """A value in a graph. `shape` is what is stored; axes that are 1 there and not in `full` are
    repeated by whoever takes it."""

    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    shape: tuple[Dim, ...]
    full: tuple[Dim, ...]
    dtype: np.dtype

    @property
    def rank(self) -> int:
        return len(self.full)


@dataclass(slots=True)
class _Value:
    shape: tuple[Dim, ...]
    dtype: np.dtype
    kind: int
    array: np.ndarray | None = None


@dataclass(slots=True)
class _Node:
    op: str
    inputs: list[int]
    outputs: list[int]
    attrs: list[Dim]
    numbers: list[float]
    graphs: list[int]


@dataclass(slots=True, eq=False)
class GraphWriter:
    """One graph: that of the model, or of a branch or loop."""

    model: ModelWriter
    values: list[_Value] = field(default_factory=list)
    nodes: list[_Node] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    _constants: dict[object, Operand] = field(default_factory=dict)
    _roots: dict[int, int] = field(default_factory=dict)

    def _new(self, shape: Iterable[Dim], dtype: object, kind: int) -> Operand:
        dtype, shape = np.dtype(dtype), tuple(shape)  # type: ignore[arg-type]
        if dtype.name not in TYPES:
            raise UnsupportedForm(f"values of type {dtype.name} have no form in Bireme Lite")
        if len(shape) > _MAX_RANK:
            raise UnsupportedForm(f"values of more than {_MAX_RANK} axes have no form")
        self.values.append(_Value(shape, dtype, kind))
        return Operand(len(self.values) - 1, shape, shape, dtype)

    def input(self, shape: Iterable[Dim], dtype: object) -> Operand:
        made = self._new(shape, dtype, _INPUT)
        self.inputs.append(made.index)
        return made

    def constant(self, array: np.ndarray) -> Operand:
        """Small constants that are equal are kept once, large ones if they are one array."""
        array = np.asarray(array, order="C")
        key: object = id(array)
        if array.size <= 1024:
            key = (array.dtype.str, array.shape, array.tobytes())
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = self._new(array.shape, array.dtype, _CONSTANT)
            self.values[found.index].array = array
        return found

    def weight(self, x: Operand) -> Operand:
        """This constant multiplies others: it may be stored in fewer bits."""
        if self.values[x.index].array is not None:
            self.model.packable.add(id(self.values[x.index].array))
        return x

    def array(self, x: Operand) -> np.ndarray | None:
        """The contents of a constant, as it is stored."""
        return self.values[x.index].array

    def emit(
        self,
        op: str,
        inputs: Sequence[Operand | None],
        shape: Iterable[Dim],
        dtype: object,
        attrs: Sequence[Dim] = (),
        numbers: Sequence[float] = (),
    ) -> Operand:
        """A node with one result."""
        return self.emit_many(op, inputs, [(shape, dtype)], attrs, numbers)[0]

    def emit_many(
        self,
        op: str,
        inputs: Sequence[Operand | None],
        results: Sequence[tuple[Iterable[Dim], object]],
        attrs: Sequence[Dim] = (),
        numbers: Sequence[float] = (),
        graphs: Sequence[int] = (),
    ) -> list[Operand]:
        made = [self._new(shape, dtype, _COMPUTED) for shape, dtype in results]
        given = [-1 if i is None else i.index for i in inputs]
        self.nodes.append(
            _Node(op, given, [m.index for m in made], list(attrs), list(numbers), list(graphs))
        )
        if op == "reshape":
            self._roots[made[0].index] = self._root(given[0])
        return made

    def _root(self, index: int) -> int:
        return self._roots.get(index, index)

    def whole(self, x: Operand) -> Operand:
        """The operand with its repeated axes written out."""
        if x.shape == x.full:
            return x
        if all(d == 1 for d in x.full):
            return self.reshape(x, x.full)
        return self.emit("expand", [x], x.full, x.dtype)

    def reshape(self, x: Operand, shape: Iterable[Dim]) -> Operand:
        """Another shape of what is stored."""
        shape = tuple(shape)
        if shape == x.shape:
            return Operand(x.index, shape, shape, x.dtype)
        array = self.array(x)
        if array is not None and all(type(d) is int for d in shape):
            return self.constant(array.reshape([int(d) for d in shape]))  # type: ignore[call-overload]
        return self.emit("reshape", [x], shape, x.dtype)

    def transpose(self, x: Operand, order: Sequence[int]) -> Operand:
        if list(order) == list(range(x.rank)):
            return x
        array = self.array(x)
        if array is not None and x.shape == x.full:
            return self.constant(np.ascontiguousarray(array.transpose(order)))
        x = self.whole(x)
        return self.emit("transpose", [x], [x.shape[a] for a in order], x.dtype, list(order))

    def finish(self, outputs: Sequence[Operand], copies: bool) -> None:
        """Set the results. With `copies` each lies in memory of its own, as loops need it."""
        seen: set[int] = set()
        for x in outputs:
            x = self.whole(x)
            root = self._root(x.index)
            if copies and (root in seen or self.values[root].kind != _COMPUTED):
                x = self.emit("copy", [x], x.shape, x.dtype)
                root = x.index
            seen.add(root)
            self.outputs.append(x.index)

    def prune(self) -> None:
        """Leave out nodes and values that no result depends on."""
        wanted = set(self.outputs)
        nodes = []
        for n in reversed(self.nodes):
            if wanted.intersection(n.outputs):
                wanted.update(n.inputs)
                nodes.append(n)
        self.nodes = nodes[::-1]
        wanted.update(self.inputs, *[n.outputs for n in self.nodes])
        wanted.discard(-1)
        new = {old: at for at, old in enumerate(sorted(wanted))}
        new[-1] = -1
        self.values = [self.values[old] for old in sorted(wanted)]
        for n in self.nodes:
            n.inputs, n.outputs = [new[i] for i in n.inputs], [new[o] for o in n.outputs]
        self.inputs, self.outputs = [new[i] for i in self.inputs], [new[o] for o in self.outputs]


class ModelWriter:
    """All graphs of a model, and the expressions of sizes that they share."""

    def __init__(self, weights: str = "float32"):
        if weights not in WEIGHTS:
            raise InvalidArgument(
                f"weights are stored as {', '.join(WEIGHTS)}. Received: {weights!r}"
            )
        self.weights = weights
        self.graphs: list[GraphWriter] = []
        self.packable: set[int] = set()  # arrays that may be stored in fewer bits, by id
        self.symbols: dict[str, tuple[int, int, int, int]] = {}  # number, input, axis, factor
        self._expressions: dict[str, tuple[int, list[int]]] = {}

    def graph(self) -> GraphWriter:
        self.graphs.append(GraphWriter(self))
        return self.graphs[-1]

    def declare(self, dim: Dim, argument: int, axis: int) -> None:
        """The first place where a symbol can be read."""
        name, factor = symbols.unknown(dim)
        self.symbols.setdefault(name, (len(self.symbols), argument, axis, factor))

    def size(self, dim: Dim) -> int:
        """A size or attribute as the file holds it."""
        if isinstance(dim, int | np.integer):
            return int(dim)
        text = str(dim)
        found = self._expressions.get(text)
        if found is None:
            code = self._code(symbols.syntax_tree(text))
            found = self._expressions[text] = (len(self._expressions), code)
        return _EXPRESSION + found[0]

    def _code(self, node: ast.expr) -> list[int]:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return [0, node.value]
        if isinstance(node, ast.Name):
            return [1, self.symbols[node.id][0]]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return [*self._code(node.operand), 9]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            if isinstance(node.right, ast.Constant) and type(node.right.value) is int:
                left = self._code(node.left)
                return [*left, *[c for _ in range(node.right.value - 1) for c in (*left, 4)]]
        elif isinstance(node, ast.BinOp):
            kinds: dict[type[ast.operator], int] = {ast.Add: 2, ast.Sub: 3, ast.Mult: 4}
            if type(node.op) in kinds:
                return [*self._code(node.left), *self._code(node.right), kinds[type(node.op)]]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            kind = {"floordiv": 5, "mod": 6, "max": 7, "min": 8}.get(node.func.id)
            if kind is not None and len(node.args) == 2:
                return [*self._code(node.args[0]), *self._code(node.args[1]), kind]
        raise UnsupportedForm(f"the size {ast.unparse(node)!r} has no form in Bireme Lite")

    # --- the file -------------------------------------------------------------------------------

    def write(self, file: IO[bytes], inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """The whole file; see lite/model.fbs."""
        parts: list[bytes | np.ndarray] = []
        places: dict[int, tuple[int, int, int]] = {}
        at = 0
        graphs = []
        for g in self.graphs:
            g.prune()
            values = []
            for v in g.values:
                offset = storage = axis = 0
                if v.array is not None:
                    if id(v.array) not in places:
                        packed, storage, axis = self._stored(v.array)
                        places[id(v.array)] = (at, storage, axis)
                        parts.append(packed)
                        size = packed.nbytes if isinstance(packed, np.ndarray) else len(packed)
                        parts.append(bytes(-size % _ALIGN))
                        at += size + -size % _ALIGN
                    offset, storage, axis = places[id(v.array)]
                values.append(self._value(v, offset, storage, axis))
            nodes = [self._node(n) for n in g.nodes]
            made = Table({}, {0: values, 1: nodes})
            made.children.update({2: Vector("i", g.inputs), 3: Vector("i", g.outputs)})
            graphs.append(made)
        root = Table({0: ("i", VERSION)}, {1: f"bireme {bireme.__version__}", 2: graphs})
        root.children[3] = [Table({}, {0: Vector("q", c)}) for _, c in self._expressions.values()]
        root.children[4] = [
            Table({1: ("i", i), 2: ("i", axis), 3: ("q", factor)}, {0: name})
            for name, (_, i, axis, factor) in self.symbols.items()
        ]
        root.children[5], root.children[6] = list(inputs), list(outputs)
        head = encode(root, b"BLM1")
        head += bytes(-len(head) % _ALIGN)
        file.write(head)
        for part in parts:
            file.write(part.data if isinstance(part, np.ndarray) else part)
        file.write(struct.pack("<Q", len(head)))

    def _value(self, v: _Value, offset: int, storage: int, axis: int) -> Table:
        numbers: dict[int, tuple[str, int | float]] = {0: ("B", TYPES[v.dtype.name])}
        numbers.update({1: ("B", v.kind), 2: ("B", storage), 3: ("B", axis), 5: ("Q", offset)})
        return Table(numbers, {4: Vector("q", [self.size(d) for d in v.shape])})

    def _node(self, n: _Node) -> Table:
        children: dict[int, Vector | Sequence[Table] | Sequence[str] | str] = {0: n.op}
        children.update({1: Vector("i", n.inputs), 2: Vector("i", n.outputs)})
        if n.attrs:
            children[3] = Vector("q", [self.size(a) for a in n.attrs])
        if n.numbers:
            children[4] = Vector("d", n.numbers)
        if n.graphs:
            children[5] = Vector("i", n.graphs)
        return Table({}, children)

    def _stored(self, array: np.ndarray) -> tuple[bytes | np.ndarray, int, int]:
        """(its bytes, how they are stored, the axis that has scales)."""
        large = array.dtype == np.float32 and array.ndim > 1 and array.size >= _LEAST_PACKED
        if self.weights == "float32" or not large or id(array) not in self.packable:
            return np.ascontiguousarray(array), 0, 0
        if self.weights == "float16":
            low = array.astype(np.float16)
            if not np.isfinite(low).all():
                return np.ascontiguousarray(array), 0, 0
            return low.tobytes() + bytes(-low.nbytes % 4), 1, 0
        # Convolutions have their outputs first, linear layers last: scales go with outputs.
        axis = 0 if array.ndim > 2 else array.ndim - 1
        others = tuple(a for a in range(array.ndim) if a != axis)
        scales = np.maximum(np.abs(array).max(axis=others), 1e-30).astype(np.float32) / 127
        shape = [-1 if a == axis else 1 for a in range(array.ndim)]
        low = np.rint(array / scales.reshape(shape)).astype(np.int8)
        return low.tobytes() + bytes(-low.size % 4) + scales.astype("<f4").tobytes(), 2, axis
