"""Reads TFLite's files into a Program.

Quantised values are computed with as real numbers that lie on their grid: constants become real at
once, and what an op makes is rounded to the grid of its result. Only inputs and results of the
model are integers. So a quantised model has gradients, and each op is one rule.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.program import Graph, Input, Node, Program
from bireme.convert.tflite.flat import Table, root
from bireme.convert.tflite.schema import OPS, settings, type_name, unpacked
from bireme.io.foreign import possible_shape

_QUANTISED = {"int8", "uint8", "int16", "int32", "int4"}
_MAX = 1_000_000  # ops or tensors
MAX_DENSE = 1 << 28  # elements of a tensor that is stored without its zeros


class Grid(NamedTuple):
    """The real numbers that integers stand for: (q - zero) * scale."""

    scale: np.ndarray | np.float32
    zero: np.ndarray | np.float32
    low: int
    high: int


class _Tensor(NamedTuple):
    name: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    dtype: str | None
    grid: Grid | None
    data: np.ndarray | None
    is_variable: bool


def read(data: bytes) -> Program:
    """The program of a file's contents."""
    model = root(data, b"TFL3")
    if model.integer(0, "uint") != 3:
        raise ModelFileError(
            f"[convert] version {model.integer(0, 'uint')} of TFLite's files; 3 can be read"
        )
    codes = [_op_name(c) for c in model.tables(1)]
    graphs = model.tables(2)
    buffers = model.tables(4)
    if not graphs or len(graphs) > 10_000:
        raise ModelFileError("[convert] the file holds no graph, or too many")
    made = [_Graph(g, i, codes, buffers, len(graphs)) for i, g in enumerate(graphs)]
    main = made[0]
    functions = {f"graph{i}": g.graph(inner=True) for i, g in enumerate(made) if i}
    labels = main.labels()
    return Program(
        "TFLite",
        main.graph(inner=False),
        main.inputs(),
        main.output_labels(),
        main.weights,
        frozenset(k for k, v in main.weights.items() if _is_weight(v)),
        labels,
        functions,
    )


