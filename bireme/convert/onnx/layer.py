"""An ONNX model as a Layer."""

from __future__ import annotations

import contextlib
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.convert.captured import CapturedCalls
from bireme.convert.onnx.imports import RULES
from bireme.convert.onnx.interpreter import Run, dense, function_body, to_value
from bireme.convert.onnx.reader import (
    Model,
    OnnxError,
    all_nodes,
    domain_of,
    read_model,
    subgraphs,
    where,
)
from bireme.convert.onnx.writer import onnx_package
from bireme.core.dtype import as_dtype
from bireme.core.errors import BiremeError, InvalidArgument
from bireme.core.tensor import Parameter, Tensor, constant
from bireme.nn.layer.layer import Layer

if TYPE_CHECKING:
    from onnx import ModelProto


# A constant of up to this many elements stays a known value, so that shapes can be made from it.
_SMALL = 1024


class OnnxLayer(Layer):
    """A model from an ONNX file. It infers, and its weights can be trained further.

    Floating-point initializers are parameters under their ONNX names (the statistics of batch
    normalisation are buffers). The graph is read once per set of input types: sizes are known
    then, so shape arithmetic disappears. Where results decide what runs next, it runs eagerly.
    """

    def __init__(self, source: str | PathLike[str] | bytes | ModelProto):
        super().__init__()
        self._model = read_model(source)
        _check_ops(self._model)
        self._weights: dict[str, Any] = {}
        self._held: dict[str, Tensor] = {}
        self._read_weights()
        self._calls = CapturedCalls(self._run, self._held, "an ONNX model")
        graph = self._model.graph
        own = {t.name for t in graph.initializer} | {
            t.values.name for t in graph.sparse_initializer
        }
        self._inputs = [i for i in graph.input if i.name not in own]
        self._optional = [i.name for i in graph.input if i.name in own]
        self.eval()

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs that must be given, in order."""
        return [i.name for i in self._inputs]

    @property
    def output_names(self) -> list[str]:
        return [o.name for o in self._model.graph.output]

    def input_specs(self) -> list[Any]:
        """The inputs as InputSpec, for jit.save; sizes that the file leaves open are None."""
        from bireme.static import InputSpec

        helper = onnx_package().helper
        specs = []
        for info in self._inputs:
            tensor = info.type.tensor_type
            if info.type.WhichOneof("value") != "tensor_type" or not tensor.elem_type:
                raise OnnxError(f"the input {info.name!r} is not a tensor")
            shape = [
                d.dim_value if d.dim_value > 0 else _symbol(d.dim_param) for d in tensor.shape.dim
            ]
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name
            specs.append(InputSpec(shape, dtype, _identifier(info.name)))
        return specs

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self._calls(self._given(inputs, named))

    def _run(self, given: dict[str, Any]) -> Any:
        outs = Run(self._model, self._weights).graph(self._model.graph, given)
        made = [_result(o) for o in outs]
        return made[0] if len(made) == 1 else made

    def _given(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        names = [*self.input_names, *self._optional]
        given = dict(zip(names, inputs, strict=False))
        given.update(named)
        unknown = [n for n in named if n not in names]
        missing = [n for n in self.input_names if n not in given]
        optional = {i.name for i in self._inputs if i.type.WhichOneof("value") == "optional_type"}
        if len(inputs) > len(names) or unknown or set(missing) - optional:
            raise InvalidArgument(
                f"this model takes {', '.join(self.input_names) or 'no inputs'}. Received: "
                f"{len(inputs)} inputs" + (f" and the names {sorted(named)}" if named else "")
            )
        return {n: _argument(given.get(n)) for n in names if n in given or n in optional}

    # --- weights ----------------------------------------------------------------------------

    def _read_weights(self) -> None:
        graph = self._model.graph
        arrays = {t.name: self._model.array(t) for t in graph.initializer}
        arrays.update({t.values.name: dense(self._model, t) for t in graph.sparse_initializer})
        static, statistics = _static_names(graph), _statistics(graph)
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                # Some exporters write weights as constants; those count as such.
                array = self._model.array(node.attribute[0].t)
                if array.dtype.kind == "f" and array.ndim and array.size > 1:
                    arrays[node.output[0]] = array
        for name, array in arrays.items():
            self._weights[name] = self._weight(name, array, name in static, name in statistics)

    def _weight(self, name: str, array: np.ndarray, static: bool, statistic: bool) -> Any:
        try:
            as_dtype(array.dtype)
        except (BiremeError, TypeError, ValueError):
            return array
        floating = as_dtype(array.dtype).is_floating
        if static or (array.ndim == 0) or (not floating and array.size <= _SMALL):
            return array
        made: Tensor = constant(np.ascontiguousarray(array))
        label = self._free_label(name)
        if floating and not statistic:
            made = Parameter(made._value, True, name)
            self.add_parameter(label, made)
        else:
            self.register_buffer(label, made)
        self._held[label] = made
        return made

    def _free_label(self, name: str) -> str:
        """A name that a Layer can hold: without dots, and nobody else's."""
        label = name.replace(".", "_") or "weight"
        while label in self._held or hasattr(type(self), label):
            label += "_"
        return label


