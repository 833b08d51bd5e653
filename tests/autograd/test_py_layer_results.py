"""What a PyLayer's forward may return."""

from __future__ import annotations

from typing import Any

import pytest

import bireme as paddle


def _apply(result: Any, stop_gradient: bool) -> Any:
    class Layer(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return result

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0]

    x = paddle.ones([2])
    x.stop_gradient = stop_gradient
    return Layer.apply(x)


@pytest.mark.parametrize("stop_gradient", [True, False])
@pytest.mark.parametrize("result", [None, 1, [], [None], (1, 2)], ids=str)
def test_without_a_tensor_it_is_refused(result: Any, stop_gradient: bool) -> None:
    with pytest.raises(ValueError, match="at least one"):
        _apply(result, stop_gradient)


@pytest.mark.parametrize("stop_gradient", [True, False])
def test_other_things_may_be_beside_a_tensor(stop_gradient: bool) -> None:
    nothing, number, tensor = _apply((None, 3, paddle.ones([1])), stop_gradient)
    assert (nothing, number) == (None, 3)
    assert tensor.stop_gradient is stop_gradient