def _is_weight(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" and array.ndim > 0 and array.size > 1


def _op_name(code: Table) -> str:
    # Small numbers are in the older field, too; the newer one counts where it is larger.
    number = max(code.integer(0, "byte"), code.integer(3, "int"))
    if not 0 <= number < len(OPS):
        return f"op {number}"
    return f"custom {code.text(1)[:80]}" if OPS[number] == "CUSTOM" else OPS[number]


class _Graph:
    def __init__(
        self, table: Table, number: int, codes: list[str], buffers: list[Table], graphs: int
    ):
        self._table, self._codes, self._graphs = table, codes, graphs
        tensors = table.tables(0)
        if len(tensors) > _MAX:
            raise ModelFileError(f"[convert] the file has more than {_MAX} tensors")
        self._tensors = [_tensor(t, buffers) for t in tensors]
        self._prefix = f"g{number}:" if number else ""
        self._inputs = self._indices(table, 1)
        self._outputs = self._indices(table, 2)
        self.weights: dict[str, np.ndarray] = {}
        made = {i for o in table.tables(3) for i in self._indices(o, 2)} | {*self._inputs}
        for i, tensor in enumerate(self._tensors):
            if tensor.data is not None:
                self.weights[self._name(i)] = tensor.data
            elif tensor.dtype and i not in made and 0 in tensor.shape:  # nothing to store
                self.weights[self._name(i)] = np.zeros(tensor.shape, _numpy(tensor.dtype))
            elif tensor.is_variable:
                raise UnsupportedModel(
                    f"[convert] the tensor {tensor.name!r:.80} keeps its value from call to call, "
                    "which has no rule"
                )

    def _indices(self, table: Table, field: int) -> list[int]:
        found = table.array(field, "int").tolist()
        if any(not -1 <= i < len(self._tensors) for i in found):
            raise ModelFileError("[convert] the file is damaged: there is no such tensor")
        return found

    def _name(self, index: int) -> str:
        return "" if index < 0 else f"{self._prefix}{index}"

    def labels(self) -> dict[str, str]:
        """Names of weights: those of the file, without dots."""
        return {
            self._name(i): t.name.replace(".", "_").replace(";", "_")[:200]
            for i, t in enumerate(self._tensors)
        }

    def graph(self, inner: bool) -> Graph:
        nodes = []
        operators = self._table.tables(3)
        if len(operators) > _MAX:
            raise ModelFileError(f"[convert] the file has more than {_MAX} operations")
        before, after = {}, {}
        if not inner:  # integers outside, real numbers inside
            before = {i: f"real {i}" for i in self._inputs if self._grid(i)}
            after = {i: f"whole {i}" for i in self._outputs if self._grid(i)}
            nodes += [self._bridge("read_grid", self._name(i), n, i) for i, n in before.items()]
        for at, operator in enumerate(operators):
            nodes.append(self._node(operator, at, before))
        if not inner:
            nodes = self._without_unpacking(nodes)
        for i, name in after.items():
            nodes.append(self._bridge("write_grid", before.get(i, self._name(i)), name, i))
        outputs = [after.get(i, self._name(i)) for i in self._outputs]
        return Graph(
            tuple([self._name(i) for i in self._inputs]),
            tuple(nodes),
            tuple(outputs),
            self.weights if inner else {},
        )

    def _without_unpacking(self, nodes: list[Node]) -> list[Node]:
        """Weights that ops make whole or real are so from the start: they can be trained."""
        kept = []
        for node in nodes:
            source = node.inputs[0] if len(node.inputs) == 1 else ""
            known = self.weights.get(source)
            if node.op in ("DENSIFY", "DEQUANTIZE") and known is not None and node.outputs:
                wide = node.op == "DEQUANTIZE" or known.dtype.kind == "f"
                self.weights[node.outputs[0]] = known.astype(np.float32) if wide else known
            else:
                kept.append(node)
        used = {name for node in kept for name in node.inputs}
        used.update(map(self._name, self._outputs))
        self.weights = {k: v for k, v in self.weights.items() if k in used}
        return kept

    def _grid(self, index: int) -> Grid | None:
        return self._tensors[index].grid if index >= 0 else None

    def _bridge(self, op: str, source: str, target: str, index: int) -> Node:
        tensor = self._tensors[index]
        attrs = {"grid": tensor.grid, "dtype": tensor.dtype}
        return Node(op, (source,), (target,), attrs, f"the tensor {tensor.name!r:.80}")

    def _node(self, operator: Table, at: int, renamed: dict[int, str]) -> Node:
        code = operator.integer(0, "uint")
        if code >= len(self._codes):
            raise ModelFileError("[convert] the file is damaged: there is no such operation")
        op = self._codes[code]
        inputs, outputs = self._indices(operator, 1), self._indices(operator, 2)
        attrs: dict[str, Any] = settings(op, operator.table(4))
        for key in ("then_graph", "else_graph", "cond_graph", "body_graph"):
            if key in attrs and not 0 < attrs[key] < self._graphs:
                raise ModelFileError(f"[convert] {op} refers to a graph that is not there")
        attrs["grids"] = [self._grid(i) for i in outputs]
        if op.startswith("custom "):
            attrs["custom"] = operator.array(5, "ubyte").tobytes()
        attrs["dtypes"] = [self._tensors[i].dtype for i in outputs]
        name = self._tensors[outputs[0]].name if outputs and outputs[0] >= 0 else ""
        return Node(
            op,
            tuple([renamed.get(i, self._name(i)) for i in inputs]),
            tuple([self._name(i) for i in outputs]),
            attrs,
            f"number {at}, for {name!r:.80}",
        )

    def inputs(self) -> tuple[Input, ...]:
        made = []
        for i, label in zip(self._inputs, self._unique(self._inputs, "input"), strict=True):
            tensor = self._tensors[i]
            if tensor.dtype is None:
                raise UnsupportedModel(f"[convert] the input {label!r:.80} is not of numbers")
            shape = tuple([None if s < 0 else s for s in tensor.signature])
            made.append(Input(self._name(i), label, shape, tensor.dtype))
        return tuple(made)

    def output_labels(self) -> tuple[str, ...]:
        return tuple(self._unique(self._outputs, "output"))

    def _unique(self, indices: list[int], kind: str) -> list[str]:
        if any(i < 0 for i in indices):
            raise ModelFileError(f"[convert] the file is damaged: an {kind} is missing")
        made: list[str] = []
        for i in indices:
            label = (
                self._tensors[i].name.removesuffix(":0").removeprefix("serving_default_") or kind
            )
            made.append(label if label not in made else f"{label}_{len(made)}")
        return made


# --- tensors --------------------------------------------------------------------------------


def _tensor(table: Table, buffers: list[Table]) -> _Tensor:
    name = table.text(3)
    shape = tuple(table.array(0, "int").tolist())
    signature = tuple(table.array(7, "int").tolist()) or shape
    kind = type_name(table.integer(1, "byte"))
    where = f"[convert] the tensor {name!r:.80}"
    if not possible_shape(shape) or len(signature) != len(shape):
        raise ModelFileError(f"{where} cannot have the shape {shape!r:.200}")
    number = table.integer(2, "uint")
    if number >= len(buffers):
        raise ModelFileError(f"{where} refers to a buffer that is not there")
    grid = _grid(table.table(4), shape, kind, where)
    raw = buffers[number].array(0, "ubyte")
    data = None
    sparsity = table.table(6)
    if len(raw) and kind is not None:
        count = math.prod(shape)
        if sparsity is not None:
            data = _dense(raw, kind, shape, sparsity, where)
        else:
            size = (count + 1) // 2 if kind == "int4" else count * np.dtype(_numpy(kind)).itemsize
            if size != len(raw):
                raise ModelFileError(f"{where} of the shape {shape} has {len(raw)} bytes")
            data = unpacked(raw, kind, count).reshape(shape)
        if grid is not None:
            real = (data.astype(np.float32) - grid.zero) * grid.scale
            data = np.asarray(real, np.float32)
    elif len(raw):
        raise UnsupportedModel(f"{where} holds no numbers")
    dtype = {"int4": "int8"}.get(kind or "", kind)
    return _Tensor(name, shape, signature, dtype, grid, data, table.integer(5, "bool") != 0)


def _numpy(kind: str) -> str:
    return "uint16" if kind == "bfloat16" else kind


def _grid(table: Table | None, shape: tuple[int, ...], kind: str | None, where: str) -> Grid | None:
    if table is None or kind not in _QUANTISED:
        return None
    scale, zero = table.array(2, "float"), table.array(3, "long")
    if not len(scale):
        return None
    axis = table.integer(6, "int")
    if len(zero) not in (0, len(scale)) or not np.isfinite(scale).all() or (scale <= 0).any():
        raise ModelFileError(f"{where} is quantised in an impossible way")
    wide = [1] * len(shape)
    if len(scale) > 1:
        if not 0 <= axis < len(shape) or shape[axis] != len(scale):
            raise ModelFileError(f"{where} has {len(scale)} scales for the shape {shape}")
        wide[axis] = len(scale)
    bits = {"int4": 4, "int8": 8, "uint8": 8, "int16": 16, "int32": 32}[kind]
    low, high = (0, 255) if kind == "uint8" else (-(1 << bits - 1), (1 << bits - 1) - 1)
    zeros = zero.astype(np.float32) if len(zero) else np.zeros(len(scale), np.float32)
    return Grid(
        scale.reshape(wide or ()) if len(scale) > 1 else scale[0],
        zeros.reshape(wide) if len(scale) > 1 else zeros[0],
        low,
        high,
    )


def _dense(
    raw: np.ndarray, kind: str, shape: tuple[int, ...], table: Table, where: str
) -> np.ndarray:
    """A tensor that is stored without its zeros: levels of dense and compressed dimensions, of
    which the last may walk through blocks."""
    order, blocks = table.array(0, "int").tolist(), table.array(1, "int").tolist()
    levels = table.tables(2)
    rank = len(shape)
    if (
        math.prod(shape) > MAX_DENSE
        or len(order) != rank + len(blocks) != len(levels)
        or sorted(order) != list(range(len(order)))
        or len(levels) != len(order)
        or any(not 0 <= b < rank for b in blocks)
    ):
        raise ModelFileError(f"{where} is stored sparsely in an impossible way")
    values = unpacked(raw, kind, len(raw))
    places = np.zeros((1, 0), np.int64)  # the indices of each element, level by level
    parents = np.zeros(1, np.int64)  # the position of each in its level
    for level in levels:
        if level.integer(0, "byte") == 0:  # dense
            size = level.integer(1, "int")
            if size < 1 or len(places) * size > MAX_DENSE:
                raise ModelFileError(f"{where} is stored sparsely in an impossible way")
            new = np.tile(np.arange(size), len(places))
            places = np.concatenate([np.repeat(places, size, 0), new[:, None]], 1)
            parents = np.repeat(parents, size) * size + new
            continue
        segments, indices = _numbers(level, 2), _numbers(level, 4)
        if len(segments) <= parents.max(initial=0) + 1 or (np.diff(segments) < 0).any():
            raise ModelFileError(f"{where} is stored sparsely in an impossible way")
        starts, counts = segments[parents], segments[parents + 1] - segments[parents]
        if len(segments) and (segments[0] < 0 or segments[-1] > len(indices)):
            raise ModelFileError(f"{where} is stored sparsely in an impossible way")
        total = int(counts.sum())
        offset = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        parents = np.repeat(starts, counts) + offset
        places = np.concatenate([np.repeat(places, counts, 0), indices[parents][:, None]], 1)
    # Levels in the order of dimensions: first those of blocks, then places inside of a block.
    by_dimension = np.zeros((len(places), len(order)), np.int64)
    by_dimension[:, order] = places
    at = by_dimension[:, :rank].copy()
    for i, dimension in enumerate(blocks):
        size = levels[order.index(rank + i)].integer(1, "int")
        at[:, dimension] = at[:, dimension] * size + by_dimension[:, rank + i]
    inside = (at >= 0).all() and (at < np.array(shape)).all()
    if not inside or len(at) != len(values):
        raise ModelFileError(f"{where} has {len(values)} values for {len(at)} places")
    made = np.zeros(shape, values.dtype)
    made[tuple(at.T)] = values
    return made


def _numbers(level: Table, field: int) -> np.ndarray:
    """A list of indices in one of three widths."""
    kinds = {1: "int", 2: "ushort", 3: "ubyte"}
    kind, inner = kinds.get(level.integer(field, "ubyte")), level.table(field + 1)
    if kind is None or inner is None:
        raise ModelFileError("a sparse tensor has no list of indices")
    return inner.array(0, kind).astype(np.int64)
