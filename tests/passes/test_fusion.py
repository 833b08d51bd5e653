"""Patterns become one op, with the same values and gradients; near misses stay as they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bireme as paddle
from bireme import passes
from bireme.capture import symbols
from bireme.capture.capture import capture
from bireme.core.aval import aval
from bireme.core.dtype import as_dtype
from bireme.core.graph import Graph
from bireme.jit.interpret import run_graph
from bireme.nn import functional as F


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    """Graphs are run once or twice: nothing is worth compiling."""
    from bireme.core import trace
    from bireme.host import config

    trace.flush()
    before, config.compile_mode = config.compile_mode, "never"
    yield
    trace.flush()
    config.compile_mode = before


FUSING = ["share_common", "layout", "fuse_attention", "fuse_norms", "fuse_activations"]


def graph_of(function: Callable[..., Any], *shapes: tuple[Any, ...], dtype: str = "float32"):
    types = [aval(s, as_dtype(dtype)) for s in shapes]
    return capture(lambda xs: function(*xs), types, label="test").graph


def names(graph: Graph) -> list[str]:
    return [n.call.op.name for n in graph.nodes]


def data(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    given = [t for i, t in enumerate(graph.inputs) if i not in graph.constants]
    return [rng.normal(size=t.shape).astype(t.dtype.numpy) for t in given]


def values_and_gradients(graph: Graph, arrays: list[np.ndarray]) -> list[np.ndarray]:
    graph.check()
    inputs = [paddle.to_tensor(a, stop_gradient=False) for a in arrays]
    paddle.seed(3)
    outs = run_graph(graph, inputs)
    weights = [
        paddle.to_tensor(np.random.default_rng(i).normal(size=o.shape).astype("float32"))
        for i, o in enumerate(outs)
    ]
    total = sum((o.astype("float32") * w).sum() for o, w in zip(outs, weights, strict=True))
    grads = paddle.grad(total, inputs, allow_unused=True)
    return [t.numpy() for t in (*outs, *(g for g in grads if g is not None))]


def check_same(before: Graph, after: Graph, seed: int = 0, tolerance: float = 2e-5) -> None:
    arrays = data(before, seed)
    old, new = values_and_gradients(before, arrays), values_and_gradients(after, arrays)
    assert len(old) == len(new)
    for a, b in zip(old, new, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance)


# --- norms ----------------------------------------------------------------------------------


def mean(x: Any, axis: Any = -1) -> Any:
    return x.mean(axis, keepdim=True)


def centred(x: Any, axis: Any = -1) -> Any:
    return x - mean(x, axis)


def deviation(x: Any, axis: Any = -1, epsilon: float = 1e-5) -> Any:
    return paddle.sqrt(mean(centred(x, axis) ** 2, axis) + epsilon)


NORMS = {
    "rsqrt": (lambda x, w, b: centred(x) * paddle.rsqrt(mean(centred(x) ** 2) + 1e-5) * w + b, 1),
    "sqrt": (lambda x, w, b: b + w * (centred(x) / deviation(x)), 1),
    "products": (lambda x, w, b: centred(x) / paddle.sqrt(
        mean(centred(x) * centred(x)) + 1e-6) * w + b, 1),
    "var": (lambda x, w, b: centred(x) / paddle.sqrt(
        x.var(-1, unbiased=False, keepdim=True) + 1e-5) * w + b, 1),
    "no bias": (lambda x, w, b: centred(x) / deviation(x) * w, 1),
    "no weight": (lambda x, w, b: centred(x) / deviation(x), 1),
    "after a product": (lambda x, w, b: (lambda y: centred(y) / deviation(y) * w + b)(x * x), 1),
    # near misses
    "biased variance": (lambda x, w, b: centred(x) / paddle.sqrt(
        x.var(-1, keepdim=True) + 1e-5) * w, 0),
    "another axis": (lambda x, w, b: centred(x, 1) / deviation(x, 1), 0),
    "another mean": (lambda x, w, b: centred(x) / deviation(x * 2.0), 0),
    "the deviation is a result": (lambda x, w, b: (centred(x) / deviation(x), deviation(x)), 0),
}  # fmt: skip


@pytest.mark.parametrize("case", NORMS)
def test_layer_norm(case: str) -> None:
    function, fused = NORMS[case]
    before = graph_of(function, (2, 3, 8), (8,), (8,))
    after = passes.run(before, [*FUSING, "dead_code"])
    assert names(after).count("layer_norm") == fused
    if fused and case != "after a product":
        assert names(after) == ["layer_norm"]
    check_same(before, after)


def root_mean(x: Any, axis: Any = -1) -> Any:
    return mean(x**2, axis) + 1e-6


RMS = {
    "rsqrt": (lambda x, w: x * paddle.rsqrt(root_mean(x)) * w, 1),
    "weight first": (lambda x, w: w * (paddle.rsqrt(root_mean(x)) * x), 1),
    "sqrt": (lambda x, w: x / paddle.sqrt(root_mean(x)) * w, 1),
    "no weight": (lambda x, w: x / paddle.sqrt(root_mean(x)), 1),
    "two dimensions": (lambda x, w: x / paddle.sqrt(root_mean(x, [1, 2])), 1),
    "a plain bias stays": (lambda x, w: x / paddle.sqrt(root_mean(x)) * w + w, 1),
    "a number is no weight": (lambda x, w: x / paddle.sqrt(root_mean(x)) * 3.0, 1),
    "another value": (lambda x, w: x * paddle.rsqrt(root_mean(x + 1.0)), 0),
}


@pytest.mark.parametrize("case", RMS)
def test_rms_norm(case: str) -> None:
    function, fused = RMS[case]
    before = graph_of(function, (2, 3, 8), (8,))
    after = passes.run(before, [*FUSING, "dead_code"])
    assert names(after).count("rms_norm") == fused
    assert len(after.nodes) <= 2 or not fused
    check_same(before, after)


def test_norms_of_open_sizes() -> None:
    before = graph_of(NORMS["rsqrt"][0], (symbols.symbol("batch"), 3, 8), (8,), (8,))
    after = passes.run(before)
    assert names(after) == ["layer_norm"]
    assert str(after.type_of(after.outputs[0])) == "float32[batch, 3, 8]"


# --- activations ----------------------------------------------------------------------------

ROOT = math.sqrt(2 / math.pi)
ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "half first": (lambda x: 0.5 * x * (1 + paddle.erf(x / math.sqrt(2))), ["gelu"]),
    "half last": (lambda x: x * (paddle.erf(x * 0.70710678) + 1.0) * 0.5, ["gelu"]),
    "divided by 2": (lambda x: x * (1 + paddle.erf(x / math.sqrt(2))) / 2, ["gelu"]),
    "x is a product": (
        lambda x: (lambda y: 0.5 * y * (1 + paddle.erf(y / math.sqrt(2))))(x * x),
        ["multiply", "gelu"],
    ),
    "tanh": (lambda x: 0.5 * x * (1 + paddle.tanh(ROOT * (x + 0.044715 * x**3))), ["gelu"]),
    "tanh of products": (
        lambda x: 0.5 * x * (1 + paddle.tanh(ROOT * (x + 0.044715 * x * x * x))), ["gelu"]
    ),
    "tanh with x outside": (
        lambda x: 0.5 * x * (1 + paddle.tanh(x * ROOT * (1 + 0.044715 * x * x))), ["gelu"]
    ),
    "silu": (lambda x: x * F.sigmoid(x), ["silu"]),
    "silu from the left": (lambda x: F.sigmoid(x) * x, ["silu"]),
    "silu by exp": (lambda x: x / (1 + paddle.exp(-x)), ["silu"]),
    # near misses
    "another factor": (
        lambda x: 0.4 * x * (1 + paddle.erf(x / math.sqrt(2))),
        ["multiply", "divide", "erf", "add", "multiply"],
    ),
    "another argument": (
        lambda x: 0.5 * x * (1 + paddle.erf(x)), ["multiply", "erf", "add", "multiply"]
    ),
    "another cubic": (
        lambda x: 0.5 * x * (1 + paddle.tanh(ROOT * (x + 0.05 * x**3))),
        ["multiply", "small_power", "multiply", "add", "multiply", "tanh", "add", "multiply"],
    ),
    "a gate of another value": (
        lambda x: x * F.sigmoid(x * 1.702), ["multiply", "sigmoid", "multiply"]
    ),
    "the gate is a result": (
        lambda x: (x * F.sigmoid(x), F.sigmoid(x)), ["sigmoid", "multiply"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ACTIVATIONS)
def test_activations(case: str) -> None:
    function, wanted = ACTIVATIONS[case]
    before = graph_of(function, (3, 5))
    after = passes.run(before, [*FUSING, "dead_code"])
    assert sorted(names(after)) == sorted(wanted)
    check_same(before, after)


# --- attention ------------------------------------------------------------------------------


def split(x: Any) -> Any:
    return x.reshape([0, 0, 2, 4]).transpose([0, 2, 1, 3])


def attend(q: Any, k: Any, v: Any, mask: Any = None, p: float = 0.0) -> Any:
    scores = paddle.matmul(q, k, transpose_y=True) * 0.5
    weights = F.softmax(scores if mask is None else scores + mask)
    return paddle.matmul(F.dropout(weights, p) if p else weights, v)


def turned(x: Any) -> Any:
    return x.transpose([0, 1, 3, 2])


ATTENTION: dict[str, tuple[Callable[..., Any], int]] = {
    "plain": (lambda q, k, v, m: attend(split(q), split(k), split(v)), 1),
    "mask": (lambda q, k, v, m: attend(split(q), split(k), split(v), m), 1),
    "dropout": (lambda q, k, v, m: attend(split(q), split(k), split(v), m, 0.3), 1),
    "heads back": (
        lambda q, k, v, m: attend(split(q), split(k), split(v), m).transpose([0, 2, 1, 3]), 1
    ),
    "key turned": (lambda q, k, v, m: F.softmax(
        paddle.matmul(split(q), turned(split(k))) / 2.0 + m, axis=3) @ split(v), 1),
    "key straight": (lambda q, k, v, m: F.softmax(
        paddle.matmul(split(q), k.reshape([0, 0, 2, 4]).transpose([0, 2, 3, 1]))) @ split(v), 1),
    "query scaled": (lambda q, k, v, m: F.softmax(
        m + paddle.matmul(split(q) * 0.25, split(k), transpose_y=True)) @ split(v), 1),
    "paddle.scale": (lambda q, k, v, m: F.softmax(paddle.scale(paddle.matmul(
        split(q), split(k), transpose_y=True), 0.3)) @ split(v), 1),
    "key is value": (lambda q, k, v, m: attend(split(q), split(k), split(k)), 1),
    # near misses
    "softmax over queries": (lambda q, k, v, m: F.softmax(
        paddle.matmul(split(q), split(k), transpose_y=True), axis=2) @ split(v), 0),
    "the weights are a result": (lambda q, k, v, m: (lambda w: (w @ split(v), w))(F.softmax(
        paddle.matmul(split(q), split(k), transpose_y=True))), 0),
    "not turned": (lambda q, k, v, m: F.softmax(
        paddle.matmul(split(q), turned(split(k)), transpose_y=False) @ split(k)), 0),
}  # fmt: skip


@pytest.mark.parametrize("case", ATTENTION)
def test_attention(case: str) -> None:
    function, fused = ATTENTION[case]
    before = graph_of(function, (2, 5, 8), (2, 5, 8), (2, 5, 8), (2, 1, 5, 5))
    after = passes.run(before, [*FUSING, "dead_code"])
    assert names(after).count("attention") == fused
    assert fused == 0 or "softmax" not in names(after)
    check_same(before, after)


def test_attention_of_open_sizes() -> None:
    n, t = symbols.symbol("n"), symbols.symbol("t")
    before = graph_of(lambda q, m: attend(split(q), split(q), split(q), m), (n, t, 8), (n, 1, 1, t))
    after = passes.run(before)
    assert "attention" in names(after)
    x = [
        paddle.to_tensor(np.random.default_rng(0).normal(size=s).astype("float32"))
        for s in ((2, 5, 8), (2, 1, 1, 5))
    ]
    (old,), (new,) = run_graph(before, x), run_graph(after, x)
    np.testing.assert_allclose(new.numpy(), old.numpy(), rtol=1e-5, atol=1e-5)


def test_the_eager_layer_is_fused_like_a_hand_written_one() -> None:
    """A whole block: attention, two norms and a gelu, all written out."""

    def block(x: Any, w: Any, b: Any) -> Any:
        y = attend(split(x), split(x), split(x)).transpose([0, 2, 1, 3]).reshape([0, 0, 8]) + x
        y = centred(y) / deviation(y) * w + b
        z = 0.5 * y * (1 + paddle.erf(y / math.sqrt(2)))
        return (z + y) * paddle.rsqrt(root_mean(z + y))

    before = graph_of(block, (2, 5, 8), (8,), (8,))
    with passes.reporting() as report:
        after = passes.run(before)
    assert {"attention", "layer_norm", "gelu", "rms_norm"} <= set(names(after))
    assert len(after.nodes) < len(before.nodes) // 2
    check_same(before, after, tolerance=1e-4)
    table = str(report)
    assert table.splitlines()[0].split() == ["pass", "before", "after", "ms", "what", "changed"]
    assert "+1 attention" in table
    assert report.counts()["fuse_norms"] > 5


def test_no_grad_stays_without_gradient() -> None:
    def function(x: Any) -> Any:
        with paddle.no_grad():
            y = x * F.sigmoid(x)
            z = x.reshape([3, 5])
        return y + z + x.reshape([3, 5])

    before = graph_of(function, (3, 5))
    after = passes.run(before)
    assert "silu" in names(after)
    x = paddle.ones([3, 5])
    x.stop_gradient = False
    (out,) = run_graph(after, [x])
    np.testing.assert_array_equal(paddle.grad(out.sum(), [x])[0].numpy(), np.ones((3, 5)))


# --- layout ---------------------------------------------------------------------------------

LAYOUT: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "there and back": (lambda x: x.transpose([0, 2, 3, 1]).transpose([0, 3, 1, 2]) + 1.0, ["add"]),
    "merged": (lambda x: x.transpose([0, 2, 3, 1]).transpose([0, 2, 1, 3]), ["transpose"]),
    "identity": (lambda x: x.transpose([0, 1, 2, 3]).astype("float32") * 2.0, ["multiply"]),
    "reshapes": (lambda x: x.reshape([2, 12, 7]).reshape([2, 4, 21]), ["reshape"]),
    "around a relu": (
        lambda x: F.relu(x.transpose([0, 2, 3, 1]) * 2.0).transpose([0, 3, 1, 2]),
        ["multiply", "relu"],
    ),
    "around a convolution": (
        lambda x: F.relu(F.conv2d(x.transpose([0, 2, 3, 1]), paddle.ones([5, 4, 2, 2]),
                                  data_format="NHWC")).transpose([0, 3, 1, 2]),
        ["conv", "relu"],
    ),
    "into a product": (lambda x: paddle.matmul(x.transpose([0, 1, 3, 2]), x), ["matmul"]),
    "two products": (lambda x: x.transpose([0, 1, 3, 2]) @ x.transpose([0, 1, 3, 2]).tanh(),
                     ["transpose", "tanh", "matmul"]),
    "not undone": (lambda x: F.relu(x.transpose([0, 2, 3, 1])).transpose([0, 2, 1, 3]),
                   ["transpose", "relu", "transpose"]),
}  # fmt: skip


@pytest.mark.parametrize("case", LAYOUT)
def test_layout(case: str) -> None:
    function, wanted = LAYOUT[case]
    shape = (2, 4, 7, 7) if case == "two products" else (2, 4, 3, 7)
    before = graph_of(function, shape)
    after = passes.run(before, ["share_common", "layout", "dead_code"])
    assert sorted(names(after)) == sorted(wanted)
    check_same(before, after)


# --- anything, at random --------------------------------------------------------------------

STEPS: list[Callable[[Any, Any], Any]] = [
    lambda x, y: centred(x) / deviation(x),
    lambda x, y: x * paddle.rsqrt(root_mean(x)),
    lambda x, y: x * F.sigmoid(x),
    lambda x, y: 0.5 * x * (1 + paddle.erf(x / math.sqrt(2))),
    lambda x, y: attend(split(x), split(y), split(y)).transpose([0, 2, 1, 3]).reshape([2, 5, 8]),
    lambda x, y: paddle.tanh(x.transpose([0, 2, 1])).transpose([0, 2, 1]),
    lambda x, y: x + y,
    lambda x, y: x * 0.5,
    lambda x, y: paddle.matmul(x.transpose([0, 2, 1]), y).matmul(x.transpose([0, 2, 1])).transpose(
        [0, 2, 1]) * 0.01,
]  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 9), st.integers(0, 9)),
        min_size=2,
        max_size=8,
    )
)
def test_random_training_graphs(steps: list[tuple[int, int, int]]) -> None:
    def function(a: Any, b: Any) -> Any:
        made = [a, b]
        for which, i, j in steps:
            made.append(STEPS[which](made[-1 - i % len(made)], made[-1 - j % len(made)]))
        return made[-1], made[-2]

    before = graph_of(function, (2, 5, 8), (2, 5, 8))
    after = passes.run(before)
    arrays = data(before)
    old, new = values_and_gradients(before, arrays), values_and_gradients(after, arrays)
    for a, b in zip(old, new, strict=True):
        scale = max(1.0, float(np.abs(a).max()))
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=2e-3 * scale)
