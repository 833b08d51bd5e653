"""Tensor methods below the public API, compared with what Paddle documents or its users rely on."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import bireme as paddle
from bireme.core.errors import InvalidArgument


def test_memory_is_shared_and_let_go() -> None:
    x, other = paddle.ones([4, 2]), paddle.zeros([1], "int32")
    x._share_buffer_to(other)
    assert x._is_shared_buffer_with(other)
    part = x._slice(1, 3)
    x[1] = 5.0
    np.testing.assert_array_equal(other.numpy()[1], [5, 5])
    np.testing.assert_array_equal(part.numpy()[0], [5, 5])
    assert x._numel() == 8
    assert x._md5sum() == hashlib.md5(x.numpy().tobytes()).hexdigest()
    x._clear_data()
    assert x.shape == [0]


def test_contents_are_replaced() -> None:
    x = paddle.ones([2])
    x.get_tensor().set(np.zeros((3, 3), "int64"), paddle.CPUPlace())
    assert (x.shape, x.dtype) == ([3, 3], paddle.int64)
    copy = x._copy_to(paddle.CPUPlace(), True)
    x += 1
    assert int(copy.sum()) == 0


def test_gradients_by_their_older_names() -> None:
    x = paddle.to_tensor([5.0], stop_gradient=False)
    seen = []
    handle = x._register_backward_hook(lambda: seen.append(float(x.grad)))
    (x**2).backward()
    (x**2).backward()
    assert seen == [10, 20]  # after each was added
    assert handle.remove()
    (x**2).backward()
    assert len(seen) == 2
    assert float(x._grad_ivar()) == float(x._grad_value()) == 30
    x._zero_grads()
    assert float(x.grad) == 0
    x._copy_gradient_from(paddle.ones([1]))
    assert float(x.grad) == 1
    with pytest.raises(InvalidArgument, match="takes a leaf"):
        (x * 2)._register_backward_hook(lambda: None)


def test_a_changed_version_is_noticed() -> None:
    x = paddle.to_tensor([2.0], stop_gradient=False)
    y = x * 1
    z = y**2
    y._bump_inplace_version()
    assert y._inplace_version() == y.inplace_version == 1
    with pytest.raises(RuntimeError, match="tensor_version:1 != wrapper_version_snapshot:0"):
        z.backward()
