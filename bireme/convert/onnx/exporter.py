"""From a captured graph to an ONNX model, op by op over the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import bireme
from bireme import passes
from bireme.capture import symbols
from bireme.capture.capture import Captured
from bireme.convert.onnx.lowered import write_call
from bireme.convert.onnx.rules import RULES
from bireme.convert.onnx.writer import UnsupportedForm, Writer
from bireme.core import dims
from bireme.core.aval import NumberType
from bireme.core.errors import BiremeError, InvalidArgument
from bireme.core.grad_op import GradOp
from bireme.core.graph import Graph, Node, Number

if TYPE_CHECKING:
    from onnx import ModelProto


OLDEST_OPSET = 11


class UnsupportedOps(BiremeError, NotImplementedError):
    """Operations that ONNX cannot express."""


def to_onnx(captured: Captured, opset: int = 17) -> ModelProto:
    """The captured function as an `onnx.ModelProto`."""
    if not isinstance(opset, int) or opset < OLDEST_OPSET:
        raise InvalidArgument(f"opset_version must be at least {OLDEST_OPSET}. Received: {opset!r}")
    graph = _inference_graph(captured)
    weights = [np.asarray(t._array()) for t in captured.outer]
    n_arguments = len(captured.op.given) - len(weights)
    return _Exporter(graph, n_arguments, weights, Writer(opset)).model()


def graph_to_onnx(graph: Graph, opset: int = 17) -> ModelProto:
    """A graph whose weights are all constants as an `onnx.ModelProto`; no pass changes it."""
    n_arguments = len(graph.inputs) - len(graph.constants)
    return _Exporter(graph, n_arguments, [], Writer(opset)).model()


def _inference_graph(captured: Captured) -> Graph:
    graph = captured.graph
    return passes.run(graph.copy(outputs=graph.outputs[: len(captured.tracked)]))


class _Exporter:
    def __init__(self, graph: Graph, n_arguments: int, weights: list[Any], writer: Writer):
        self.graph = graph
        self.n_arguments = n_arguments
        self.weights = weights  # of the inputs after the arguments that are no constants
        self.w = writer
        self.names: dict[Any, str] = {}
        self.missing: dict[str, str] = {}  # ops that cannot be written, and why

    def model(self) -> ModelProto:
        w, graph = self.w, self.graph
        arguments = []
        weights = iter(self.weights)
        for i, t in enumerate(graph.inputs):
            name = graph.names.get(-1 - i) or f"folded_{i}"  # no name that `fresh` makes
            if i in graph.constants:
                w.weight(name, np.asarray(graph.constants[i]))
            elif i < self.n_arguments:
                arguments.append(w.value_info(name, t))
                for axis, d in enumerate(t.shape):
                    if dims.is_symbolic(d):
                        symbol, factor = symbols.unknown(d)
                        w.sizes.setdefault(symbol, (name, axis, factor))
            else:
                w.weight(name, next(weights))
            self.names[-1 - i] = name
        for node in graph.nodes:
            self._node(node)
        if self.missing:
            raise UnsupportedOps(
                f"{len(self.missing)} operation(s) of this model cannot be written as ONNX: "
                + "; ".join(self.missing.values())
            )
        results = []
        types = graph.value_types()
        for i, o in enumerate(graph.outputs):
            name = f"output_{i}"
            w.nodes.append(w.onnx.helper.make_node("Identity", [self.names[o]], [name]))
            t = types[o] if o >= 0 else graph.inputs[-1 - o]
            results.append(w.value_info(name, t))
        helper = w.onnx.helper
        made = helper.make_graph(
            w.nodes, "bireme", arguments, results, list(w.initializers.values())
        )
        model = helper.make_model(
            made,
            opset_imports=[helper.make_opsetid("", w.opset)],
            producer_name="bireme",
            producer_version=bireme.__version__,
        )
        # The oldest IR version that can hold this opset reaches the most runtimes.
        model.ir_version = min(model.ir_version, 8 if w.opset <= 18 else 10)
        w.onnx.checker.check_model(model)
        return model

    def _node(self, node: Node) -> None:
        op = node.call.op
        try:
            if any(isinstance(a, Number) and a in self.graph.keys for a in node.args):
                raise UnsupportedForm("random numbers have no ONNX form")
            outs = self._written(node)
        except UnsupportedForm as e:
            where = f"[{op.name}], first used at {node.call.source}: "
            text = str(e)
            self.missing.setdefault(op.name, text if text.startswith(where) else where + text)
            outs = [self.w.fresh("missing") for _ in node.results]
        self.names.update(zip(node.results, outs, strict=True))

    def _written(self, node: Node) -> list[str]:
        """By the op's own rule, or where there is none for this form, as its lowering says."""
        call, w = node.call, self.w
        rule = None if isinstance(call.op, GradOp) else RULES.get(call.op.name)
        if rule is not None:
            before = len(w.nodes)
            try:
                made = rule(w, call, *call.group(self._cast_arguments(node)), **call.attrs)
                return [made] if isinstance(made, str) else list(made)
            except UnsupportedForm:
                del w.nodes[before:]
        given = [
            None if a is None else self.graph.numbers[a] if isinstance(a, Number) else self.names[a]
            for a in node.args
        ]
        return write_call(w, call, given)

    def _cast_arguments(self, node: Node) -> list[str | None]:
        w, call = self.w, node.call
        flat: list[str | None] = []
        for a, t, cast in zip(node.args, call.types, call.casts, strict=True):
            if a is None:
                flat.append(None)
            elif isinstance(a, Number):
                dtype = cast or (t.dtype if isinstance(t, NumberType) else None)
                flat.append(w.constant(self.graph.numbers[a], dtype))
            else:
                name = self.names[a]
                flat.append(name if cast is None else w.cast(name, cast))
        return flat
