"""Runs an ONNX graph, node by node, on our ops: eagerly, or into a capture.

Every value is a tensor or *known*: a NumPy array that needs no computation, such as a shape. Nodes
over known values are folded at once, so shape arithmetic never becomes part of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bireme.convert.onnx.imports import FOLDS, RULES, Entry
from bireme.convert.onnx.reader import (
    MAX_DEPTH,
    MAX_KNOWN,
    Model,
    OnnxError,
    bytes_of,
    check_known,
    check_size,
    domain_of,
    where,
)
from bireme.convert.onnx.writer import onnx_package
from bireme.core.dtype import as_dtype
from bireme.core.errors import BiremeError, CaptureError, ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.ops.creation import to_tensor
from bireme.ops.dimensions import dimensions

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, SparseTensorProto


Value: TypeAlias = "Tensor | np.ndarray"  # to be computed, or known
Values: TypeAlias = "Value | Sequence[Any] | None"  # what a node makes

MAX_STEPS = 250_000  # nodes that one call may run, loops included


class NotFoldable(Exception):
    """Raised by a fold that leaves the work to the rule."""


def to_value(known: object) -> Tensor:
    """A known value as a tensor."""
    if isinstance(known, Tensor):
        return known
    if not isinstance(known, np.ndarray):
        raise OnnxError(f"a tensor is expected here, not {type(known).__name__}")
    if known.dtype == object:
        items = known.ravel().tolist()
        if any(isinstance(i, str) for i in items):
            raise OnnxError("strings cannot be computed with here")
        if all(type(i) is int for i in items):
            return to_tensor(known.astype(np.int64))
        return dimensions(dims=tuple(items)).reshape(list(known.shape))
    try:
        as_dtype(known.dtype)
    except BiremeError:
        raise OnnxError(f"there are no tensors of type {known.dtype}") from None
    return to_tensor(known)


def tidy(known: object) -> Any:
    """An array of objects that are all plain integers as an int64 array."""
    if isinstance(known, np.ndarray) and known.dtype == object:
        items = known.ravel().tolist()
        if items and all(type(i) in (int, np.int64, np.int32) for i in items):
            return known.astype(np.int64)
    return known


class NodeView:
    """What a rule sees of its node."""

    __slots__ = ("_attrs", "_node", "opset", "run", "scope")

    def __init__(self, node: NodeProto, attrs: dict[str, Any], opset: int, run: Run, scope: Scope):
        self._node = node
        self._attrs = attrs
        self.opset = opset
        self.run = run
        self.scope = scope

    @property
    def kind(self) -> str:
        return self._node.op_type

    @property
    def wanted(self) -> int:
        """How many results are named."""
        return len(self._node.output)

    def wants(self, i: int) -> bool:
        return i < len(self._node.output) and bool(self._node.output[i])

    def attr(self, name: str, default: Any = None) -> Any:
        return self._attrs.get(name, default)

    def known(self, value: Value) -> np.ndarray:
        """The contents of a value; raises CaptureError where there are none yet."""
        return value.numpy() if isinstance(value, Tensor) else value

    def dtype(self, name: str, default: np.dtype | None = None) -> Any:
        """The NumPy dtype of an attribute that holds one of ONNX's element types."""
        code = self._attrs.get(name)
        if not code:
            return default
        return np.dtype(onnx_package().helper.tensor_dtype_to_np_dtype(code))

    def fail(self, message: str) -> OnnxError:
        return OnnxError(message)


