"""Graphs in low precision: weights and activations in float16 or bfloat16."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.autograd import attach
from bireme.core.aval import Aval, aval
from bireme.core.capture import capture
from bireme.core.graph import Graph, Number
from bireme.core.op import Call, promotion
from bireme.core.rewrite import call_with
from bireme.core.tensor import Tensor, constant
from bireme.core.trace import state
from bireme.ops.math_unary import cast

# These lose too much: they are computed in float32, and their results come back low.
WIDE = {
    "softmax", "log_softmax", "layer_norm", "batch_norm", "group_norm", "instance_norm", "exp",
    "log", "mean", "sum", "logsumexp", "cumsum", "norm", "rms_norm", "pow", "sigmoid",
}  # fmt: skip


def _retyped(call: Call, flat: list[Any]) -> Call:
    """The same call on inputs of other types."""
    types = tuple(
        [
            v._value.aval if isinstance(v, Tensor) else t
            for v, t in zip(flat, call.types, strict=True)
        ]
    )
    return call_with(call.op, types, call.layout, call.attrs, promotion(call.op, types, None))


def lowered(graph: Graph, kind: str) -> Graph:
    """The graph with float32 values in `kind`; its inputs and results stay as they are."""
    low = dt.as_dtype(kind)
    full = dt.as_dtype("float32")
    arguments = [i for i in range(len(graph.inputs)) if i not in graph.constants]

    def lower(t: Tensor) -> Tensor:
        return cast(t, low) if t.dtype is full else t

    def run(given: list[Tensor]) -> list[Tensor]:
        env: dict[int, Tensor] = {-1 - i: lower(t) for i, t in zip(arguments, given, strict=True)}
        for i, array in graph.constants.items():
            value = np.asarray(array)
            env[-1 - i] = constant(value.astype(low.numpy) if value.dtype == np.float32 else value)
        types = graph.value_types()
        for node in graph.nodes:
            wide = node.call.op.name in WIDE
            flat = []
            for a in node.args:
                if isinstance(a, Number):
                    flat.append(graph.numbers[a])
                elif a is None:
                    flat.append(None)
                else:
                    t = env[a]
                    flat.append(cast(t, full) if wide and t.dtype is low else t)
            made = attach(_retyped(node.call, flat), state.trace, flat)
            outs = [made] if node.call.single else list(made)
            for r, t in zip(node.results, outs, strict=True):
                env[r] = lower(t) if types[r].dtype is full else t
        results = [env[o] for o in graph.outputs]
        wanted = [graph.type_of(o).dtype for o in graph.outputs]
        return [t if t.dtype is w else cast(t, w) for t, w in zip(results, wanted, strict=True)]

    names = [graph.names.get(-1 - i, f"x{i}") for i in arguments]
    types: list[Aval] = [aval(graph.inputs[i].shape, graph.inputs[i].dtype) for i in arguments]
    captured = capture(run, types, label="low precision", names=names, tape=False)
    made = captured.graph
    given = captured.op.given
    for i, tensor in zip(given[len(arguments) :], captured.outer, strict=True):
        made.constants[i] = np.asarray(tensor._array())
    made.outputs = made.outputs[: len(graph.outputs)]
    return made
