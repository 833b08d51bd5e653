"""Graphs in low precision: weights and activations in float16 or bfloat16."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from bireme.capture.rewrite import GraphBuilder
from bireme.core import dims
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument
from bireme.core.graph import Graph, Number, Ref
from bireme.core.op import OPS, Call, promotion
from bireme.passes.manager import register

# These lose too much: they are computed in float32, and their results come back low.
WIDE = frozenset({
    "softmax", "log_softmax", "layer_norm", "batch_norm", "group_norm", "instance_norm", "exp",
    "log", "mean", "sum", "logsumexp", "cumsum", "norm", "rms_norm", "pow", "power", "sigmoid",
})  # fmt: skip


@register("bfloat16", order=80, on=False)
def to_bfloat16(graph: Graph) -> Graph:
    """Compute in bfloat16; softmax, norms and sums stay in float32."""
    return low_precision(graph, "bfloat16")


@register("float16", order=81, on=False)
def to_float16(graph: Graph) -> Graph:
    """Compute in float16; softmax, norms and sums stay in float32."""
    return low_precision(graph, "float16")


def low_precision(
    graph: Graph, kind: str, keep: Collection[str] = WIDE, keep_io: bool = True
) -> Graph:
    """The graph with float32 values in `kind`. Ops named in `keep` compute in their own types:
    islands of float32. With `keep_io` the graph's inputs and results keep their types as well."""
    low = dt.as_dtype(kind)
    if low not in (dt.as_dtype("float16"), dt.as_dtype("bfloat16")):
        raise InvalidArgument(f"low precision is float16 or bfloat16. Received: {kind!r}")
    unknown = sorted(set(keep) - WIDE - OPS.keys())
    if unknown:
        raise InvalidArgument(f"'keep' names ops that do not exist: {', '.join(unknown)}")
    return _Converter(graph, low, frozenset(keep), keep_io).run()


class _Converter:
    def __init__(self, graph: Graph, low: dt.DType, keep: frozenset[str], keep_io: bool):
        self.graph, self.low, self.keep, self.keep_io = graph, low, keep, keep_io
        self.full = dt.as_dtype("float32")
        self.source_types = graph.value_types()
        self.builder = GraphBuilder(graph)
        self.types: dict[int, Aval] = {}  # of the copy's values
        self.other: dict[tuple[int, dt.DType], int] = {}  # a value in another type

    def run(self) -> Graph:
        graph, builder = self.graph, self.builder
        for i, t in enumerate(graph.inputs):
            ref = -1 - i
            if i in graph.constants:
                array = np.asarray(graph.constants[i])
                if t.dtype is self.full and not self._only_wide(ref):
                    array = array.astype(self.low.numpy)
                builder.refs[ref] = builder.input(
                    aval(t.shape, dt.as_dtype(array.dtype)), graph.names.get(ref), array
                )
            elif t.dtype is self.full and not self.keep_io:
                builder.refs[ref] = builder.input(aval(t.shape, self.low), graph.names.get(ref))
            else:
                builder.copy_input(ref)
            self.types[builder.refs[ref]] = builder.graph.inputs[i]  # type: ignore[index]
        for node in graph.nodes:
            wide = node.call.op.name in self.keep or not self._may_change(node.call)
            args = [self._argument(a, wide) for a in node.args]
            results = builder.add(self._retyped(node.call, args), tuple(args), node.tape)
            made = builder.graph.nodes[-1].call.outs
            self.types.update(zip(results, made, strict=True))
            builder.refs.update(zip(node.results, results, strict=True))
        outputs: list[int] = []
        for o in graph.outputs:
            ref: int = builder.ref(o)  # type: ignore[assignment]
            wanted = graph.type_of(o).dtype
            if wanted is self.full and not self.keep_io:
                wanted = self.low
            outputs.append(self._as(ref, wanted))
        builder.graph.outputs = outputs
        return builder.graph

    def _only_wide(self, ref: int) -> bool:
        """Whether a weight is read by float32 islands only: then it keeps its digits."""
        users = [n for n in self.graph.nodes if ref in n.args]
        return bool(users) and all(n.call.op.name in self.keep for n in users)

    def _may_change(self, call: Call) -> bool:
        """Whether a call computes in whatever type it is given. A cast names its own, and a
        gradient, a captured function or the body of a loop has fixed types."""
        if OPS.get(call.op.name) is not call.op:
            return False
        if call.op.name == "cast":
            return call.attrs["dtype"] != "float32"
        return all(_is_plain(v) for v in call.attrs.values())

    def _argument(self, a: Ref, wide: bool) -> Ref:
        ref = self.builder.ref(a)
        if ref is None or isinstance(ref, Number):
            return ref
        have, was = self.types[ref].dtype, self._was(a)
        if was is not self.full:
            return ref
        return self._as(ref, self.full if wide else self.low) if have.is_floating else ref

    def _was(self, a: Any) -> dt.DType:
        return self.graph.inputs[-1 - a].dtype if a < 0 else self.source_types[a].dtype

    def _as(self, ref: int, dtype: dt.DType) -> int:
        if self.types[ref].dtype is dtype:
            return ref
        found = self.other.get((ref, dtype))
        if found is None:
            op = OPS["cast"]
            call = op.call_with((self.types[ref],), (-1,), {"dtype": dtype.name}, (None,))
            (found,) = self.builder.add(call, (ref,))
            self.types[found] = call.outs[0]
            self.other[ref, dtype] = found
        return found

    def _retyped(self, call: Call, args: list[Ref]) -> Call:
        types = tuple(
            [
                self.types[a] if isinstance(a, int) and not isinstance(a, Number) else t
                for a, t in zip(args, call.types, strict=True)
            ]
        )
        if types == call.types:
            return call
        return call.op.call_with(types, call.layout, call.attrs, promotion(call.op, types, None))


def _is_plain(attribute: Any) -> bool:
    if isinstance(attribute, tuple):
        return all(map(_is_plain, attribute))
    plain = bool | int | float | complex | str | dt.DType | None
    return isinstance(attribute, plain) or dims.is_dim_expression(attribute)
