"""Products take over what follows them, and compute the same, packed or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bireme
from bireme import passes
from bireme.capture import symbols
from bireme.capture.capture import capture
from bireme.capture.rewrite import specialize
from bireme.core import trace
from bireme.core.aval import aval
from bireme.core.dtype import as_dtype
from bireme.core.graph import Graph
from bireme.host import config
from bireme.jit.interpret import run_graph
from bireme.nn import functional as F


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    """Graphs are run once: nothing is worth compiling."""
    trace.flush()
    before, config.compile_mode = config.compile_mode, "never"
    yield
    trace.flush()
    config.compile_mode = before


def f(*shape: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(sum(shape) + seed)
    return bireme.to_tensor(rng.normal(size=shape).astype(np.float32))


def graph_of(function: Callable[[Any], Any], *shape: Any) -> Graph:
    """A function as a graph whose weights are constants."""
    t = aval(shape, as_dtype("float32"))
    captured = capture(lambda given: function(given[0]), [t], label="test", tape=False)
    graph = captured.graph
    for i, tensor in zip(captured.op.given[1:], captured.outer, strict=True):
        graph.constants[i] = np.asarray(tensor._array())
    return passes.run(graph, ["fold_constants"])


def names(graph: Graph) -> list[str]:
    return [n.call.op.name for n in graph.nodes]


def fused(graph: Graph) -> Graph:
    after = passes.run(graph, ["fuse_products", "dead_code"])
    after.check()
    return after


def check_same(before: Graph, after: Graph) -> None:
    shape = before.inputs[0].shape
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    old, new = ([o.numpy() for o in run_graph(g, [bireme.to_tensor(x)])] for g in (before, after))
    for a, b in zip(old, new, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)


W, B, DEPTHWISE = f(4, 4, 3, 3), f(4), f(4, 1, 3, 3)


def conv(x: Any, weight: Any = W, bias: Any = B, **how: Any) -> Any:
    return F.conv2d(x, weight, bias, padding=1, **how)


CASES = {
    "alone": (lambda x: conv(x), ["fused_conv"]),
    "no bias": (lambda x: conv(x, bias=None), ["fused_conv"]),
    "activation": (lambda x: F.hardswish(conv(x)), ["fused_conv"]),
    "numbers": (lambda x: F.hardsigmoid(conv(x), 0.2, 0.3), ["fused_conv"]),
    "residual": (lambda x: F.relu(conv(x) + x), ["fused_conv"]),
    "residual from the left": (lambda x: x + conv(x), ["fused_conv"]),
    "two products": (lambda x: F.relu(conv(x) + conv(x, f(4, 4, 3, 3, seed=5))),
                     ["fused_conv", "fused_conv"]),
    "scale and shift": (lambda x: f(1) * F.silu(conv(x)) + 0.25, ["fused_conv"]),
    "depthwise": (lambda x: F.relu6(conv(x, DEPTHWISE, groups=4)), ["fused_conv"]),
    "linear": (lambda x: F.gelu(F.linear(x, f(6, 5), f(5))), ["fused_linear"]),
    "linear and residual": (lambda x: x + F.linear(x, f(6, 6)), ["fused_linear"]),
    # what stays outside
    "two users": (lambda x: (lambda y: F.relu(y) + F.sigmoid(y))(conv(x)),
                  ["fused_conv", "relu", "sigmoid", "add"]),
    "a result in between": (lambda x: (lambda y: (y, F.relu(y)))(conv(x)), ["fused_conv", "relu"]),
    "a sum that broadcasts": (lambda x: conv(x) + x.mean(1, keepdim=True),
                              ["fused_conv", "mean", "add"]),
    "gelu by tanh": (lambda x: F.gelu(conv(x), approximate=True), ["fused_conv", "gelu"]),
    "another activation": (lambda x: F.elu(conv(x)), ["fused_conv", "elu"]),
    "groups": (lambda x: conv(x, f(4, 2, 3, 3), groups=2), ["conv"]),
    "a weight that is no constant": (lambda x: conv(x, x[:1, :, :3, :3].tile([4, 1, 1, 1])), None),
    "the sum after the activation": (lambda x: F.relu(conv(x)) + x, ["fused_conv", "add"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_fusion(case: str) -> None:
    function, wanted = CASES[case]
    before = graph_of(function, 2, 4, 5, 6)
    after = fused(before)
    if wanted is None:
        assert not [n for n in names(after) if n.startswith("fused")]
    else:
        assert names(after) == wanted
    check_same(before, after)


SPLIT = ["fused_conv", "reshape", "transpose", "reshape"]
UP = f(4, 3, 2, 2)
TRANSPOSED = {
    "plain": (lambda x: F.conv2d_transpose(x, UP, stride=2), SPLIT),
    "bias and activation": (
        lambda x: F.relu(F.conv2d_transpose(x, f(4, 3, 3, 2), f(3), stride=[3, 2])), SPLIT),
    "channels last": (
        lambda x: F.sigmoid(F.conv2d_transpose(x, f(6, 3, 2, 2), stride=2, data_format="NHWC")),
        SPLIT),
    "two users": (lambda x: (lambda y: F.relu(y) * y)(F.conv2d_transpose(x, UP, stride=2)),
                  [*SPLIT, "relu", "multiply"]),
    "windows overlap": (lambda x: F.conv2d_transpose(x, UP, stride=1), ["conv_transpose"]),
    "padding": (lambda x: F.conv2d_transpose(x, UP, stride=2, padding=1), ["conv_transpose"]),
    "more at the end": (
        lambda x: F.conv2d_transpose(x, UP, stride=2, output_padding=1), ["conv_transpose"]),
    "groups": (lambda x: F.conv2d_transpose(x, UP, stride=2, groups=2), ["conv_transpose"]),
}  # fmt: skip


@pytest.mark.parametrize("case", TRANSPOSED)
def test_transposed_convolutions(case: str) -> None:
    function, wanted = TRANSPOSED[case]
    before = graph_of(function, 2, 4, 5, 6)
    after = fused(passes.run(before, ["split_transposed"]))
    assert names(after) == wanted
    check_same(before, after)


def test_transposed_convolutions_of_open_sizes() -> None:
    batch, side = symbols.symbol("batch"), symbols.symbol("side")
    before = graph_of(lambda x: F.relu(F.conv2d_transpose(x, UP, stride=2)), batch, 4, side, 6)
    after = fused(passes.run(before, ["split_transposed"]))
    assert names(after) == SPLIT
    sizes = {"batch": 2, "side": 3}
    check_same(specialize(before, sizes), specialize(after, sizes))


def gate(x: Any, w1: Any = None, **how: Any) -> Any:
    pooled = how.pop("pool", lambda x: F.adaptive_avg_pool2d(x, 1))(x)
    inner = F.relu(F.conv2d(pooled, f(3, 4, 1, 1) if w1 is None else w1, f(3)))
    return F.hardsigmoid(F.conv2d(inner, f(4, 3, 1, 1), f(4)))


SQUEEZED = {
    "pooled": (lambda x: x * gate(x), 1),
    "mean": (lambda x: gate(x, pool=lambda x: x.mean([2, 3], keepdim=True)) * x, 1),
    "added again": (lambda x: x + x * gate(x), 1),
    "channels last": (
        lambda x: x * F.sigmoid(F.conv2d(F.silu(F.conv2d(
            x.mean([1, 2], keepdim=True), f(3, 6, 1, 1), f(3), data_format="NHWC")),
            f(6, 3, 1, 1), f(6), data_format="NHWC")), 1),
    # what stays
    "another image": (lambda x: (x + 1.0) * gate(x), 0),
    "half the image": (lambda x: x * gate(x, pool=lambda x: F.avg_pool2d(x, [5, 3], [5, 3]))
                       .mean([2, 3], keepdim=True), 0),
    "a sum, not a mean": (lambda x: x * gate(x, pool=lambda x: F.avg_pool2d(
        x, [5, 6], divisor_override=1)), 0),
    "the factors are a result": (lambda x: (lambda g: (x * g, g))(gate(x)), 0),
    "a weight that is no constant": (lambda x: x * gate(x, x[:3, :, :1, :1][:1].tile([3, 1, 1, 1])),
                                     0),
}  # fmt: skip


@pytest.mark.parametrize("case", SQUEEZED)
def test_squeeze_and_excitation(case: str) -> None:
    function, count = SQUEEZED[case]
    before = graph_of(function, 2, 4, 5, 6)
    after = passes.run(before, ["fuse_squeeze", "fold_constants", "dead_code"])
    after.check()
    assert names(after).count("squeeze_excite") == count
    if count:
        assert names(after) == ["squeeze_excite"]
    check_same(before, after)


def test_it_is_off_unless_asked_for() -> None:
    for name in ("fuse_products", "fuse_squeeze", "split_transposed"):
        assert name in passes.names()
        assert name not in passes.enabled()


STEPS = {
    "conv": lambda x, i: F.conv2d(x, f(4, 4, 3, 3, seed=i), f(4, seed=i), padding=1),
    "pointwise": lambda x, i: F.conv2d(x, f(4, 4, 1, 1, seed=i)),
    "depthwise": lambda x, i: F.conv2d(x, f(4, 1, 3, 3, seed=i), padding=1, groups=4),
    "linear": lambda x, i: F.linear(x, f(6, 6, seed=i), f(6, seed=i)),
    "relu": lambda x, i: F.relu(x),
    "hardswish": lambda x, i: F.hardswish(x),
    "leaky": lambda x, i: F.leaky_relu(x, 0.1 * i),
    "sigmoid": lambda x, i: F.sigmoid(x),
    "scale": lambda x, i: x * (0.5 + i),
    "shift": lambda x, i: x + 0.5 * i,
}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*STEPS, "sum"]), st.integers(0, 5)), max_size=12))
def test_random_graphs(steps: list[tuple[str, int]]) -> None:
    def function(x: Any) -> Any:
        values = [x]
        for i, (step, back) in enumerate(steps):
            other = values[-1 - back % len(values)]
            made = values[-1] + other if step == "sum" else STEPS[step](other, i)
            values.append(made)
        return values[-1], values[len(values) // 2]

    before = graph_of(function, 2, 4, 5, 6)
    after = fused(before)
    assert not {"conv", "linear"} & set(names(after))
    check_same(before, after)
