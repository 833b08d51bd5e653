"""Recurrent ops against the real paddle's layers: gates, directions, lengths, gradients."""

import warnings

import numpy as np
import pytest

import bireme
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.ops import rnn
from tests.ops.functional_oracle import TIERS, paddle, rand, tier

STEPS, BATCH, WIDTH, HIDDEN = 5, 3, 4, 6
GATES = {"LSTM": 4, "GRU": 3, "SimpleRNN": 1}


def arrays(kind):
    rows = GATES[kind] * HIDDEN
    states = [rand(BATCH, HIDDEN, seed=1)]
    if kind == "LSTM":
        states.append(rand(BATCH, HIDDEN, seed=2))
    weights = [rand(rows, WIDTH, seed=3), rand(rows, HIDDEN, seed=4), rand(rows, seed=5),
               rand(rows, seed=6)]  # fmt: skip
    return rand(STEPS, BATCH, WIDTH), states, weights


def ours(kind, lengths, reverse, **options):
    x, states, weights = arrays(kind)
    leaves = [bireme.to_tensor(a, stop_gradient=False) for a in (x, *states, *weights)]
    function = {"LSTM": rnn.lstm, "GRU": rnn.gru, "SimpleRNN": rnn.simple_rnn}[kind]
    given = None if lengths is None else bireme.to_tensor(lengths)
    outs = function(*leaves, sequence_length=given, reverse=reverse, **options)
    return collect(bireme, outs, leaves)


def theirs(kind, lengths, reverse, **options):
    """A cell run step by step: the fused layers' gradient of weight_hh is off for lengths in
    reverse, where the first step of a short sequence follows steps that do not count."""
    x, states, weights = arrays(kind)
    cell = getattr(paddle.nn, kind + "Cell")(WIDTH, HIDDEN, **options)
    own = [cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh]
    for parameter, value in zip(own, weights, strict=True):
        parameter.set_value(paddle.to_tensor(value))
    x = paddle.to_tensor(x, stop_gradient=False)
    states = [paddle.to_tensor(s, stop_gradient=False) for s in states]
    given = None if lengths is None else paddle.to_tensor(lengths)
    layer = paddle.nn.RNN(cell, is_reverse=reverse, time_major=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # paddle uses a deprecated function of its own
        y, last = layer(x, tuple(states) if len(states) > 1 else states[0], sequence_length=given)
    if lengths is not None:
        y = y * paddle.to_tensor((np.arange(STEPS)[:, None] < lengths)[..., None].astype("float32"))
    last = list(last) if isinstance(last, tuple | list) else [last]
    return collect(paddle, [y, *last], [x, *states, *own])


def fused_outputs(kind, lengths, reverse):
    """What a bidirectional layer of paddle gives in one of its directions."""
    x, states, weights = arrays(kind)
    layer = getattr(paddle.nn, kind)(WIDTH, HIDDEN, direction="bidirect", time_major=True)
    end = "_reverse" if reverse else ""
    for name, value in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), weights, strict=True):
        getattr(layer, f"{name}_l0{end}").set_value(paddle.to_tensor(value))
    pairs = [paddle.to_tensor(np.stack([s, s])) for s in states]
    given = None if lengths is None else paddle.to_tensor(lengths)
    y, last = layer(
        paddle.to_tensor(x), tuple(pairs) if len(pairs) > 1 else pairs[0], sequence_length=given
    )
    last = list(last) if isinstance(last, tuple | list) else [last]
    side = slice(HIDDEN, None) if reverse else slice(0, HIDDEN)
    return [y.numpy()[:, :, side], *(s.numpy()[int(reverse)] for s in last)]


def collect(lib, outs, leaves):
    for i, o in enumerate(outs):
        weight = lib.to_tensor(rand(*o.shape, seed=20 + i))
        o.backward(weight, retain_graph=i + 1 < len(outs))
    return [o.numpy() for o in outs] + [leaf.grad.numpy() for leaf in leaves]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("lengths", [None, [5, 2, 3]])
@pytest.mark.parametrize("kind", list(GATES))
def test_against_paddle(kind, lengths, reverse):
    lengths = None if lengths is None else np.array(lengths)
    want = theirs(kind, lengths, reverse)
    layer = fused_outputs(kind, lengths, reverse)
    for mode in TIERS:
        with tier(mode):
            got = ours(kind, lengths, reverse)
        for g, w in zip(got, layer, strict=False):
            np.testing.assert_allclose(g, w, rtol=1e-4, atol=2e-5, err_msg=f"{kind} {mode} layer")
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            np.testing.assert_allclose(g, w, rtol=1e-4, atol=2e-5, err_msg=f"{kind} {mode} {i}")


def test_relu():
    want = theirs("SimpleRNN", None, False, activation="relu")
    got = ours("SimpleRNN", None, False, activation="relu")
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", list(GATES))
def test_cells(kind):
    x, states, weights = (
        [bireme.to_tensor(a) for a in part] if isinstance(part, list) else bireme.to_tensor(part)
        for part in arrays(kind)
    )
    step = bireme.to_tensor(x.numpy()[0])
    cell = {"LSTM": rnn.lstm_cell, "GRU": rnn.gru_cell, "SimpleRNN": rnn.simple_rnn_cell}[kind]
    new = cell(step, *states, *weights)
    new = list(new) if isinstance(new, tuple) else [new]
    layer = getattr(paddle.nn, kind + "Cell")(WIDTH, HIDDEN)
    for name, value in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), weights, strict=True):
        getattr(layer, name).set_value(paddle.to_tensor(value.numpy()))
    given = [paddle.to_tensor(s.numpy()) for s in states]
    _, want = layer(paddle.to_tensor(step.numpy()), tuple(given) if len(given) > 1 else given[0])
    for g, w in zip(new, want if isinstance(want, tuple) else [want], strict=True):
        np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=1e-4, atol=1e-6)


def test_without_bias():
    x, states, weights = arrays("LSTM")
    leaves = [bireme.to_tensor(a) for a in (x, *states, *weights[:2])]
    zeros = bireme.to_tensor(np.zeros(4 * HIDDEN, "float32"))
    y, _, _ = rnn.lstm(*leaves)
    want, _, _ = rnn.lstm(*leaves, zeros, zeros)
    np.testing.assert_allclose(y.numpy(), want.numpy(), rtol=1e-6)


def test_bad_input():
    x, states, weights = arrays("GRU")
    x, h = bireme.to_tensor(x), bireme.to_tensor(states[0])
    w = [bireme.to_tensor(a) for a in weights]
    with pytest.raises(ShapeMismatch, match="w_ih"):
        rnn.gru(x, h, w[1], w[1])
    with pytest.raises(ShapeMismatch, match="h0"):
        rnn.gru(x, bireme.to_tensor(rand(BATCH + 1, HIDDEN)), *w)
    with pytest.raises(ShapeMismatch, match="3 dimensions"):
        rnn.gru(h, h, *w)
    with pytest.raises(TypeMismatch, match="integers"):
        rnn.gru(x, h, *w, sequence_length=bireme.to_tensor(rand(BATCH)))
    with pytest.raises(ShapeMismatch, match="sequence_length"):
        rnn.gru(x, h, *w, sequence_length=bireme.to_tensor([1, 2]))
    with pytest.raises(TypeMismatch, match="dtype"):
        rnn.gru(x, bireme.to_tensor(states[0].astype("float64")), *w)
    with pytest.raises(InvalidArgument, match="activation"):
        rnn.simple_rnn(x, h, *w, activation="gelu")
