"""Mixtures of experts: Paddle's kernels need a GPU, so a plain loop is the reference."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import bireme as paddle
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.incubate.nn import functional as I
from bireme.nn import functional as F

RNG = np.random.default_rng(5)


def _dispatched(x, gate, bias, k, capacity, use_pad):
    """Token by token and choice by choice, as Paddle's kernel numbers them."""
    tokens, experts = gate.shape
    scores = gate if bias is None else gate + bias
    chosen = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    weights = np.take_along_axis(gate, chosen, 1).copy()
    pairs = [(t, i) for t in range(tokens) for i in range(k)]
    by_choice = (lambda p: (chosen[p], p[1], p[0])) if use_pad else (lambda p: (chosen[p], *p))
    y = np.zeros((experts * capacity if use_pad else tokens * k, x.shape[1]), x.dtype)
    index = np.zeros((k, tokens), np.int32)
    taken = dict.fromkeys(range(experts), 0)
    for row, (t, i) in enumerate(sorted(pairs, key=by_choice)):
        e = chosen[t, i]
        if taken[e] < capacity:
            at = e * capacity + taken[e] if use_pad else row
            y[at], index[i, t] = x[t], at
        else:
            weights[t, i] = 0
        taken[e] += 1
    return y, weights, index, np.cumsum(list(taken.values())), chosen


@pytest.mark.parametrize("use_pad", [True, False])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("capacity", [2, 50])
def test_dispatch(both_tiers, use_pad, biased, capacity):
    x = RNG.standard_normal((9, 4)).astype("float32")
    gate = RNG.random((9, 5)).astype("float32")
    bias = RNG.random(5).astype("float32") if biased else None
    made = both_tiers(
        lambda: I.moe_gate_dispatch(
            paddle.to_tensor(x), paddle.to_tensor(gate),
            None if bias is None else paddle.to_tensor(bias), 2, capacity, use_pad,
        )
    )  # fmt: skip
    for ours, wanted in zip(made, _dispatched(x, gate, bias, 2, capacity, use_pad), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-6)
    assert [a.dtype.name for a in made[2:]] == ["int32", "int64", "int32"]


def test_there_and_back_with_gradients():
    """Without dropping anything, dispatch and combine weigh each token with its weights' sum."""
    x = paddle.to_tensor(RNG.standard_normal((6, 4)).astype("float32"), stop_gradient=False)
    gate = paddle.to_tensor(RNG.random((6, 3)).astype("float32"), stop_gradient=False)
    rows, weights, index, _, chosen = I.moe_gate_dispatch(x, gate, None, 2, 6, True)
    out = I.moe_combine(rows, weights, index.transpose([1, 0]))
    best = np.take_along_axis(gate.numpy(), chosen.numpy(), 1)
    np.testing.assert_allclose(out.numpy(), x.numpy() * best.sum(1, keepdims=True), rtol=1e-5)
    out.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.tile(best.sum(1)[:, None], (1, 4)), rtol=1e-5)
    chosen_mask = np.zeros((6, 3), "float32")
    np.put_along_axis(chosen_mask, chosen.numpy().astype("int64"), 1, 1)
    wanted = chosen_mask * x.numpy().sum(1, keepdims=True)
    np.testing.assert_allclose(gate.grad.numpy(), wanted, rtol=1e-4, atol=1e-6)