class Scope:
    """Values by name; a graph inside a node sees those around it."""

    __slots__ = ("around", "values")

    def __init__(self, around: Scope | None = None):
        self.values: dict[str, Any] = {}
        self.around = around

    def __getitem__(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.around
        raise OnnxError(f"the value {name!r} is used but never made")


class Run:
    """One run over a model."""

    def __init__(self, model: Model, weights: dict[str, Any]):
        self.model = model
        self.weights = weights
        self.steps = 0
        self.depth = 0
        self.known_bytes = 0
        self.limit = MAX_KNOWN + 4 * sum(map(bytes_of, weights.values()))
        self.attributes = model.attributes

    def graph(
        self, graph: GraphProto, given: dict[str, Any], around: Scope | None = None
    ) -> list[Any]:
        """The results of a graph on these inputs."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise OnnxError(f"graphs or functions call each other more than {MAX_DEPTH} deep")
        scope = Scope(around)
        values = scope.values
        if around is None:
            values.update(self.weights)
        else:
            values.update(self.model.inner_weights(graph))
        values.update(given)
        for node in self.model.nodes(graph):
            if node.op_type == "Constant" and node.output[0] in values:
                continue  # it is one of the weights
            self.node(node, scope, self.model.opsets, {})
        self.depth -= 1
        return [scope[o.name] for o in graph.output]

    def node(
        self, node: NodeProto, scope: Scope, opsets: dict[str, int], outer: dict[str, Any]
    ) -> None:
        """Run one node; `outer` are the attributes of the function it is in."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise OnnxError(f"a run takes more than {MAX_STEPS} steps, at {where(node)}")
        try:
            results = self._results(node, scope, opsets, outer)
        except OnnxError as e:
            if str(e).startswith("ONNX "):
                raise
            raise OnnxError(f"ONNX {where(node)}: {e}") from None
        except CaptureError:
            raise
        except BiremeError as e:
            if not str(e).startswith("ONNX "):
                e.args = (f"ONNX {where(node)}: {e}", *e.args[1:])
            raise
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError) as e:
            if type(e).__name__ == "InconclusiveDimensionOperation":
                said = str(e).splitlines()[0]
                raise ShapeMismatch(
                    f"ONNX {where(node)}: {said} Give this size in input_spec"
                ) from None
            raise OnnxError(f"ONNX {where(node)}: {type(e).__name__}: {e}") from e
        for name, value in zip(node.output, results, strict=False):
            if name:
                if isinstance(value, Tensor):
                    t = value._value.aval
                    check_size(t.shape, t.dtype.itemsize, f"ONNX {where(node)}: {name!r}")
                elif value is not None:
                    self._count(value, node)
                scope.values[name] = tidy(value)

    def _count(self, value: Any, node: Any) -> None:
        """Known values are made while a model is read: a small file must not fill the memory."""
        self.known_bytes += bytes_of(value)
        if self.known_bytes > self.limit:
            raise OnnxError(
                f"ONNX {where(node)}: the model folds to more than {self.limit} bytes of constants"
            )

    def _results(
        self, node: Any, scope: Scope, opsets: dict[str, int], outer: dict[str, Any]
    ) -> Sequence[Any]:
        domain = domain_of(node)
        given = [scope[i] if i else None for i in node.input]
        attrs = self._attrs(node, outer)
        own = self.model.functions.get((domain, node.op_type))
        if own is not None:
            return self._function(own, given, attrs, opsets)
        opset = opsets.get(domain, opsets.get("", 17))
        view = NodeView(node, attrs, opset, self, scope)
        entry = RULES.get((domain, node.op_type))
        if not domain and all(i is None or isinstance(i, np.ndarray) for i in given):
            fold = FOLDS.get(node.op_type)
            if fold is not None:
                if bytes_of(given) > self.limit:  # the same value may be given many times
                    raise OnnxError(f"its inputs have more than {self.limit} bytes")
                try:
                    return _listed(fold(view, *given))
                except NotFoldable:
                    pass
        if entry is not None:
            return _listed(entry.rule(view, *self._inputs(entry, given)))
        body = function_body(node, given, opset)
        if body is None:
            raise OnnxError("there is no rule for this op")
        return self._function(body, given, attrs, {**opsets, "": opset})

    @staticmethod
    def _inputs(entry: Entry, given: list[Any]) -> list[Any]:
        if entry.host:
            return given
        made = []
        for i, value in enumerate(given):
            if value is None or isinstance(value, list):
                made.append(value)
            elif i in entry.static:
                made.append(value.numpy() if isinstance(value, Tensor) else value)
            else:
                made.append(to_value(value))
        return made

    def _attrs(self, node: Any, outer: dict[str, Any]) -> dict[str, Any]:
        """Attributes by name; those that refer to the function's own are looked up there."""
        known = self.attributes.get(id(node))
        if known is None:
            made = {a.name: self._attr(a) for a in node.attribute if not a.ref_attr_name}
            self.attributes[id(node)] = node, made
        else:
            made = known[1]
        refs = [a for a in node.attribute if a.ref_attr_name]
        if refs:
            made = dict(made)
            made.update({a.name: outer[a.ref_attr_name] for a in refs if a.ref_attr_name in outer})
        return made

    def _attr(self, attribute: Any) -> Any:
        onnx = onnx_package()
        kind = attribute.type
        kinds = onnx.AttributeProto
        if kind == kinds.TENSOR:
            return self.model.array(attribute.t)
        if kind == kinds.SPARSE_TENSOR:
            return dense(self.model, attribute.sparse_tensor)
        value = onnx.helper.get_attribute_value(attribute)
        if kind == kinds.STRING:
            return value.decode("utf-8", "surrogateescape")
        if kind == kinds.STRINGS:
            return [v.decode("utf-8", "surrogateescape") for v in value]
        if kind in (kinds.INTS, kinds.FLOATS):
            return list(value)
        return value

    def _function(
        self, body: Any, given: list[Any], attrs: dict[str, Any], opsets: dict[str, int]
    ) -> list[Any]:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise OnnxError(f"function {body.name!r} calls itself")
        scope = Scope()
        scope.values.update(dict.fromkeys(body.input))
        scope.values.update(zip(body.input, given, strict=False))
        outside, self.attributes = self.attributes, {}  # a body may be made for this call only
        defaults = {a.name: self._attr(a) for a in body.attribute_proto}
        inner = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in body.opset_import}
        own = any(body is f for f in self.model.functions.values())
        for node in self.model.nodes(body) if own else body.node:
            self.node(node, scope, {**opsets, **inner}, {**defaults, **attrs})
        self.attributes = outside
        self.depth -= 1
        return [scope.values.get(o) for o in body.output]  # an optional one may not be made


