"""Decoder layers as one call: what it computes is what the layers did."""

import jax.numpy as jnp
import numpy as np
import pytest

import bireme as paddle
from bireme import nn, passes
from bireme.capture.capture import capture
from bireme.core import kernels
from bireme.core.aval import aval
from bireme.core.dtype import float32, int64
from bireme.nn import functional as F
from bireme.nn.generation import KVCache
from bireme.nn.generation.stack import EACH

WIDTH, HEADS, GROUPS, SIZE, INNER, LENGTH = 32, 4, 2, 8, 48, 12


def linear(n_in, n_out):
    return nn.Linear(n_in, n_out, bias_attr=False)


def turned(x, cos, sin):
    a, b = paddle.chunk(x, 2, -1)
    return x * cos + paddle.concat([-b, a], -1) * sin


def turned_otherwise(x, cos, sin):
    a, b = paddle.chunk(x, 2, -1)
    return sin * paddle.concat([-b, a], axis=3) + cos * x


def not_turned(x, cos, sin):
    a, b = paddle.chunk(x, 2, -1)
    return x * cos + paddle.concat([-a, b], -1) * sin


def gated(gate, up):
    return F.silu(gate) * up


class Block(nn.Layer):
    def __init__(self, index, turn=turned, gate=gated, epsilon=1e-5):
        super().__init__()
        self.index, self.turn, self.opened = index, turn, gate
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH, epsilon), nn.RMSNorm(WIDTH, 1e-5)
        self.q, self.mix = linear(WIDTH, HEADS * SIZE), linear(HEADS * SIZE, WIDTH)
        self.k, self.v = linear(WIDTH, GROUPS * SIZE), linear(WIDTH, GROUPS * SIZE)
        self.gate, self.up = linear(WIDTH, INNER), linear(WIDTH, INNER)
        self.down = linear(INNER, WIDTH)

    def forward(self, x, cos, sin, cache):
        h = self.norm1(x)
        q = self.turn(self.q(h).reshape([1, 1, HEADS, SIZE]), cos, sin)
        k = self.turn(self.k(h).reshape([1, 1, GROUPS, SIZE]), cos, sin)
        v = self.v(h).reshape([1, 1, GROUPS, SIZE])
        x = x + self.mix(cache.attend(self.index, q, k, v).reshape([1, 1, HEADS * SIZE]))
        h = self.norm2(x)
        return self.down(self.opened(self.gate(h), self.up(h))) + x


def graph_of(blocks, after=None, look=lambda x: []):
    """The graph of one token's way through the blocks, with values for its inputs."""
    paddle.seed(0)

    def step(given):
        x, cos, sin, place, *kept = given
        cache = KVCache(LENGTH)
        cache.place = place
        cache.layers = list(zip(kept[::2], kept[1::2], strict=True))
        seen = []
        for block in blocks:
            x = block(x, cos, sin, cache)
            seen += look(x)
        if after is not None:
            x = after(x)
        return [x, *[t for pair in cache.layers for t in pair], *seen]

    rng = np.random.default_rng(0)
    kept = [aval((1, LENGTH, GROUPS, SIZE), float32)] * (2 * len(blocks))
    turn = aval((1, 1, 1, SIZE), float32)
    types = [aval((1, 1, WIDTH), float32), turn, turn, aval((1,), int64), *kept]
    captured = capture(step, types, label="test", tape=False)
    graph, order = captured.graph, captured.op.given
    graph.outputs = graph.outputs[: len(captured.tracked)]
    inputs = [None] * len(graph.inputs)
    for i, t in zip(order, types, strict=False):
        drawn = rng.standard_normal(t.shape).astype("float32")
        inputs[i] = jnp.asarray(drawn if t.dtype is float32 else np.full(t.shape, 7))
    for i, tensor in zip(order[len(types) :], captured.outer, strict=True):
        inputs[i] = jnp.asarray(tensor.numpy())
    return graph, inputs


def evaluated(graph, inputs):
    return graph.evaluate(inputs, (), (), lambda c, a: c.run(jnp, a))


def names(graph):
    return [n.call.op.name for n in graph.nodes]


@pytest.fixture(autouse=True)
def a_kernel_for_every_stack(monkeypatch):
    chosen = kernels.choose

    def choose(call, platform, inference=False):
        if call.op.name == "decoder_stack":
            return "any"
        return chosen(call, platform, inference)

    monkeypatch.setattr(kernels, "choose", choose)


class Head(nn.Layer):
    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.RMSNorm(WIDTH, 1e-5), linear(WIDTH, 20)

    def forward(self, x):
        return self.out(self.norm(x))


@pytest.mark.parametrize("turn", [turned, turned_otherwise])
@pytest.mark.parametrize("gate", [gated, lambda g, u: u * F.silu(g), F.swiglu])
@pytest.mark.parametrize("head", [True, False])
def test_layers_become_one_call(turn, gate, head):
    blocks = [Block(i, turn, gate) for i in range(3)]
    graph, inputs = graph_of(blocks, Head() if head else None)
    stacked = passes.run(graph, ["stack_layers"])
    assert names(stacked) == ["decoder_stack"]
    (node,) = stacked.nodes
    assert node.call.attrs["layers"] == 3
    assert len(node.args) == 4 + 3 * EACH + 2 * head
    for got, want in zip(evaluated(stacked, inputs), evaluated(graph, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_layer_of_another_epsilon_ends_the_stack():
    blocks = [Block(0), Block(1), Block(2, epsilon=1e-3)]
    graph, inputs = graph_of(blocks)
    stacked = passes.run(graph, ["stack_layers"])
    assert names(stacked).count("decoder_stack") == 1
    assert "cache_attend" in names(stacked)
    for got, want in zip(evaluated(stacked, inputs), evaluated(graph, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_what_somebody_else_reads_stays():
    graph, _ = graph_of([Block(0), Block(1)], look=lambda x: [x * 2])
    assert "decoder_stack" not in names(passes.run(graph, ["stack_layers"]))


def test_another_rotation_is_left_alone():
    graph, _ = graph_of([Block(0, not_turned)])
    assert passes.run(graph, ["stack_layers"]) is graph


def test_without_a_kernel_nothing_changes(monkeypatch):
    graph, _ = graph_of([Block(0)])
    monkeypatch.setattr(kernels, "choose", lambda *a: None)
    assert passes.run(graph, ["stack_layers"]) is graph
