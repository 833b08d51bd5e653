"""What `grad`, `backward` and PyLayers take, and what they refuse as Paddle does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme.autograd import PyLayer
from bireme.core.errors import AutogradError, BiremeError


def leaf(*shape: int) -> paddle.Tensor:
    return paddle.ones(shape).detach().requires_grad_()


@pytest.mark.parametrize(
    "ask",
    [
        lambda x, y: paddle.grad([], [x]),
        lambda x, y: paddle.grad([y], []),
        lambda x, y: paddle.grad([y], [x], grad_outputs=[1]),
        lambda x, y: paddle.grad([y], [x, x]),
        lambda x, y: paddle.grad([y, y], [x]),
        lambda x, y: paddle.grad([y], [x], create_graph=3),
        lambda x, y: paddle.grad([y], [x], retain_graph=3),
        lambda x, y: paddle.grad([y], [x], allow_unused=3),
        lambda x, y: paddle.grad([y], [paddle.ones([2])]),
        lambda x, y: paddle.autograd.backward([y], [3]),
        lambda x, y: y.backward(3),
    ],
)
@pytest.mark.parametrize("kind", [BiremeError, AssertionError, ValueError, RuntimeError])
def test_a_wrong_question_is_refused(ask: Callable[[Any, Any], Any], kind: type[Exception]) -> None:
    x = leaf(2)
    with pytest.raises(kind):
        ask(x, x * 2)


def test_what_needs_no_gradient_is_none_where_that_is_allowed() -> None:
    x = leaf(2)
    first, second = paddle.grad(x * 3, [paddle.ones([2]), x], allow_unused=True)
    assert first is None
    np.testing.assert_array_equal(second.numpy(), [3, 3])


def test_a_number_starts_a_gradient_whether_its_shape_is_empty_or_one() -> None:
    x = leaf(3)
    (one,) = paddle.grad(x.sum(), x, paddle.ones([1]))
    (none,) = paddle.grad(x.sum().reshape([1]), x, paddle.full([], 2.0))
    np.testing.assert_array_equal(one.numpy(), [1, 1, 1])
    np.testing.assert_array_equal(none.numpy(), [2, 2, 2])


def test_grad_frees_only_what_it_went_through() -> None:
    x = leaf(2)
    y = x * x
    paddle.grad([y, x], [y])  # the product itself is not differentiated
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2, 2])
    with pytest.raises(AutogradError, match="second time"):
        y.sum().backward()


class Same(PyLayer):
    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor) -> paddle.Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, grad: paddle.Tensor) -> paddle.Tensor:
        return grad


class Whole(Same):
    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor) -> paddle.Tensor:
        return x.astype("int32")


def test_a_leaf_is_not_a_result_of_a_layer_of_ones_own() -> None:
    with pytest.raises(ValueError, match=r"x\.clone\(\)"):
        Same.apply(leaf(2))
    np.testing.assert_array_equal(Same.apply(leaf(2) * 3).numpy(), [3, 3])

    class Marked(Same):
        @staticmethod
        def forward(ctx: Any, x: paddle.Tensor) -> paddle.Tensor:
            ctx.mark_not_inplace(x)
            return x

    x = leaf(2)
    Marked.apply(x).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [1, 1])


def test_gradients_pass_through_integers_of_a_layer_of_ones_own() -> None:
    x = leaf(2)
    made = Whole.apply(x)
    assert not made.stop_gradient
    made.astype("float32").sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [1, 1])
