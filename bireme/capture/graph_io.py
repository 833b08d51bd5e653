"""Graphs as readable JSON, and back with every rule checked.

    {"inputs": [{"name": "x", "type": "float32[batch, 4]"}, …],
     "nodes": [{"op": "linear", "args": ["$x", "$fc.weight", "$fc.bias"],
                "out": ["float32[batch, 3]"]}, …],
     "outputs": ["%0"]}

`$name` is an input and `%i` the i-th result; numbers stand for themselves; `{"key": k}` is part
k of the random keys that a call draws. Op attributes are plain values, with `{"dim": …}`,
`{"dtype": …}`, `{"slice": …}` and the like for what JSON has no word for. A file is data: it
can name ops of the op table and nothing else.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from typing import Any

from bireme.capture import symbols
from bireme.capture.rewrite import GraphBuilder
from bireme.core import dims
from bireme.core import dtype as dt
from bireme.core.aval import FLOAT, INT, Aval, aval
from bireme.core.errors import BiremeError, FileFormatError
from bireme.core.grad_op import GradOp
from bireme.core.graph import Graph, MalformedGraph, Number, Ref
from bireme.core.op import OPS, Call, promotion

MAX_NODES = 1_000_000
MAX_RANK = 32
_TYPE = re.compile(r"([a-z0-9_]+)\[(.*)\]\Z")


class GraphFileError(FileFormatError):
    """A saved graph that cannot be read: damaged, foreign, or from a newer version."""


_ATTRIBUTE_TYPES: dict[str, tuple[type, Callable[..., Any], Callable[..., Any]]] = {}


def register_attribute(
    name: str,
    kind: type,
    plain: Callable[..., Any],
    build: Callable[..., Any] | None = None,
) -> None:
    """Let op attributes of type `kind` be saved as `{name: plain(value)}`; `build` makes one of
    what was saved (by default `kind(plain(saved))`)."""
    _ATTRIBUTE_TYPES[name] = (kind, plain, build or (lambda saved: kind(plain(saved))))


# --- writing --------------------------------------------------------------------------------


def encode_graph(graph: Graph) -> dict[str, Any]:
    """The graph as JSON values. Constants' contents are not part of it, only their names."""
    names = input_names(graph)

    def ref(r: Ref) -> Any:
        if r is None:
            return None
        if isinstance(r, Number):
            if r in graph.keys:
                return {"key": graph.keys[r]}
            return _encode_value(graph.numbers[r])
        return f"%{r}" if r >= 0 else f"${names[-1 - r]}"

    nodes = []
    for node in graph.nodes:
        entry = _encode_call(node.call)
        del entry["types"]
        entry["args"] = node.call.group([ref(a) for a in node.args])
        entry["out"] = [encode_type(t) for t in node.call.outs]
        if not node.tape:
            entry["tape"] = False
        nodes.append(entry)
    return {
        "inputs": [
            {
                "name": names[i],
                "type": encode_type(t),
                **({"constant": True} if i in graph.constants else {}),
            }
            for i, t in enumerate(graph.inputs)
        ],
        "nodes": nodes,
        "outputs": [ref(o) for o in graph.outputs],
    }


def input_names(graph: Graph) -> list[str]:
    """A name for every input, each used once."""
    taken: set[str] = set()
    names = []
    for i in range(len(graph.inputs)):
        plain = graph.names.get(-1 - i) or ("c" if i in graph.constants else "input") + f"_{i}"
        name, again = plain, 1
        while name in taken:
            again += 1
            name = f"{plain}#{again}"
        taken.add(name)
        names.append(name)
    return names


def _encode_call(call: Call) -> dict[str, Any]:
    types = [None if t is None else encode_type(t) for t in call.types]
    if isinstance(call.op, GradOp):
        return {
            "op": "gradient",
            "forward": _encode_call(call.attrs["forward"]),
            "needs": list(call.attrs["needs"]),
            "types": types,
        }
    if OPS.get(call.op.name) is not call.op:
        raise GraphFileError(f"[{call.op.name}] is not in the op table and cannot be saved")
    entry: dict[str, Any] = {"op": call.op.name, "types": types}
    attrs = {k: _encode_attr(call, k, v) for k, v in call.attrs.items()}
    if attrs:
        entry["attrs"] = attrs
    if any(n >= 0 for n in call.layout):
        entry["layout"] = list(call.layout)
    if call.casts != promotion(call.op, call.types, None):
        entry["casts"] = [None if c is None else c.name for c in call.casts]
    return entry


def encode_type(t: object) -> str:
    """`float32[batch, 4]`; a Python number is just `float` or `int`."""
    return repr(t)


def _encode_attr(call: Call, name: str, value: Any) -> Any:
    try:
        return _encode_value(value)
    except GraphFileError as e:
        raise GraphFileError(f"[{call.op.name}] attribute '{name}': {e}") from None


