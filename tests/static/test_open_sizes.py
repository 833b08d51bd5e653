"""Sizes that a program leaves open are equal when the feeds say so, and checked then."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme import static
from bireme.core.errors import ShapeMismatch


@pytest.fixture(autouse=True)
def _programs():
    paddle.enable_static()
    yield
    paddle.disable_static()


def _ones(*shape: int) -> np.ndarray:
    return np.ones(shape, "float32")


@pytest.mark.parametrize("cell", ["GRU", "LSTM", "SimpleRNN"])
@pytest.mark.parametrize("time_major", [False, True])
def test_first_states_of_recurrent_layers(cell, time_major):
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        layer = getattr(paddle.nn, cell)(4, 8, time_major=time_major)
        x, h = static.data("x", [-1, -1, 4]), static.data("h", [1, -1, 8])
        y, _ = layer(x, (h, h) if cell == "LSTM" else h)
        paddle.optimizer.SGD(0.1, parameters=layer.parameters()).minimize(y.mean())
    exe = static.Executor()
    exe.run(startup)
    shape = (5, 2, 4) if time_major else (2, 5, 4)
    (out,) = exe.run(main, feed={"x": _ones(*shape), "h": _ones(1, 2, 8)}, fetch_list=[y])
    assert out.shape == (*shape[:2], 8)
    with pytest.raises(ShapeMismatch, match=r"'h0' must have shape \[2, 8\], not \[3, 8\]"):
        exe.run(main, feed={"x": _ones(*shape), "h": _ones(1, 3, 8)}, fetch_list=[y])


def test_what_is_joined():
    main = static.Program()
    with static.program_guard(main):
        x, y = static.data("x", [-1, 3]), static.data("y", [3, -1])
        joined = paddle.concat([x, y.t()], axis=1)
        fixed = paddle.concat([joined, paddle.ones([4, 1])], axis=1)
    assert joined.shape == [-1, 6]
    assert fixed.shape == [4, 7]
    exe = static.Executor()
    feed = {"x": _ones(4, 3), "y": _ones(3, 4) * 2}
    (out,) = exe.run(main, feed=feed, fetch_list=[joined])
    np.testing.assert_array_equal(out, np.concatenate([feed["x"], feed["y"].T], 1))
    with pytest.raises(ShapeMismatch, match=r"\[concat\].*\[4, 3\] and \[5, 3\]"):
        exe.run(main, feed={"x": _ones(4, 3), "y": _ones(3, 5)}, fetch_list=[joined])


def test_sizes_that_are_known_are_compared_at_once():
    with static.program_guard(static.Program()):
        x = static.data("x", [-1, 3])
        with pytest.raises(ShapeMismatch, match=r"\[concat\]"):
            paddle.concat([x, static.data("y", [-1, 4])], axis=0)


def test_a_captured_function_is_captured_again_with_fewer_open_sizes():
    """It is not checked a second time, so two sizes are only equal if they have one name."""
    paddle.disable_static()

    @paddle.jit.to_static(
        input_spec=[static.InputSpec([None, 3], "float32"), static.InputSpec([None, 2], "float32")]
    )
    def joined(x, y):
        return paddle.concat([x, y], axis=1)

    for n in (2, 5):
        assert joined(paddle.ones([n, 3]), paddle.ones([n, 2])).shape == [n, 5]


def test_labels_of_another_open_size() -> None:
    """Rows of a reshaped input and labels have sizes that only a run tells to be equal."""
    main = static.Program()
    with static.program_guard(main):
        x, y = static.data("x", [-1, 3, 5]), static.data("y", [-1, 1], "int64")
        loss = paddle.nn.functional.softmax_with_cross_entropy(x.reshape([-1, 5]), y)
    exe = static.Executor()
    rng = np.random.RandomState(0)
    for batch in (2, 4):
        logits = rng.randn(batch, 3, 5).astype("float32")
        labels = rng.randint(0, 5, (batch * 3, 1))
        (got,) = exe.run(main, feed={"x": logits, "y": labels}, fetch_list=[loss])
        rows = logits.reshape(-1, 5)
        want = np.log(np.exp(rows).sum(1, keepdims=True)) - np.take_along_axis(rows, labels, 1)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    with pytest.raises(ShapeMismatch, match=r"\[12, 1\], not \[7, 1\]"):
        exe.run(main, feed={"x": logits, "y": labels[:7]}, fetch_list=[loss])


def test_a_size_may_come_from_an_input_that_is_not_used_otherwise() -> None:
    main = static.Program()
    with static.program_guard(main):
        x, n = static.data("x", [None, None, 4]), static.data("n", [None], "int64")
        zeros = paddle.zeros([x.shape[1], 3])
        mask = paddle.nn.functional.sequence_mask(n, maxlen=x.shape[1])
    feed = {"x": np.ones((2, 5, 4), "float32"), "n": np.array([3, 5])}
    found = static.Executor().run(main, feed, [zeros, mask])
    assert found[0].shape == (5, 3)
    np.testing.assert_array_equal(found[1], [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])


def test_an_output_size_is_held_against_an_open_size_when_it_is_fed() -> None:
    main = static.Program()
    with static.program_guard(main):
        x = static.data("x", [None, 1, None])
        made = paddle.nn.functional.conv1d_transpose(
            x, paddle.ones([1, 1, 3]), stride=2, output_size=[8]
        )
    run = static.Executor().run
    assert run(main, {"x": np.ones((2, 1, 3), "float32")}, [made])[0].shape == (2, 1, 8)
    with pytest.raises(ShapeMismatch, match="output size 8"):
        run(main, {"x": np.ones((2, 1, 9), "float32")}, [made])


F = paddle.nn.functional
SQUARE = ["n", "n"]


@pytest.mark.parametrize(
    ("function", "declared", "fed"),
    [
        (lambda x: F.adaptive_avg_pool2d(x, [3, 2]), [None] * 4, (2, 3, 7, 5)),
        (lambda x: F.adaptive_max_pool2d(x, [None, 2]), [None] * 4, (2, 3, 6, 5)),
        (lambda x: F.interpolate(x, size=[7, 6], mode="area"), [None] * 4, (1, 2, 4, 4)),
        (lambda x: F.pad(x, [1, 2, 0, 1], mode="reflect"), [None] * 4, (2, 3, 4, 4)),
        (lambda x: F.pad(x, [1, 2, 0, 1], mode="circular"), [None] * 4, (2, 3, 4, 4)),
        (lambda x: paddle.eye(x.shape[0]) + x, SQUARE, (3, 3)),
        (lambda x: paddle.einsum("i->ii", x), [None], (3,)),
        (lambda x: paddle.trace(x, offset=1), [None, None], (3, 4)),
        (lambda x: paddle.diagonal(x, -1), [None, None], (3, 4)),
        (lambda x: paddle.diag(x, 1), [None, None], (3, 4)),
        (lambda x: paddle.tensor_split(x, [2, 5]), [None, None], (7, 2)),
        (lambda x: paddle.kthvalue(x, 2), [None, None], (3, 5)),
        (lambda x: paddle.cdist(x, x + 1), [None, None], (3, 4)),
        (lambda x: paddle.linalg.lu(x), SQUARE, (3, 3)),
        (lambda x: paddle.linalg.multi_dot([x, x.T, x]), [None, None], (2, 3)),
        (lambda x: paddle.as_strided(x, [2, 2], [4, 1], 4), [None, None], (3, 4)),
        (lambda x: x.narrow(0, 1, 2), [None, None], (4, 3)),
        (lambda x: x.unfold(0, 2, 2), [None], (6,)),
    ],
)
def test_a_decision_waits_for_the_sizes_that_are_fed(function, declared, fed) -> None:
    array = np.random.default_rng(0).random(fed, "float32")
    main = static.Program()
    with static.program_guard(main):
        made = function(static.data("x", declared))
        results = list(made) if isinstance(made, list | tuple) else [made]
    found = static.Executor().run(main, {"x": array}, results)
    paddle.disable_static()
    expected = function(paddle.to_tensor(array))
    for got, want in zip(found, expected if len(results) > 1 else [expected], strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-6)


def test_what_is_wrong_for_the_sizes_that_are_fed_is_refused_then() -> None:
    main = static.Program()
    with static.program_guard(main):
        made = F.pad(static.data("x", [None] * 4), [3, 0, 0, 0], mode="reflect")
    with pytest.raises(ShapeMismatch, match="reflecting"):
        static.Executor().run(main, {"x": _ones(1, 1, 3, 3)}, [made])
    with static.program_guard(static.Program()), pytest.raises(ShapeMismatch, match="is open"):
        paddle.gather_nd(static.data("y", [3, 4]), static.data("i", [2, None], "int64"))


def test_a_tensor_expands_to_the_size_that_the_other_is_fed_with() -> None:
    main = static.Program()
    with static.program_guard(main):
        x, y = static.data("x", [None, 3]), static.data("y", [None, 3])
        x.stop_gradient = False
        made = paddle.expand_as(x, y)
        grad = static.gradients([made], [x])[0]
    found = static.Executor().run(main, {"x": _ones(1, 3), "y": _ones(4, 3)}, [made, grad])
    np.testing.assert_array_equal(found[0], _ones(4, 3))
    np.testing.assert_array_equal(found[1], np.full((1, 3), 4.0))