def _symbol(name: str) -> str | None:
    """A size that the file leaves open, under the file's own name where it has one."""
    return _identifier(name) + "_" * (name in ("max", "min", "mod")) if name.strip("?") else None


def _identifier(name: str) -> str:
    made = "".join(c if c.isalnum() and c.isascii() else "_" for c in name)
    return made if made[:1].isalpha() or made[:1] == "_" else f"x_{made}"


def _argument(value: Any) -> Any:
    if value is None or isinstance(value, Tensor):
        return value
    if isinstance(value, list | tuple) and any(
        isinstance(v, Tensor | np.ndarray | list | None) for v in value
    ):
        return [_argument(v) for v in value]
    array = np.asarray(value)
    if array.dtype.kind in "UST":
        return array.astype(object)
    try:
        return to_value(array)
    except OnnxError:
        return array  # a type that only known values have


def _result(value: Any) -> Any:
    if isinstance(value, list):
        return [_result(v) for v in value]
    if isinstance(value, np.ndarray):
        with contextlib.suppress(OnnxError):
            return to_value(value)
    return value


def _check_ops(model: Model) -> None:
    """Refuse a model that holds ops without a rule, naming all of them."""
    missing: dict[str, str] = {}
    nodes = [*all_nodes(model.graph), *[n for f in model.functions.values() for n in f.node]]
    for node in nodes:
        key = (domain_of(node), node.op_type)
        if key in RULES or key in model.functions:
            continue
        if function_body(node, None, model.opsets.get("", 17)) is None:
            missing.setdefault(".".join(filter(None, key)), where(node))
    if missing:
        listed = "; ".join(f"[{name}] at {place}" for name, place in missing.items())
        raise OnnxError(
            f"{len(missing)} operation(s) of this model are not known: {listed}. "
            "Add rules for them in bireme.convert.onnx.imports"
        )


def _static_names(graph: Any) -> set[str]:
    """The values whose contents decide shapes, found backwards from where they do."""
    makers = {o: n for n in graph.node for o in n.output}
    found: set[str] = set()
    stack: list[str] = []
    for node in all_nodes(graph):
        entry = RULES.get((domain_of(node), node.op_type))
        if entry is not None:
            stack += [i for k, i in enumerate(node.input) if k in entry.static and i]
        if node.op_type in ("If", "Loop"):
            stack += [i for i in node.input[: 1 if node.op_type == "If" else 2] if i]
    while stack:
        name = stack.pop()
        if name in found:
            continue
        found.add(name)
        maker = makers.get(name)
        if maker is not None and maker.op_type not in ("Shape", "Size"):
            stack += [i for i in maker.input if i]
            for inner in subgraphs(maker):
                stack += [i for n in all_nodes(inner) for i in n.input if i]
    return found


def _statistics(graph: Any) -> set[str]:
    """Running means and variances."""
    return {i for n in all_nodes(graph) if n.op_type == "BatchNormalization" for i in n.input[3:5]}
