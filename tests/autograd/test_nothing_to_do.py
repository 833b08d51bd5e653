"""backward() of tensors that need no gradient: nothing happens, as in Paddle, and it is said."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle

SAID = r"\[backward\] nothing is done: .*stop_gradient is True"


def _constant() -> paddle.Tensor:
    return paddle.ones([2]).sum()


@pytest.mark.parametrize(
    "call",
    [
        lambda: _constant().backward(),
        lambda: paddle.autograd.backward([_constant()]),
        lambda: paddle.ones([2]).backward(paddle.ones([2])),
    ],
)
def test_a_constant(call):
    with pytest.warns(UserWarning, match=SAID) as caught:
        call()
    assert [w.filename for w in caught] == [__file__]


def test_what_was_made_under_no_grad():
    x = paddle.ones([2])
    x.stop_gradient = False
    with paddle.no_grad():
        y = x * 2
    with pytest.warns(UserWarning, match=SAID):
        y.backward()
    assert x.grad is None


def test_beside_one_that_needs_a_gradient():
    x = paddle.ones([2])
    x.stop_gradient = False
    with pytest.warns(UserWarning, match=SAID):
        paddle.autograd.backward([_constant(), (x * 3).sum()])
    np.testing.assert_array_equal(x.grad.numpy(), [3.0, 3.0])


def test_a_gradient_that_is_asked_for_is_missed():
    with pytest.raises(RuntimeError, match="stop_gradient"):
        paddle.grad(_constant(), paddle.ones([2]))
