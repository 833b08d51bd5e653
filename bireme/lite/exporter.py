"""From a graph to a model of Bireme Lite: rules for ops with kernels, lowerings for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bireme import passes
from bireme.core import dims
from bireme.core.aval import NumberType
from bireme.core.errors import BiremeError
from bireme.core.grad_op import GradOp
from bireme.core.graph import Graph, Node, Number
from bireme.lite.lowered import write_call
from bireme.lite.rules import RULES
from bireme.lite.writer import ModelWriter, Operand, UnsupportedForm

if TYPE_CHECKING:
    from typing import IO

_PASSES = ("fuse_products", "fold_constants", "dead_code")


class UnsupportedOps(BiremeError, NotImplementedError):
    """Operations that Bireme Lite has no form for."""


def write_graph(
    graph: Graph,
    file: IO[bytes],
    inputs: Sequence[str],
    outputs: Sequence[str],
    weights: str = "float32",
) -> None:
    """Write a graph whose inputs are arguments, then constants, as a model file."""
    _Exporter(passes.run(graph, list(_PASSES)), weights).model.write(file, inputs, outputs)


class _Exporter:
    def __init__(self, graph: Graph, weights: str):
        self.graph = graph
        self.model = ModelWriter(weights)
        self.main = self.model.graph()
        self.known: dict[int, Operand] = {}
        self.missing: dict[str, str] = {}  # ops that cannot be written, and why
        self._write()

    def _write(self) -> None:
        g, graph = self.main, self.graph
        given = 0
        for i, t in enumerate(graph.inputs):
            if i in graph.constants:
                self.known[-1 - i] = g.constant(np.asarray(graph.constants[i]))
                continue
            self.known[-1 - i] = g.input(t.shape, t.dtype.numpy)
            for axis, d in enumerate(t.shape):
                if dims.is_symbolic(d):
                    self.model.declare(d, given, axis)
            given += 1
        for node in graph.nodes:
            self._node(node)
        if self.missing:
            raise UnsupportedOps(
                f"{len(self.missing)} operation(s) of this model cannot be written for Bireme "
                "Lite: " + "; ".join(self.missing.values())
            )
        g.finish([self.known[o] for o in graph.outputs], copies=False)

    def _node(self, node: Node) -> None:
        call = node.call
        try:
            if any(isinstance(a, Number) and a in self.graph.keys for a in node.args):
                raise UnsupportedForm("random numbers have no form in Bireme Lite")
            outs = self._written(node)
        except UnsupportedForm as e:
            where = f"[{call.op.name}], first used at {call.source}: "
            text = str(e)
            self.missing.setdefault(call.op.name, text if text.startswith(where) else where + text)
            outs = [
                self.main.constant(np.zeros((), np.float32))._replace(full=tuple(t.shape))
                for t in call.outs
            ]
        self.known.update(zip(node.results, outs, strict=True))

    def _written(self, node: Node) -> list[Operand]:
        """By the op's own rule, or where it leaves this form to it, as the lowering says."""
        call = node.call
        given = [
            None if a is None else self.graph.numbers[a] if isinstance(a, Number) else self.known[a]
            for a in node.args
        ]
        rule = None if isinstance(call.op, GradOp) else RULES.get(call.op.name)
        if rule is not None and not self._casts(node):
            made = rule(self.main, call, *call.group(given), **call.attrs)
            if made is not None:
                return [made]
        return write_call(self.main, call, given)

    @staticmethod
    def _casts(node: Node) -> bool:
        """Whether the op takes an array in another type than it has."""
        return any(
            cast is not None and not isinstance(t, NumberType)
            for t, cast in zip(node.call.types, node.call.casts, strict=True)
        )
