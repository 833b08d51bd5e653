"""One rank's part of a dispatch; Paddle has it for GPUs, so its own tests' cases are used."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme.core.errors import ShapeMismatch
from bireme.incubate.nn.functional import (
    moe_gate_dispatch,
    moe_gate_dispatch_partial_nosoftmaxtopk,
)

CHOICES = paddle.to_tensor([[0, 1], [0, 1], [0, 2]], dtype="int32")


def small(start: int, end: int, reverse: bool, pad: bool = False):
    x = (paddle.arange(3) + 1).unsqueeze(-1).expand([3, 3]).astype("float32")
    weights = paddle.to_tensor([[0.6, 0.4], [0.7, 0.3], [0.8, 0.2]])
    return moe_gate_dispatch_partial_nosoftmaxtopk(
        x, weights, CHOICES, 2, 2, 4, pad, start, end, reverse
    )


def test_which_tokens_an_expert_takes():
    rows, weights, places, tokens, wanted, here = small(0, 2, True)
    assert rows[:, 0].tolist() == [2, 3, 1, 2]
    assert tokens.tolist() == [1, 2, 0, 1]
    assert here.tolist() == [2, 2, 0, 0]
    assert wanted.tolist() == [3, 2, 1, 0]
    np.testing.assert_allclose(weights.numpy(), [[0, 0.4], [0.7, 0.3], [0.8, 0]])
    assert places.tolist() == [[0, 0, 1], [2, 3, 0]]
    rows, *_ = small(0, 2, False)
    assert rows[:, 0].tolist() == [1, 2, 1, 2]
    rows, *_, here = small(3, 4, True)
    assert rows.shape == [0, 3]
    assert here.tolist() == [0, 0, 0, 0]
    rows, _, _, tokens, *_ = small(1, 4, False, pad=True)
    assert rows[:, 0].tolist() == [1, 2, 3, 0, 0, 0]
    assert tokens.tolist() == [0, 1, 2, 3, 3, 3]


def test_all_parts_together_are_the_whole():
    rng = np.random.RandomState(0)
    x, scores = rng.randn(6, 4).astype("float32"), rng.rand(6, 8).astype("float32")
    given = paddle.to_tensor(x, stop_gradient=False)
    logits = paddle.to_tensor(scores, stop_gradient=False)
    weights, chosen = logits.topk(3, axis=1)
    parts, summed = [], 0
    for start in range(0, 8, 2):
        rows, own, *_ = moe_gate_dispatch_partial_nosoftmaxtopk(
            given, weights, chosen.astype("int32"), 3, 2, 8, True, start, start + 2, False
        )
        parts.append(rows)
        summed = summed + own
    whole = paddle.to_tensor(x, stop_gradient=False)
    logits_too = paddle.to_tensor(scores, stop_gradient=False)
    rows, own, *_ = moe_gate_dispatch(whole, logits_too, None, 3, 2, True)
    # Within an expert the parts are in the order of tokens, the whole in that of choices.
    ours = paddle.concat(parts).numpy().reshape(8, 2, 4)
    theirs = rows.numpy().reshape(8, 2, 4)
    np.testing.assert_array_equal(np.sort(ours, axis=1), np.sort(theirs, axis=1))
    np.testing.assert_array_equal(summed.numpy(), own.numpy())
    (paddle.concat(parts).sum() + (summed**2).sum()).backward()
    (rows.sum() + (own**2).sum()).backward()
    np.testing.assert_allclose(given.grad.numpy(), whole.grad.numpy())
    np.testing.assert_allclose(logits.grad.numpy(), logits_too.grad.numpy())


def test_shapes():
    with pytest.raises(ShapeMismatch, match=r"\[3, 3\]"):
        moe_gate_dispatch_partial_nosoftmaxtopk(
            paddle.ones([3, 2]), paddle.ones([3, 2]), CHOICES, 3, 2, 4, False, 0, 2, False
        )
