"""Native recurrences against the plain scan in float64, values and gradients, on random shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bireme as paddle
from bireme import nn
from bireme.core import executor, kernels
from bireme.host import config
from bireme.ops import rnn
from tests.kernels.kernel_oracle import MARKS, assert_kernel_equals_plain, compiled, gradients, many

__all__ = ["compiled"]  # a fixture
pytestmark = MARKS

GATES = {"lstm": 4, "gru": 3, "simple_rnn": 1}


def _function(kind, biases, lengths, **options):
    """The op on its states, weights and biases, all of which get a gradient."""
    layer = getattr(rnn, kind)

    def run(*arrays):
        more = [None] * (2 - biases)
        ends = None if lengths is None else paddle.to_tensor(lengths)
        return layer(*arrays, *more, sequence_length=ends, **options)

    return run


def _arrays(kind, steps, batch, width, hidden, biases, seed):
    rng = np.random.default_rng(seed)
    states = 2 if kind == "lstm" else 1
    wide = GATES[kind] * hidden
    shapes = [(steps, batch, width), *[(batch, hidden)] * states, (wide, width), (wide, hidden)]
    shapes += [(wide,)] * biases
    arrays = [(rng.normal(size=s) * 0.5).astype(np.float32) for s in shapes]
    arrays[2 + states] *= 0.2
    return arrays


@many(50)
@given(
    st.sampled_from(sorted(GATES)), st.integers(1, 9), st.integers(1, 11), st.integers(1, 9),
    st.sampled_from([16, 48, 64, 80, 128]), st.integers(0, 2), st.booleans(), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_recurrence(kind, steps, batch, width, hidden, biases, ragged, reverse, relu):
    options = {"activation": "relu"} if relu and kind == "simple_rnn" else {}
    lengths = None
    if ragged:  # also sequences without a step
        lengths = np.random.default_rng(batch).integers(0, steps + 1, batch)
    arrays = _arrays(kind, steps, batch, width, hidden, biases, steps * 100 + batch)
    run = _function(kind, biases, lengths, reverse=reverse, **options)
    assert_kernel_equals_plain(f"native_{kind}", run, arrays)


@pytest.mark.parametrize("kind", sorted(GATES))
def test_what_the_kernel_does_not_take(kind):
    """Hidden sizes that are no multiple of a register, empty batches, float64."""
    before = kernels.uses[f"native_{kind}"]
    run = _function(kind, 2, None)
    for batch, hidden in ((3, 7), (0, 16)):
        arrays = _arrays(kind, 4, batch, 5, hidden, 2, 1)
        found = gradients(run, arrays)
        assert found[0].shape == (4, batch, hidden)
        assert all(np.isfinite(a).all() for a in found)
    gradients(run, [a.astype(np.float64) for a in _arrays(kind, 4, 2, 5, 16, 2, 1)])
    assert kernels.uses[f"native_{kind}"] == before


@pytest.mark.parametrize("kind", sorted(GATES))
def test_half_precision_computes_in_single(kind):
    arrays = [paddle.to_tensor(a) for a in _arrays(kind, 6, 5, 4, 32, 2, 3)]
    run = _function(kind, 2, None)
    exact = run(*arrays)[0].numpy()
    before = kernels.uses[f"native_{kind}"]
    with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
        for a in arrays:
            a.stop_gradient = False
        y = run(*arrays)[0]
    y.astype("float32").sum().backward()
    assert y.dtype == paddle.bfloat16
    assert all(a.grad.dtype == paddle.float32 for a in arrays)
    np.testing.assert_allclose(y.astype("float32").numpy(), exact, atol=2e-2)
    assert np.isfinite(arrays[0].grad.numpy()).all()
    assert kernels.uses[f"native_{kind}"] >= before + 2


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN"])
def test_layers_of_every_option_use_it(kind, ragged, monkeypatch):
    """Two layers, both directions, dropout between them: the kernel for each of the four parts."""
    name = {"LSTM": "native_lstm", "GRU": "native_gru", "SimpleRNN": "native_simple_rnn"}[kind]

    def train(dtype):
        paddle.seed(5)
        layer = getattr(nn, kind)(6, 32, num_layers=2, direction="bidirect", dropout=0.5)
        rng = np.random.default_rng(0)
        for p in layer.parameters():
            p.set_value(rng.normal(size=p.shape).astype(np.float32) * 0.2)
        layer.to(dtype=dtype)
        x = paddle.to_tensor(rng.normal(size=(3, 7, 6)).astype(dtype), stop_gradient=False)
        ends = paddle.to_tensor([7, 2, 5]) if ragged else None
        y, _ = layer(x, sequence_length=ends)
        (y * y).sum().backward()
        return [y.numpy(), x.grad.numpy(), *(p.grad.numpy() for p in layer.parameters())]

    executor.clear_programs()
    before = kernels.uses[name]
    fast = train("float32")
    assert kernels.uses[name] >= before + 8  # four parts, forward and backward
    monkeypatch.setattr(config, "compile_mode", "never")
    for a, b in zip(fast, train("float64"), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5 * max(1.0, np.abs(b).max()))
