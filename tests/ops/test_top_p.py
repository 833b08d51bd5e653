"""top_p_sampling: by what its GPU kernel does; Paddle has none for the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme.core.errors import InvalidArgument

P = np.array([[0.1, 0.4, 0.05, 0.25, 0.2]], "float32")  # best first: 1, 3, 4, 0, 2


def drawn(rows: int, p: float, **options) -> np.ndarray:
    """How often each choice came up in that many rows."""
    x = paddle.to_tensor(np.repeat(P, rows, 0))
    values, ids = x.top_p_sampling(paddle.full([rows], p), **options)
    assert values.shape == [rows, 1]
    assert ids.dtype is paddle.int64
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x.numpy(), ids.numpy(), 1))
    return np.bincount(ids.numpy().ravel(), minlength=5) / rows


def test_the_last_one_is_cut_or_not(tier):
    paddle.seed(5)
    cut = drawn(20000, 0.5)
    np.testing.assert_allclose(cut, [0, 0.8, 0, 0.2, 0], atol=0.015)
    whole = drawn(20000, 0.5, mode="non-truncated")
    np.testing.assert_allclose(whole, [0, 0.4 / 0.65, 0, 0.25 / 0.65, 0], atol=0.015)


def test_unlikely_ones_give_way(tier):
    paddle.seed(5)
    rows = 20000
    low = paddle.full([rows], 0.22)
    np.testing.assert_allclose(drawn(rows, 1.0, threshold=low), [0, 0.4, 0, 0.6, 0], atol=0.015)
    other = drawn(rows, 0.99, threshold=low, mode="non-truncated")
    np.testing.assert_allclose(other, [0, 0.4 / 0.65, 0, 0.25 / 0.65, 0], atol=0.015)
    assert drawn(10, 0.9, threshold=paddle.full([10], 2.0))[1] == 1  # the best whatever happens


@pytest.mark.parametrize("mode", ["truncated", "non-truncated"])
def test_seeds(mode, tier):
    x = paddle.to_tensor(np.repeat(P, 64, 0))
    p = paddle.full([64], 0.9)
    once, again = (x.top_p_sampling(p, seed=3, mode=mode)[1].numpy() for _ in range(2))
    np.testing.assert_array_equal(once, again)
    assert len(set(once.ravel())) > 1
    same = x.top_p_sampling(p, topp_seed=paddle.full([64], 7, "int64"), mode=mode)[1].numpy()
    assert len(set(same.ravel())) == 1
    seeds = paddle.arange(64)
    by_row = x.top_p_sampling(p, topp_seed=seeds, mode=mode)[1].numpy()
    turned = x.top_p_sampling(p, topp_seed=seeds.flip(0), mode=mode)[1].numpy()
    np.testing.assert_array_equal(by_row, turned[::-1])


def test_the_best_come_too():
    x = paddle.to_tensor(P)
    _, _, best, ids = x.top_p_sampling(paddle.to_tensor([0.5]), k=3, return_top=True)
    assert ids.tolist() == [[1, 3, 4]]
    np.testing.assert_array_equal(best.numpy(), P[:, [1, 3, 4]])
    with pytest.raises(InvalidArgument, match="mode"):
        x.top_p_sampling(paddle.to_tensor([0.5]), mode="cut")
