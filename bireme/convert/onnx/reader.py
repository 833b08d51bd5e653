"""Reads ONNX files, trusting nothing that they say about themselves.

Sizes are checked before memory is taken, external data stays inside the model's own folder, and
every complaint names the tensor or node at fault.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.convert.onnx.writer import onnx_package
from bireme.core.errors import FileFormatError
from bireme.io.foreign import possible_shape, read_whole

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto


OLDEST, NEWEST = 1, 27
MAX_BYTES = 1 << 33  # of one value that a node makes
MAX_KNOWN = 1 << 28  # bytes of all known values of a run, beyond those in the file
MAX_NODES = 1_000_000
MAX_DEPTH = 32  # of graphs inside graphs
_DOMAINS = ("", "ai.onnx")


class OnnxError(FileFormatError):
    """An ONNX file that is broken, or that asks for something which does not exist here."""


@dataclass
class Model:
    """A checked model: its graph, the opsets it was written for, and its own functions."""

    graph: Any
    opsets: dict[str, int]
    functions: dict[tuple[str, str], Any]
    folder: str | None
    files: dict[str, np.ndarray] = field(default_factory=dict)
    # What was decoded, by the id of its node or inner graph. Holding those too keeps an id from
    # being given to another object.
    attributes: dict[int, tuple[Any, dict[str, Any]]] = field(default_factory=dict)
    inner: dict[int, tuple[Any, dict[str, np.ndarray]]] = field(default_factory=dict)
    orders: dict[int, tuple[Any, list[Any]]] = field(default_factory=dict)

    def nodes(self, graph: Any) -> list[Any]:
        """The nodes of a graph or function, each behind those that it needs. Some writers, such
        as converters to float16, leave them in another order."""
        known = self.orders.get(id(graph))
        if known is None:
            known = self.orders[id(graph)] = graph, in_order(list(graph.node))
        return known[1]

    def inner_weights(self, graph: GraphProto) -> dict[str, np.ndarray]:
        """The initializers of a graph inside a node."""
        known = self.inner.get(id(graph))
        if known is None:
            known = self.inner[id(graph)] = (
                graph,
                {t.name: self.array(t) for t in graph.initializer},
            )
        return known[1]

    def array(self, tensor: TensorProto) -> np.ndarray:
        """The contents of a TensorProto."""
        return read_tensor(tensor, self.folder, self.files)


def read_model(source: str | PathLike[str] | bytes | ModelProto) -> Model:
    """A model from a file name, the bytes of a file, or an `onnx.ModelProto`."""
    onnx = onnx_package()
    folder = None
    if isinstance(source, onnx.ModelProto):
        proto = source
    else:
        if isinstance(source, bytes | bytearray | memoryview):
            data = bytes(source)
        elif isinstance(source, str | os.PathLike):
            folder = os.path.dirname(os.path.abspath(os.fspath(source)))
            data = read_whole(source, "onnx.load")
        else:
            raise OnnxError(
                "a file name, bytes or an onnx.ModelProto was expected. Received: "
                f"{type(source).__name__}"
            )
        proto = _parse(onnx, data)
    return _checked(proto, folder)


def _parse(onnx: Any, data: bytes) -> Any:
    from google.protobuf.message import DecodeError

    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, RecursionError, ValueError) as e:
        raise OnnxError(
            f"this is not an ONNX model, or it is cut off ({len(data)} bytes): {e}"
        ) from None
    return proto


def _checked(proto: Any, folder: str | None) -> Model:
    if not proto.HasField("graph") or not proto.opset_import:
        raise OnnxError("this is not an ONNX model: it has no graph or names no opset")
    opsets = {_plain(o.domain): o.version for o in proto.opset_import}
    version = opsets.get("", NEWEST)
    if not OLDEST <= version <= NEWEST:
        raise OnnxError(
            f"the model is written for opset {version}; {OLDEST} to {NEWEST} can be read. "
            "Convert it with onnx.version_converter, or export it again for opset 17"
        )
    functions = {(_plain(f.domain), f.name): f for f in proto.functions}
    nodes = [*all_nodes(proto.graph), *[n for f in proto.functions for n in f.node]]
    if len(nodes) > MAX_NODES:
        raise OnnxError(f"the model has {len(nodes)} nodes, more than {MAX_NODES}")
    for node in nodes:
        _check_names(node.name, node.op_type, node.domain, *node.input, *node.output)
        _check_names(*[a.name for a in node.attribute])
    graph = proto.graph
    _check_names(*[v.name for v in (*graph.initializer, *graph.input, *graph.output)])
    return Model(proto.graph, opsets, functions, folder)


def _check_names(*names: Any) -> None:
    """Bytes that are no text come as bytes."""
    for name in names:
        if not isinstance(name, str):
            raise OnnxError(f"the model is damaged: the name {name!r} is not valid text")


def _plain(domain: str) -> str:
    return "" if domain in _DOMAINS else domain


def domain_of(node: NodeProto) -> str:
    """A node's domain, empty for ONNX's own."""
    return _plain(node.domain)


def subgraphs(node: NodeProto) -> list[Any]:
    """The graphs among a node's attributes."""
    return [a.g for a in node.attribute if a.HasField("g")] + [
        g for a in node.attribute for g in a.graphs
    ]


def all_nodes(graph: GraphProto, depth: int = 0) -> Iterator[Any]:
    """Every node of a graph and of the graphs inside it."""
    if depth > MAX_DEPTH:
        raise OnnxError(f"graphs are nested more than {MAX_DEPTH} deep")
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from all_nodes(inner, depth + 1)


