"""Scales and shifts after a convolution move into its weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bireme
from bireme import passes
from bireme.capture.capture import capture
from bireme.core.aval import aval
from bireme.core.dtype import as_dtype
from bireme.core.graph import Graph
from bireme.jit.interpret import run_graph
from bireme.nn import functional as F


def f(*shape: int) -> Any:
    rng = np.random.default_rng(sum(shape))
    return bireme.to_tensor(rng.uniform(0.5, 1.5, shape).astype(np.float32))


def graph_of(function: Callable[[Any], Any], *shape: int) -> Graph:
    """A function as a graph whose weights are constants."""
    t = aval(shape, as_dtype("float32"))
    captured = capture(lambda given: function(given[0]), [t], label="test", tape=False)
    graph = captured.graph
    for i, tensor in zip(captured.op.given[1:], captured.outer, strict=True):
        graph.constants[i] = np.asarray(tensor._array())
    return passes.run(graph, ["fold_constants"])


def names(graph: Graph) -> list[str]:
    return [n.call.op.name for n in graph.nodes]


paddle_matmul = bireme.matmul
WEIGHT, DEPTHWISE, UP = f(6, 4, 3, 3), f(4, 1, 3, 3), f(4, 3, 2, 2)
STATS = [f(6), f(6) + 1, f(6) + 2, f(6) - 1]


def norm(x: Any) -> Any:
    mean, variance, weight, bias = STATS
    return F.batch_norm(x, mean, variance, weight, bias)


CASES = {
    "norm": (lambda x: norm(F.conv2d(x, WEIGHT)), ["conv"]),
    "bias and norm": (lambda x: norm(F.conv2d(x, WEIGHT, f(6))), ["conv"]),
    "chain": (lambda x: (F.conv2d(x, WEIGHT) + f(6, 1, 1)) * 2.0 - f(1, 6, 1, 1), ["conv"]),
    "from the left": (lambda x: f(1) * F.conv2d(x, WEIGHT), ["conv"]),
    "groups": (lambda x: F.conv2d(x, DEPTHWISE, groups=4) * f(4, 1, 1), ["conv"]),
    "transposed": (lambda x: F.conv2d_transpose(x, UP, stride=2) * f(3, 1, 1), ["conv_transpose"]),
    "transposed groups": (
        lambda x: F.conv2d_transpose(x, UP, stride=2, groups=2) * f(6, 1, 1) + f(6, 1, 1),
        ["conv_transpose"],
    ),
    "channels last": (
        lambda x: F.conv2d(x, f(6, 9, 3, 3), data_format="NHWC") * f(6), ["conv"]
    ),
    "linear and norm": (
        lambda x: norm(F.linear(x.mean([2, 3]), f(4, 6), f(6))), ["mean", "linear"]
    ),
    "linear and numbers": (
        lambda x: (F.linear(x, f(8, 5)) * f(5) - 1.0) * 0.5, ["linear"]
    ),
    "a product and a bias": (lambda x: paddle_matmul(x, f(8, 5)) + f(5), ["linear"]),
    "a product and norm": (
        lambda x: norm(paddle_matmul(x.mean([2, 3]), f(4, 6)) + f(6)), ["mean", "linear"]
    ),
    # what must stay
    "a turned product": (
        lambda x: paddle_matmul(x, f(5, 8), transpose_y=True) + f(5), ["matmul", "add"]
    ),
    "a product of many": (
        lambda x: paddle_matmul(x, f(4, 8, 5)) + f(5), ["matmul", "add"]
    ),
    "linear and a column": (lambda x: F.linear(x, f(8, 5)) + f(9, 1), ["linear", "add"]),
    "not per channel": (lambda x: F.conv2d(x, WEIGHT) * f(7, 6), ["conv", "multiply"]),
    "reversed": (lambda x: 1.0 - F.conv2d(x, WEIGHT), ["conv", "subtract"]),
    "not constant": (lambda x: F.conv2d(x, WEIGHT) * x.mean(), ["conv", "mean", "multiply"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_fold(case: str) -> None:
    function, wanted = CASES[case]
    before = graph_of(function, *((2, 8, 8, 9) if case == "channels last" else (2, 4, 9, 8)))
    after = passes.run(before, ["fold_affine", "dead_code"])
    after.check()
    assert sorted(names(after)) == sorted(wanted)
    x = f(*before.inputs[0].shape)
    (old,), (new,) = run_graph(before, [x]), run_graph(after, [x])
    assert old.shape == new.shape
    np.testing.assert_allclose(new.numpy(), old.numpy(), rtol=1e-5, atol=1e-5)


def test_a_value_that_others_use_stays() -> None:
    def net(x: Any) -> Any:
        y = F.conv2d(x, WEIGHT)
        return y * 2.0, y.sum()

    graph = graph_of(net, 2, 4, 9, 8)
    assert names(passes.run(graph, ["fold_affine", "dead_code"])) == names(graph)


def test_open_sizes_stay_open() -> None:
    from bireme.capture import symbols

    t = aval((symbols.symbol("batch"), 4, 9, 8), as_dtype("float32"))
    captured = capture(lambda g: norm(F.conv2d(g[0], WEIGHT)), [t], label="test", tape=False)
    graph = captured.graph
    for i, tensor in zip(captured.op.given[1:], captured.outer, strict=True):
        graph.constants[i] = np.asarray(tensor._array())
    after = passes.run(graph, ["fold_affine", "dead_code"])
    assert names(after) == ["conv"]
    assert str(after.type_of(after.outputs[0])) == "float32[batch, 6, 7, 6]"