def test_dispatch_by_rank():
    x = paddle.to_tensor(RNG.standard_normal((6, 4)).astype("float32"))
    gate = paddle.to_tensor(RNG.random((6, 4)).astype("float32"))
    plain = I.moe_gate_dispatch(x, gate, None, 2, 3, True)
    ranks = I.moe_gate_dispatch_permute(x, gate, None, 2, 3, 2)
    assert ranks[0].shape == [2, 2, 3, 4]
    whole = plain[0].numpy().reshape(2, 2, 3, 4)
    np.testing.assert_array_equal(ranks[0].numpy(), whole.swapaxes(0, 1))
    for a, b in zip(plain[1:], ranks[1:], strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    with pytest.raises(InvalidArgument, match="divide among the ranks"):
        I.moe_gate_dispatch_permute(x, gate, None, 2, 3, 3)


def test_expert_numbers():
    ids = paddle.to_tensor([[0, 3], [5, 1]], dtype="int32")
    plain = I.expand_modality_expert_id(ids, 2, 3, 1, False)
    np.testing.assert_array_equal(plain.numpy(), [[2, 7], [11, 3]])
    grouped = I.expand_modality_expert_id(ids, 0, 3, 1, True)
    np.testing.assert_array_equal(grouped.numpy(), [[0, 6], [5, 4]])
    assert grouped.dtype is paddle.int32
    counts = [2, 0, 3, 1]
    rank, local = I.build_src_rank_and_local_expert_id(paddle.to_tensor(counts), counts, 2)
    np.testing.assert_array_equal(rank.numpy(), [0, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(local.numpy(), [0, 0, 0, 0, 0, 1])


def test_aux_loss(paddle_oracle):
    """Paddle has the same loss as a composition, which runs on a CPU."""
    gate = RNG.random((6, 4)).astype("float32")
    sent = RNG.integers(0, 5, (6, 4))
    here = np.array([1, 1, 0, 1, 1, 0], "float32")
    there = np.array([True] * 9 + [False] * 3)
    for mask, tokens, everywhere in (
        (sent[0], None, None), (sent, here, None), (sent[1], here, there), (sent, None, there),
    ):  # fmt: skip
        results = []
        for p, function in ((paddle, I.cal_aux_loss), (paddle_oracle[0], paddle_oracle[1])):
            prob = p.to_tensor(gate, stop_gradient=False)
            given = [None if m is None else p.to_tensor(m) for m in (mask, tokens, everywhere)]
            made = function(prob, *given, 4, True, 2, 1e-6)
            made[0].backward()
            results.append([*(t.numpy() for t in made), prob.grad.numpy()])
        for ours, theirs in zip(*results, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.fixture
def paddle_oracle(request):
    real = request.getfixturevalue("paddle")
    # The package's name for the module is the function's.
    module = sys.modules["paddle.incubate.nn.functional.cal_aux_loss"]
    return real, module.math_cal_aux_loss


ROUTES = np.array([[-1, 0, 2], [1, -1, -1], [-1, -1, 1], [2, 1, 0]], "int32")
PROBS = np.where(ROUTES < 0, 0, RNG.random(ROUTES.shape)).astype("float32")
COUNTS = [2, 3, 2]


def test_permute(both_tiers):
    x = RNG.standard_normal((4, 5)).astype("float32")

    def run():
        return F.moe_permute(
            paddle.to_tensor(x), None, paddle.to_tensor(ROUTES), paddle.to_tensor(PROBS), 3, COUNTS,
            4, return_expert_indices=True,
        )  # fmt: skip

    rows, where, probs, scales, experts = both_tiers(run)
    assert rows.shape == (12, 5)
    assert scales.size == 0
    np.testing.assert_array_equal(where, [[0, -1, 8], [-1, 4, -1], [-1, 5, -1], [1, 6, 9]])
    np.testing.assert_array_equal(experts, [0, 0, -1, -1, 1, 1, 1, -1, 2, 2, -1, -1])
    for t, e in zip(*np.nonzero(where >= 0), strict=True):
        np.testing.assert_array_equal(rows[where[t, e]], x[t])
        assert probs[where[t, e]] == PROBS[t][list(ROUTES[t]).index(e)]
    np.testing.assert_array_equal(rows[experts < 0], 0)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_unpermute_undoes_permute(kind):
    x = paddle.to_tensor(RNG.standard_normal((4, 8)).astype("float32")).astype(kind)
    routes, probs = paddle.to_tensor(ROUTES), paddle.to_tensor(PROBS / PROBS.sum(1, keepdims=True))
    probs.stop_gradient = x.stop_gradient = False
    rows, where, by_row, _ = F.moe_permute(x, None, routes, probs, 3, COUNTS, 2)
    weighted = (rows.astype("float32") * by_row.unsqueeze(-1)).astype(kind)
    for out, again in (
        F.moe_unpermute(weighted, where, routes, by_row, 4, 3),
        F.moe_unpermute(rows, where, routes, by_row, 4, 3, using_weighted_combine=True),
    ):
        assert out.dtype == x.dtype
        tolerance = 1e-5 if kind == "float32" else 2e-2
        np.testing.assert_allclose(
            out.astype("float32").numpy(), x.astype("float32").numpy(), tolerance, tolerance
        )
        np.testing.assert_array_equal(again.numpy(), probs.numpy())
    out.astype("float32").sum().backward()
    np.testing.assert_allclose(x.grad.astype("float32").numpy(), 1.0, rtol=1e-2)
    sums = np.where(ROUTES < 0, 0, x.astype("float32").numpy().sum(1, keepdims=True))
    np.testing.assert_allclose(probs.grad.numpy(), sums, rtol=2e-2, atol=1e-2)


def test_permute_with_scales_and_without_rows():
    x = paddle.ones([4, 128]).astype("float8_e4m3fn")
    scale = paddle.arange(4, dtype="float32").reshape([4, 1])
    routes, probs = paddle.to_tensor(ROUTES), paddle.to_tensor(PROBS)
    rows, where, _, scales = F.moe_permute(
        x, scale, routes, probs, 3, COUNTS, 1, override_buffer_size=20
    )
    assert (rows.shape, scales.shape) == ([20, 128], [20, 1])
    np.testing.assert_array_equal(scales.numpy()[where.numpy()[3, 0]], [3.0])
    bare = F.moe_permute(x, scale, routes, probs, 3, COUNTS, 1, do_gather=False)
    assert bare[0].shape == [0, 128]
    np.testing.assert_array_equal(bare[1].numpy(), where.numpy())


def test_bad_input():
    x, gate = paddle.ones([4, 8]), paddle.ones([4, 3])
    routes, probs = paddle.to_tensor(ROUTES), paddle.to_tensor(PROBS)
    with pytest.raises(ShapeMismatch, match="gate_logits"):
        I.moe_gate_dispatch(x, gate[:3], None, 2, 3, True)
    with pytest.raises(InvalidArgument, match="k is between"):
        I.moe_gate_dispatch(x, gate, None, 4, 3, True)
    with pytest.raises(ShapeMismatch, match="combine_weights"):
        I.moe_combine(x, gate, routes[:, :1])
    with pytest.raises(InvalidArgument, match="tokens_per_expert"):
        F.moe_permute(x, None, routes, probs, 4, COUNTS, 1)
    with pytest.raises(InvalidArgument, match="override_buffer_size"):
        F.moe_permute(x, None, routes, probs, 3, COUNTS, 4, override_buffer_size=3)
    with pytest.raises(ShapeMismatch, match="zipped_expertwise_rowmap"):
        F.moe_unpermute(x, routes, routes, probs.reshape([-1]), 4, 5)