def _listed(made: Any) -> Sequence[Any]:
    return made if isinstance(made, tuple) else (made,)


def dense(model: Model, sparse: SparseTensorProto) -> np.ndarray:
    """A SparseTensorProto written out."""
    shape = tuple(sparse.dims)
    label = f"tensor {sparse.values.name!r}"
    values, indices = model.array(sparse.values), model.array(sparse.indices)
    check_known(shape, values.dtype.itemsize, label)
    out = np.zeros(shape, values.dtype)
    try:
        if indices.ndim == 1:
            out.reshape(-1)[indices] = values
        else:
            out[tuple(indices.T)] = values
    except (IndexError, ValueError, TypeError) as e:
        raise OnnxError(
            f"{label} has places that do not fit its shape {list(shape)}: {e}"
        ) from None
    return out


def function_body(node: NodeProto, given: list[Any] | None, opset: int) -> Any:
    """ONNX's own definition of an op through others, if it has one."""
    onnx = onnx_package()
    if domain_of(node):
        return None
    try:
        schema = onnx.defs.get_schema(node.op_type, opset)
    except onnx.defs.SchemaError:
        return None
    if schema.has_function:
        return schema.function_body
    if not schema.has_context_dependent_function:
        return None
    if given is None:
        return schema  # it exists, which is all that is asked for
    types = []
    for value in given:
        info = onnx.TypeProto()
        if value is not None:
            array_type = value._value.aval.dtype.numpy if isinstance(value, Tensor) else value.dtype
            info.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(array_type))
            shape = value._value.aval.shape if isinstance(value, Tensor) else value.shape
            info.tensor_type.shape.SetInParent()
            for d in shape:
                dim = info.tensor_type.shape.dim.add()
                if type(d) is int:
                    dim.dim_value = d
        types.append(info.SerializeToString())
    text = schema.get_context_dependent_function(node.SerializeToString(), types)
    return onnx.FunctionProto.FromString(text)