def in_order(nodes: list[Any]) -> list[Any]:
    """Nodes behind those whose results they take; otherwise as they were."""
    makers = {o: i for i, n in enumerate(nodes) for o in n.output if o}
    needs = [{makers[i] for i in _taken(n) if i in makers} for n in nodes]
    if all(max(need, default=-1) < at for at, need in enumerate(needs)):
        return nodes
    made: list[Any] = []
    done, open_ = [False] * len(nodes), [False] * len(nodes)
    for first in range(len(nodes)):
        stack = [first]
        while stack:
            at = stack[-1]
            waiting = [] if done[at] else sorted([i for i in needs[at] if not done[i]])
            if not waiting:
                stack.pop()
                if not done[at]:
                    made.append(nodes[at])
                done[at] = True
            elif open_[at]:
                raise OnnxError(f"{where(nodes[at])} needs its own result")
            else:
                open_[at] = True
                stack += reversed(waiting)
    return made


def _taken(node: NodeProto) -> Iterator[str]:
    """The values that a node takes, those for the graphs inside it too."""
    yield from node.input
    for graph in subgraphs(node):
        for inner in all_nodes(graph):
            yield from inner.input
        for output in graph.output:
            yield output.name


def where(node: NodeProto) -> str:
    """How messages name a node."""
    results = ", ".join(node.output)
    return f"node {node.name or '(unnamed)'!r} ({node.op_type} -> {results})"


def check_size(shape: Sequence[Any], itemsize: int, what: str, limit: int = MAX_BYTES) -> None:
    """Refuse a value that could not be held, before anyone tries to make it."""
    if not all(type(d) is int or isinstance(d, np.integer) for d in shape):
        return  # sizes that are open yet
    sizes = [int(d) for d in shape]
    if not possible_shape(sizes):
        raise OnnxError(f"{what} cannot have the shape {sizes!r:.200}")
    count = math.prod(sizes) * itemsize
    if count > limit:
        raise OnnxError(
            f"{what} would have {count} bytes, shape {sizes}; at most {limit} are allowed"
        )


def check_known(shape: Sequence[Any], itemsize: int, what: str = "the result") -> None:
    """The same for a value that is made at once, while the model is read."""
    check_size(shape, itemsize, what, MAX_KNOWN)


def bytes_of(value: object) -> int:
    """The memory that a known value takes."""
    if isinstance(value, list | tuple):
        return 8 * len(value) + sum(map(bytes_of, value))
    if not isinstance(value, np.ndarray):
        return 0
    if value.dtype != object:
        return value.nbytes
    return 8 * value.size + sum([len(v) for v in value.ravel().tolist() if isinstance(v, str)])


def read_tensor(tensor: TensorProto, folder: str | None, files: dict[str, Any]) -> np.ndarray:
    """A TensorProto as an array; what is stored outside is mapped from the model's folder."""
    onnx = onnx_package()
    label = f"tensor {tensor.name!r}"
    shape = tuple(tensor.dims)
    if not possible_shape(shape):
        raise OnnxError(f"{label} cannot have the shape {list(shape)!r:.200}")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external(tensor, shape, folder, files)
    try:
        return onnx.numpy_helper.to_array(tensor)
    except Exception as e:  # the package raises many kinds
        raise OnnxError(f"{label} of shape {list(shape)} cannot be read: {e}") from None


def _external(
    tensor: TensorProto, shape: tuple[int, ...], folder: str | None, files: Any
) -> np.ndarray:
    onnx = onnx_package()
    label = f"tensor {tensor.name!r}"
    given = {e.key: e.value for e in tensor.external_data}
    location = given.get("location", "")
    if folder is None:
        raise OnnxError(
            f"{label} is stored in the file {location!r} beside the model: load the model by its "
            "path, not from bytes"
        )
    if "\0" in location:
        raise OnnxError(f"{label} is in a file whose name holds a NUL: {location!r:.100}")
    path = os.path.realpath(os.path.join(folder, location))
    root = os.path.realpath(folder)
    if not location or os.path.isabs(location) or os.path.commonpath([path, root]) != root:
        raise OnnxError(f"{label} points outside of the model's folder: {location!r}")
    if path not in files:
        if not os.path.isfile(path):
            raise OnnxError(f"{label} needs the file {location!r}, which is not there")
        size = os.path.getsize(path)
        files[path] = np.memmap(path, np.uint8, "r") if size else np.zeros(0, np.uint8)
    whole = files[path]
    try:
        start = int(given.get("offset", 0))
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
        packed = dtype.itemsize == 1 and "4" in dtype.name and not dtype.name.startswith("float8")
        count = math.prod(shape)
        length = int(given.get("length", (count + 1) // 2 if packed else count * dtype.itemsize))
    except (ValueError, KeyError, TypeError) as e:
        raise OnnxError(f"{label} is described wrongly: {e}") from None
    if start < 0 or length < 0 or start + length > len(whole):
        raise OnnxError(
            f"{label} takes bytes {start} to {start + length} of {location!r}, which has "
            f"{len(whole)}"
        )
    part = whole[start : start + length]
    if packed:
        inner = onnx.TensorProto()
        inner.CopyFrom(tensor)
        inner.data_location = onnx.TensorProto.DEFAULT
        del inner.external_data[:]
        inner.raw_data = part.tobytes()
        return read_tensor(inner, None, {})
    if length != count * dtype.itemsize:
        raise OnnxError(f"{label} of shape {list(shape)} has {length} bytes")
    return np.frombuffer(part.tobytes(), dtype).reshape(shape)
