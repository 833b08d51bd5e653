"""Graphs in float16 and bfloat16, with islands of float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bireme as paddle
from bireme import passes
from bireme.capture.capture import capture
from bireme.core.aval import aval
from bireme.core.dtype import as_dtype
from bireme.core.errors import InvalidArgument
from bireme.core.graph import Graph
from bireme.jit.interpret import run_graph
from bireme.nn import functional as F

KINDS = {"float16": 4e-3, "bfloat16": 3e-2}


def graph_of(function: Any, shape: tuple[int, ...] = (4, 6)) -> Graph:
    t = aval(shape, as_dtype("float32"))
    captured = capture(lambda given: function(given[0]), [t], label="test", tape=False)
    graph = captured.graph
    for i, tensor in zip(captured.op.given[1:], captured.outer, strict=True):
        graph.constants[i] = np.asarray(tensor._array())
    return graph


def types(graph: Graph, op: str) -> set[str]:
    return {
        str(t.dtype.name) for n in graph.nodes if n.call.op.name == op for t in n.call.types
        if hasattr(t, "shape")
    }  # fmt: skip


def run(graph: Graph) -> list[np.ndarray]:
    graph.check()
    x = np.random.default_rng(0).uniform(-1, 1, graph.inputs[0].shape).astype("float32")
    return [t.numpy() for t in run_graph(graph, [paddle.to_tensor(x)])]


W = paddle.to_tensor(np.random.default_rng(1).normal(size=(6, 6)).astype("float32") * 0.3)
B = paddle.to_tensor(np.linspace(-1, 1, 6).astype("float32"))


def net(x: Any) -> Any:
    y = F.layer_norm(F.linear(x, W, B), 6, B)
    return F.softmax(F.relu(y) @ W), y.argmax(-1), y.sum()


@pytest.mark.parametrize("kind", KINDS)
def test_islands(kind: str) -> None:
    before = graph_of(net)
    after = passes.run(before, [kind, "dead_code"])
    for op in ("linear", "matmul", "relu"):
        assert types(after, op) == {kind}
    for op in ("layer_norm", "softmax", "sum"):
        assert types(after, op) == {"float32"}
    old, new = run(before), run(after)
    assert [a.dtype for a in old] == [a.dtype for a in new]
    for a, b in zip(old[::2], new[::2], strict=True):
        np.testing.assert_allclose(b, a, rtol=KINDS[kind], atol=6 * KINDS[kind])


def test_chosen_islands() -> None:
    before = graph_of(lambda x: F.softmax(F.linear(x, W) @ (W * 2.0)))
    after = passes.low_precision(before, "bfloat16", keep={"linear"})
    assert types(after, "linear") == {"float32"}
    assert types(after, "softmax") == {"bfloat16"}
    # The linear layer's weights are read by more than that layer, and are low for all.
    assert {a.dtype.name for a in after.constants.values()} == {"bfloat16"}
    after = passes.low_precision(graph_of(lambda x: F.linear(x, W)), "float16", keep={"linear"})
    assert {a.dtype.name for a in after.constants.values()} == {"float32"}


def test_casts_are_shared() -> None:
    before = graph_of(lambda x: F.relu(x) + F.relu(x) + F.relu(x))
    after = passes.run(before, ["float16"])
    assert [n.call.op.name for n in after.nodes].count("cast") == 2  # in, and out


def test_what_names_its_type_keeps_it() -> None:
    before = graph_of(lambda x: (x.astype("float64") * 2.0, x.astype("float32").astype("int32")))
    after = passes.run(before, ["float16"])
    assert [a.dtype.name for a in run(after)] == ["float64", "int32"]


def test_bad_requests() -> None:
    graph = graph_of(F.relu)
    with pytest.raises(InvalidArgument, match="float16 or bfloat16"):
        passes.low_precision(graph, "float32")
    with pytest.raises(InvalidArgument, match="do not exist: sofmax"):
        passes.low_precision(graph, "float16", keep={"sofmax"})


STEPS: list[Any] = [
    F.relu, paddle.tanh, lambda x: F.softmax(x), lambda x: x @ W, lambda x: F.linear(x, W, B),
    lambda x: F.layer_norm(x, 6), lambda x: x * 0.5 + 1.0, lambda x: x - x.mean(-1, keepdim=True),
    lambda x: paddle.concat([x, x * 2.0], axis=0)[:4], lambda x: paddle.where(x > 0, x, x * 0.1),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20, deadline=None)
@given(steps=st.lists(st.integers(0, len(STEPS) - 1), min_size=1, max_size=6))
def test_random_graphs(kind: str, steps: list[int]) -> None:
    def function(x: Any) -> Any:
        for s in steps:
            x = STEPS[s](x)
        return x

    before = graph_of(function)
    after = passes.run(before, [*passes.enabled(), kind, "fold_constants", "dead_code"])
    (old,), (new,) = run(before), run(after)
    assert old.dtype == new.dtype
    # A normalisation of nearly equal numbers magnifies rounding as it should.
    assert np.isfinite(new).all() == np.isfinite(old).all()
    if 5 not in steps and 7 not in steps:
        scale = max(1.0, float(np.abs(old).max()))
        np.testing.assert_allclose(new, old, atol=8 * KINDS[kind] * scale, rtol=0.1)
