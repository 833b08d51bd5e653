"""A replayed backward pass gives what walking the tape would have given."""

# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bireme as paddle
from bireme.core import autograd, replay, trace
from bireme.host import config
from bireme.nn import functional as F


@pytest.fixture
def walks(monkeypatch):
    """How many backward passes were walked."""
    count = [0]
    walk = autograd.run_backward

    def counted(*args, **kwargs):
        count[0] += 1
        return walk(*args, **kwargs)

    replay._memory.clear()
    trace.flush()  # a tape is known by its place in the trace, too
    monkeypatch.setattr(replay, "run_backward", counted)
    return count


def leaf(*values: float) -> paddle.Tensor:
    return paddle.to_tensor(np.array(values, "float32"), stop_gradient=False)


def test_the_second_step_of_a_loop_is_replayed(walks):
    model = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.ReLU(), paddle.nn.Linear(4, 1))
    optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
    x = paddle.to_tensor(np.arange(6, dtype="float32").reshape(2, 3))
    for _ in range(5):
        model(x).mean().backward()
        optimizer.step()
        optimizer.clear_grad()
    assert walks[0] == 1


def test_replayed_gradients_belong_to_this_steps_leaves(walks):
    for scale in (1.0, 2.0, 3.0):
        a, b = leaf(1.0, scale), leaf(scale, 5.0)
        (a * b * scale).sum().backward()
        np.testing.assert_allclose(a.grad.numpy(), b.numpy() * scale)
        np.testing.assert_allclose(b.grad.numpy(), a.numpy() * scale)
    assert walks[0] == 1


def test_two_tensors_with_one_value_are_not_mistaken_for_one(walks):
    x = leaf(2.0, 3.0)
    (x * x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [4.0, 6.0])
    x.clear_grad(set_to_zero=False)
    x.numpy()
    y = x.detach()
    y.stop_gradient = False
    (x * y).sum().backward()  # the same ops on the same slots, but another tape
    np.testing.assert_allclose(x.grad.numpy(), [2.0, 3.0])
    np.testing.assert_allclose(y.grad.numpy(), [2.0, 3.0])


def test_what_stands_outside_the_tape_stays_outside(walks):
    x = leaf(1.0, 2.0)
    for inside in (True, False, True, False):
        y = x * 3.0
        with paddle.set_grad_enabled(inside):
            z = y * y
        (z + y).sum().backward()
        expected = 3.0 + (18.0 * np.array([1.0, 2.0]) if inside else 0.0)
        np.testing.assert_allclose(x.grad.numpy(), np.broadcast_to(expected, 2), rtol=1e-6)
        x.clear_grad(set_to_zero=False)
    assert walks[0] == 2


def test_random_keys_are_those_of_the_step(walks):
    x = paddle.ones([64])
    x.stop_gradient = False
    masks = []
    for _ in range(4):
        y = F.dropout(x, 0.5)
        y.sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), y.numpy())
        masks.append(y.numpy().tobytes())
        x.clear_grad(set_to_zero=False)
    assert len(set(masks)) == 4
    assert walks[0] == 1


def test_a_gradient_that_is_there_is_added_to(walks):
    x = leaf(1.0, 2.0)
    for step in range(1, 4):
        (x * x).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), 2.0 * step * np.array([1.0, 2.0]))


def test_hooks_are_called_in_every_step():
    x = leaf(1.0, 2.0)
    seen = []
    handle = x.register_hook(lambda g: seen.append(1) or g * 10.0)
    for _ in range(3):
        (x * 2.0).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), [20.0, 20.0])
        x.clear_grad(set_to_zero=False)
    handle.remove()
    assert len(seen) == 3
    for _ in range(2):
        y = x * 2.0
        y.register_hook(lambda g: g * 5.0)
        y.sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), [10.0, 10.0])
        x.clear_grad(set_to_zero=False)


def test_a_replayed_tape_is_used_up():
    for _ in range(3):
        x = leaf(1.0, 2.0)
        loss = (x * x).sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


def test_two_losses_in_one_step(walks):
    x = leaf(1.0, 2.0)
    y = leaf(3.0, 4.0)
    for _ in range(3):
        first, second = (x * 2.0).sum(), (y * y).sum()
        first.backward()
        second.backward()
        np.testing.assert_allclose(x.grad.numpy(), [2.0, 2.0])
        np.testing.assert_allclose(y.grad.numpy(), [6.0, 8.0])
        x.clear_grad(set_to_zero=False)
        y.clear_grad(set_to_zero=False)
    assert walks[0] == 2


def test_several_results_of_one_op(walks):
    for _ in range(3):
        x = leaf(1.0, 2.0, 3.0, 4.0)
        a, b = paddle.split(x, 2)
        (a * 2.0 + b * a).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), [5.0, 6.0, 1.0, 2.0])
    assert walks[0] == 1


def test_a_write_in_place_is_still_found():
    for _ in range(2):
        x = leaf(1.0, 2.0)
        y = x * 1.0
        z = y * y
        y.add_(paddle.ones([2]))
        with pytest.raises(RuntimeError, match="in-place"):
            z.sum().backward()


@pytest.mark.filterwarnings("ignore:.*different programs")
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_tapes(data):
    """Random programs over three leaves: replayed, walked, and walked by autograd.backward."""
    plan = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from(["add", "mul", "tanh", "detach", "scale", "drop", "chunk"]),
                st.integers(0, 30),
                st.integers(0, 30),
            ),
            min_size=1,
            max_size=12,
        )
    )

    def run(backward):
        leaves = [leaf(0.5, -1.0), leaf(2.0, 0.25), leaf(-0.75, 1.5)]
        paddle.seed(3)
        pool = list(leaves)
        for kind, i, j in plan:
            a, b = pool[i % len(pool)], pool[j % len(pool)]
            made = {
                "add": lambda a=a, b=b: a + b,
                "mul": lambda a=a, b=b: a * b,
                "tanh": lambda a=a: paddle.tanh(a),
                "detach": lambda a=a: a.detach(),
                "scale": lambda a=a, j=j: a * (0.1 * j),
                "drop": lambda a=a: F.dropout(a, 0.5),
                "chunk": lambda a=a, b=b: paddle.concat([paddle.split(a, 2)[1], b[:1]]),
            }[kind]()
            pool.append(made)
        loss = pool[-1].sum() + leaves[0].sum()
        backward(loss)
        return [None if p.grad is None else p.grad.numpy() for p in leaves]

    with pytest.MonkeyPatch.context() as patch:  # tiers round differently
        patch.setattr(config, "compile_mode", "never")
        expected = run(lambda loss: paddle.autograd.backward([loss]))
        for _ in range(2):  # walked, then replayed
            for got, want in zip(run(lambda loss: loss.backward()), expected, strict=True):
                np.testing.assert_array_equal(got, want)
