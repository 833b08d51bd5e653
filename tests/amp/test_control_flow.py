"""Branches and loops whose results autocast makes in another dtype."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme.core.errors import CaptureError


@paddle.jit.to_static(full_graph=True)
def branches(x: paddle.Tensor, flag: paddle.Tensor) -> paddle.Tensor:
    y = paddle.zeros([2, 2])
    if flag > 0:
        y = paddle.matmul(x, x)
    return y * 2


@paddle.jit.to_static(full_graph=True)
def loops(x: paddle.Tensor, n: paddle.Tensor) -> paddle.Tensor:
    y = x
    while n > 0:
        y = paddle.matmul(y, x)
        n = n - 1
    return y


X = np.array([[1.0, 2.0], [3.0, 4.0]], "float32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_a_choice_is_as_wide_as_its_wider_side(level: str, dtype: str) -> None:
    with paddle.amp.auto_cast(level=level, dtype=dtype):
        for flag, want in ((1, X @ X * 2), (0, X * 0)):
            out = branches(paddle.to_tensor(X), paddle.to_tensor(flag))
            assert out.dtype == paddle.float32
            np.testing.assert_array_equal(out.numpy(), want)


def test_what_a_loop_carries_keeps_its_dtype() -> None:
    with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
        out = loops(paddle.to_tensor(X), paddle.to_tensor(2))
    assert out.dtype == paddle.float32
    np.testing.assert_allclose(out.numpy(), X @ X @ X, rtol=2e-2)


def test_gradients_go_through_the_cast() -> None:
    x = paddle.to_tensor(X, stop_gradient=False)
    with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
        branches(x, paddle.to_tensor(1)).sum().backward()
    want = 2 * (np.ones((2, 2)) @ X.T + X.T @ np.ones((2, 2)))
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=2e-2)


def test_without_autocast_dtypes_must_agree() -> None:
    @paddle.jit.to_static(full_graph=True)
    def mixed(x: paddle.Tensor, flag: paddle.Tensor) -> paddle.Tensor:
        y = x
        if flag > 0:
            y = x.astype("float16")
        return y

    with pytest.raises(CaptureError, match="same kind of value"):
        mixed(paddle.to_tensor(X), paddle.to_tensor(1))