def _encode_value(value: Any) -> Any:
    kind = type(value)  # exactly: a subclass may mean something else, and must be registered
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if kind is complex:
        return {"complex": [_encode_value(value.real), _encode_value(value.imag)]}
    if kind in (tuple, list):
        return [_encode_value(v) for v in value]
    for name, (registered, plain, _) in _ATTRIBUTE_TYPES.items():
        if kind is registered:
            return {name: plain(value)}
    if isinstance(value, dt.DType):
        return {"dtype": value.name}
    if isinstance(value, slice):
        return {"slice": [_encode_value(v) for v in (value.start, value.stop, value.step)]}
    if value is Ellipsis:
        return {"ellipsis": True}
    if dims.is_dim_expression(value):
        return {"dim": str(value)}
    raise GraphFileError(f"a value of type {type(value).__name__} cannot be saved")


# --- reading --------------------------------------------------------------------------------


def decode_graph(data: object, constants: Callable[[str], Any]) -> Graph:
    """The graph of `encode_graph`'s JSON; `constants(name)` gives a constant's contents."""
    try:
        return _Decoder(data, constants).graph()
    except GraphFileError:
        raise
    except (BiremeError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as e:
        raise GraphFileError(f"the graph is damaged: {type(e).__name__}: {e}") from None


class _Decoder:
    def __init__(self, data: object, constants: Callable[[str], Any]):
        self.data = _object(data, "the graph")
        self.constants = constants
        self.builder = GraphBuilder(Graph([]))
        self.refs: dict[str, int] = {}
        self.types: dict[int, Aval] = {}
        self.key_numbers: dict[int, Number] = {}

    def graph(self) -> Graph:
        nodes = _list(self.data.get("nodes"), "nodes")
        if len(nodes) > MAX_NODES:
            raise GraphFileError(f"a graph of {len(nodes)} nodes is too large")
        _check_ops(nodes)
        for entry in _list(self.data.get("inputs"), "inputs"):
            self._input(_object(entry, "an input"))
        for i, entry in enumerate(nodes):
            try:
                self._node(_object(entry, "a node"))
            except Exception as e:  # type inference on hostile attributes can raise anything
                op = entry.get("op") if isinstance(entry, dict) else None
                raise GraphFileError(f"node {i} ({op}): {e}") from None
        graph = self.builder.graph
        graph.outputs = [self._value(o) for o in _list(self.data.get("outputs"), "outputs")]
        try:
            graph.check()
        except MalformedGraph as e:
            raise GraphFileError(str(e)) from None
        return graph

    def _input(self, entry: dict[str, Any]) -> None:
        name, t = entry.get("name"), decode_type(entry.get("type"))
        if not isinstance(name, str) or f"${name}" in self.refs:
            raise GraphFileError(f"an input's name is missing or used twice: {name!r}")
        contents = None
        if entry.get("constant"):
            contents = self.constants(name)
            if tuple(contents.shape) != t.shape or dt.as_dtype(contents.dtype) is not t.dtype:
                raise GraphFileError(
                    f"constant {name!r} should be {t}. Received: "
                    f"{contents.dtype}{list(contents.shape)}"
                )
        ref = self.builder.input(t, name, contents)
        self.refs[f"${name}"] = ref
        self.types[ref] = t

    def _node(self, entry: dict[str, Any]) -> None:
        args = _list(entry.get("args"), "args")
        flat: list[Any] = []
        layout: list[int] = []
        for a in args:
            flat += a if isinstance(a, list) else [a]
            layout.append(len(a) if isinstance(a, list) else -1)
        refs = tuple([self._arg(a) for a in flat])
        types = tuple([self._type(r) for r in refs])
        call = _decode_call(entry, types, tuple(layout))
        said = [decode_type(t) for t in _list(entry.get("out"), "out")]
        if said != list(call.outs):
            raise GraphFileError(f"results should be {said} but are {list(call.outs)}")
        tape = entry.get("tape", True)
        for r, t in zip(self.builder.add(call, refs, tape is not False), call.outs, strict=True):
            self.refs[f"%{r}"] = r
            self.types[r] = t

    def _arg(self, a: Any) -> Ref:
        if a is None:
            return None
        if isinstance(a, str):
            return self._value(a)
        graph = self.builder.graph
        if isinstance(a, dict) and "key" in a:
            part = a["key"]
            if type(part) is not int or not 0 <= part < 2 * MAX_NODES:
                raise GraphFileError(f"{part!r} is not a part of a random key")
            if part not in self.key_numbers:
                number = self.key_numbers[part] = graph.new_number("int")
                graph.keys[number] = part
            return self.key_numbers[part]
        value = _decode_value(a)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise GraphFileError(f"{a!r} is not an argument")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise GraphFileError(f"the integer {value} does not fit into int64")
        number = graph.new_number("float" if isinstance(value, float) else "int")
        graph.numbers[number] = value
        return number

    def _value(self, text: Any) -> int:
        if not isinstance(text, str) or text not in self.refs:
            raise GraphFileError(f"{text!r} is not a value that exists at this point")
        return self.refs[text]

    def _type(self, ref: Ref) -> Any:
        if ref is None:
            return None
        if isinstance(ref, Number):
            return FLOAT if ref.kind == "float" else INT
        return self.types[ref]


def _check_ops(nodes: list[Any]) -> None:
    unknown = set()
    for entry in nodes:
        while isinstance(entry, dict) and entry.get("op") == "gradient":
            entry = entry.get("forward")
        name = entry.get("op") if isinstance(entry, dict) else entry
        if not isinstance(name, str) or name not in OPS:
            unknown.add(str(name)[:80])
    if unknown:
        raise GraphFileError(
            f"the graph uses operations that this version does not have: "
            f"{', '.join(sorted(unknown)[:20])}. Install the version that wrote it, or the "
            "package that defines them"
        )


def _decode_call(entry: dict[str, Any], types: tuple[Any, ...], layout: tuple[int, ...]) -> Call:
    if entry.get("op") == "gradient":
        inner = _object(entry.get("forward"), "forward")
        inner_types = tuple([_decode_input_type(t) for t in _list(inner.get("types"), "types")])
        plain = (-1,) * len(inner_types)
        forward = _decode_call(inner, inner_types, tuple(inner.get("layout") or plain))
        needs = tuple([_int(i) for i in _list(entry.get("needs"), "needs")])
        if not all(0 <= i < len(inner_types) for i in needs):
            raise GraphFileError("a gradient is asked for an input that does not exist")
        call = forward.gradient(needs, tuple([t is not None for t in types[: layout[0]]]))
        if call.types != types:
            raise GraphFileError("the gradient's arguments do not fit its operation")
        return call
    op = OPS[entry["op"]]
    if len(layout) != len(op.inputs) or sum(map(abs, layout)) != len(types):
        raise GraphFileError(f"takes {len(op.inputs)} arguments. Received: {len(layout)}")
    for name, n in zip(op.inputs, layout, strict=True):
        if name.startswith("*") != (n >= 0):
            raise GraphFileError(f"argument {name!r} must be a {'list' if n < 0 else 'value'}")
    given = _object(entry.get("attrs", {}), "attrs")
    extra = set(given) - set(op.attr_names)
    if extra:
        raise GraphFileError(f"unknown attributes {sorted(extra)}")
    attrs = {
        name: _decode_value(given[name]) if name in given else default
        for name, default in op.attr_defaults.items()
    }
    casts = entry.get("casts")
    if casts is None:
        targets = promotion(op, types, None)
    else:
        targets = tuple([None if c is None else dt.as_dtype(c) for c in _list(casts, "casts")])
        if len(targets) != len(types):
            raise GraphFileError("casts do not fit the arguments")
    return op.call_with(types, layout, attrs, targets)


def decode_type(text: object) -> Aval:
    """The type that `encode_type` wrote."""
    found = _TYPE.match(text) if isinstance(text, str) else None
    if found is None:
        raise GraphFileError(f"{text!r:.80} is not a type such as 'float32[batch, 4]'")
    if found[2].count(",") > 4 * MAX_RANK:  # expressions have some of their own
        raise GraphFileError(f"a type of {len(found.string)} characters is too long")
    sizes = _split(found[2])
    if len(sizes) > MAX_RANK:
        raise GraphFileError(f"a tensor of {len(sizes)} dimensions")
    shape = [_decode_dimension(d) for d in sizes]
    return aval(tuple(shape), dt.as_dtype(found[1]))


def _split(text: str) -> list[str]:
    """The parts between those commas that are not inside parentheses."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [p.strip() for p in [*parts, text[start:]]] if text.strip() else []


def _decode_dimension(text: str) -> Any:
    if text.isdecimal() and len(text) < 19:
        return int(text)
    try:
        return symbols.parse(text)
    except ArithmeticError as e:  # a division by zero
        raise GraphFileError(f"{text!r:.80} is no size: {e}") from None


def _decode_input_type(text: Any) -> Any:
    if text is None:
        return None
    return {"float": FLOAT, "int": INT}.get(text) or decode_type(text)


def _decode_value(data: Any) -> Any:
    if isinstance(data, str):
        return sys.intern(data)  # ops compare their marks by identity
    if data is None or isinstance(data, bool | int | float):
        return data
    if isinstance(data, list):
        return tuple([_decode_value(v) for v in data])
    ((kind, value),) = _object(data, "a value").items()
    if kind == "float" and value in ("inf", "-inf", "nan"):
        return float(value)
    if kind == "complex":
        real, imag = map(_decode_value, value)
        return complex(real, imag)
    if kind == "dtype":
        return dt.as_dtype(value)
    if kind == "slice":
        return slice(*[_decode_value(v) for v in _list(value, "slice")])
    if kind == "ellipsis":
        return Ellipsis
    if kind == "dim":
        return symbols.parse(value)
    if kind in _ATTRIBUTE_TYPES:
        return _ATTRIBUTE_TYPES[kind][2](value)
    raise GraphFileError(f"unknown kind of value {kind!r}")


def _object(data: object, what: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise GraphFileError(f"{what} should be an object. Received: {type(data).__name__}")
    return data


def _list(data: object, what: str) -> list[Any]:
    if not isinstance(data, list):
        raise GraphFileError(f"{what} should be a list. Received: {type(data).__name__}")
    return data


def _int(data: object) -> int:
    if type(data) is not int:
        raise GraphFileError(f"an integer was expected. Received: {data!r:.60}")
    return data
