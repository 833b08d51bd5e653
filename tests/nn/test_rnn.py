"""Recurrent layers against the real wheel: directions, depths, lengths, states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme
from bireme.nn.layer.rnn import _run_fused, run_cell

pytestmark = pytest.mark.filterwarnings("ignore")  # the reference warns about its own plans

R = np.random.default_rng(5)
X = R.standard_normal((3, 6, 4)).astype("float32")
R_STATE = R.standard_normal((3, 5)).astype("float32")


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [t for part in value for t in _flat(part)]
    return [value]


def _pair(paddle: Any, name: str, **options: Any) -> tuple[Any, Any]:
    theirs = getattr(paddle.nn, name)(4, 5, **options)
    mine = getattr(bireme.nn, name)(4, 5, **options)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    mine.set_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    assert repr(mine) == repr(theirs)
    return theirs, mine


def _compare(paddle: Any, theirs: Any, mine: Any, *arrays: Any, gradients: bool = True) -> None:
    results = []
    for lib, layer in ((paddle, theirs), (bireme, mine)):
        inputs = [None if a is None else _tensor(lib, a) for a in arrays]
        inputs[0].stop_gradient = False
        outs = _flat(layer(*inputs))
        sum((o * o).sum() for o in outs).backward()
        grads = [inputs[0].grad, *[p.grad for p in layer.parameters()]] if gradients else []
        results.append([t.numpy() for t in (*outs, *grads) if t is not None])
    assert len(results[0]) == len(results[1])
    for want, got in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)


def _tensor(lib: Any, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(lib.to_tensor(v) for v in value)
    return lib.to_tensor(value)


@pytest.mark.parametrize("name", ["SimpleRNN", "LSTM", "GRU"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_layers": 2},
        {"direction": "bidirect"},
        {"num_layers": 2, "direction": "bidirectional", "time_major": True},
    ],
    ids=str,
)
def test_layers(paddle: Any, name: str, options: dict[str, Any]) -> None:
    theirs, mine = _pair(paddle, name, **options)
    _compare(paddle, theirs, mine, X)


@pytest.mark.parametrize("name", ["SimpleRNN", "LSTM", "GRU"])
@pytest.mark.parametrize("direction", ["forward", "bidirect"])
def test_lengths_and_initial_states(paddle: Any, name: str, direction: str) -> None:
    theirs, mine = _pair(paddle, name, direction=direction, num_layers=2)
    count = 4 if direction == "bidirect" else 2
    states = [R.standard_normal((count, 3, 5)).astype("float32") for _ in range(2)]
    given = tuple(states) if name == "LSTM" else states[0]
    lengths = np.array([6, 3, 1], "int64")
    # Going backwards over sequences of different lengths, the reference's gradients are not
    # those of its outputs; ours are compared with the step-by-step form below.
    _compare(paddle, theirs, mine, X, given, lengths, gradients=direction == "forward")


@pytest.mark.parametrize("name", ["SimpleRNNCell", "LSTMCell", "GRUCell"])
def test_backwards_over_lengths_equals_step_by_step(name: str) -> None:
    cell = getattr(bireme.nn, name)(4, 5)
    lengths = np.array([6, 3, 1])
    runs = (np.arange(6)[:, None] < lengths)[:, :, None].astype("float32")
    results = []
    for fused in (True, False):
        x = bireme.to_tensor(X.transpose(1, 0, 2), stop_gradient=False)
        state = bireme.to_tensor(R_STATE)
        states = (state, state) if name == "LSTMCell" else state
        given = bireme.to_tensor(lengths)
        if fused:
            y, last = _run_fused(cell, x, states, given, True)
        else:
            y, last = run_cell(cell, x, states, given, True, True, {})
            y = y * bireme.to_tensor(runs)
        sum((t * t).sum() for t in _flat((y, last))).backward()
        grads = [x.grad, *[p.grad for p in cell.parameters()]]
        results.append([t.numpy() for t in (*_flat((y, last)), *grads)])
        for p in cell.parameters():
            p.clear_gradient(False)
    for want, got in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_relu_activation(paddle: Any) -> None:
    theirs, mine = _pair(paddle, "SimpleRNN", activation="relu")
    _compare(paddle, theirs, mine, X)


def test_projection(paddle: Any) -> None:
    theirs, mine = _pair(paddle, "LSTM", proj_size=3)
    _compare(paddle, theirs, mine, X)


@pytest.mark.parametrize("lengths", [None, np.array([6, 2, 4], "int64")])
@pytest.mark.parametrize("reverse", [False, True])
def test_rnn_of_a_cell(paddle: Any, lengths: Any, reverse: bool) -> None:
    results = []
    for lib in (paddle, bireme):
        cell = lib.nn.GRUCell(4, 5)
        layer = lib.nn.RNN(cell, is_reverse=reverse)
        results.append(layer)
    results[1].set_state_dict({k: v.numpy() for k, v in results[0].state_dict().items()})
    _compare(paddle, results[0], results[1], X, None, lengths)


def test_birnn(paddle: Any) -> None:
    layers = [
        lib.nn.BiRNN(lib.nn.LSTMCell(4, 5), lib.nn.LSTMCell(4, 5)) for lib in (paddle, bireme)
    ]
    layers[1].set_state_dict({k: v.numpy() for k, v in layers[0].state_dict().items()})
    _compare(paddle, layers[0], layers[1], X)


def test_a_cell_of_ones_own() -> None:
    class Sum(bireme.nn.RNNCellBase):
        @property
        def state_shape(self) -> tuple[int]:
            return (4,)

        def forward(self, x: Any, state: Any) -> Any:
            return state + x, state + x

    out, last = bireme.nn.RNN(Sum())(bireme.to_tensor(X))
    np.testing.assert_allclose(out.numpy(), np.cumsum(X, axis=1), rtol=1e-5)
    np.testing.assert_allclose(last.numpy(), X.sum(axis=1), rtol=1e-5, atol=1e-6)


def test_dropout_between_layers_only_in_training() -> None:
    layer = bireme.nn.LSTM(4, 5, num_layers=2, dropout=0.5)
    x = bireme.to_tensor(X)
    layer.eval()
    first, second = layer(x)[0].numpy(), layer(x)[0].numpy()
    np.testing.assert_array_equal(first, second)
    layer.train()
    assert not np.array_equal(layer(x)[0].numpy(), layer(x)[0].numpy())


def test_clear_errors() -> None:
    with pytest.raises(ValueError, match="direction must be"):
        bireme.nn.LSTM(4, 5, direction="sideways")
    with pytest.raises(ValueError, match="hidden_size must be positive"):
        bireme.nn.GRUCell(4, 0)
    with pytest.raises(ValueError, match=r"2 part\(s\)"):
        bireme.nn.LSTM(4, 5)(bireme.to_tensor(X), bireme.zeros([1, 3, 5]))


def test_a_bias_that_is_left_out_stays_zero() -> None:
    """Keys as in the real wheel, which crashes when such a layer is called."""
    layer = bireme.nn.GRU(4, 5, bias_ih_attr=False)
    assert list(layer.state_dict())[:3] == ["weight_ih_l0", "weight_hh_l0", "bias_hh_l0"]
    layer(bireme.to_tensor(X))[0].sum().backward()
    cell = layer[0].cell
    assert cell.bias_ih.grad is None
    assert not cell.bias_ih.numpy().any()


@pytest.mark.parametrize("lengths", [None, np.array([6, 2, 4], "int64")])
def test_projection_in_both_directions(paddle: Any, lengths: Any) -> None:
    theirs, mine = _pair(paddle, "LSTM", proj_size=3, direction="bidirect", num_layers=2)
    _compare(paddle, theirs, mine, X, None, lengths)


def test_projection_over_sizes_that_are_open() -> None:
    main, startup, exe = bireme.static.Program(), bireme.static.Program(), bireme.static.Executor()
    bireme.enable_static()
    try:
        with bireme.static.program_guard(main, startup):
            x = bireme.static.data("x", [-1, -1, 4])
            y, _ = bireme.nn.LSTM(4, 5, proj_size=3)(x)
        exe.run(startup)
        for steps in (2, 7):
            feed = {"x": np.ones((3, steps, 4), "float32")}
            assert exe.run(main, feed=feed, fetch_list=[y])[0].shape == (3, steps, 3)
    finally:
        bireme.disable_static()


def test_time_major_is_taken_by_its_truth() -> None:
    cell = bireme.nn.SimpleRNNCell(4, 5)
    y, _ = bireme.nn.RNN(cell, time_major="yes")(bireme.ones([6, 3, 4]))  # pyright: ignore[reportArgumentType]
    assert y.shape == [6, 3, 5]
