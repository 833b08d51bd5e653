"""Attention over sequences laid end to end, by the name of the third generation's kernel."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme.core.errors import InvalidArgument
from bireme.nn import functional as F

RNG = np.random.default_rng(3)
STARTS_Q, STARTS_K = [0, 2, 6], [0, 5, 9]


def _plain(q, k, v, causal, window):
    """Sequence by sequence; a query's place is counted from the end of its keys."""
    out, sums = np.zeros((len(q), q.shape[1], v.shape[2]), "float32"), np.zeros(q.shape[1::-1])
    for s in range(len(STARTS_Q) - 1):
        rows, keys = range(*STARTS_Q[s : s + 2]), range(*STARTS_K[s : s + 2])
        for i in rows:
            here = keys[-1] - (rows[-1] - i)
            seen = [
                j for j in keys
                if not (causal and j > here)
                and not (window[0] >= 0 and j < here - window[0])
                and not (window[1] >= 0 and j > here + window[1])
            ]  # fmt: skip
            for h in range(q.shape[1]):
                g = h * k.shape[1] // q.shape[1]
                scores = k[seen, g] @ q[i, h] / np.sqrt(q.shape[2])
                sums[h, i] = np.log(np.exp(scores).sum())
                out[i, h] = np.exp(scores - sums[h, i]) @ v[seen, g]
    return out, sums


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [(-1, -1), (1, -1), (2, 1), (-1, 0)])
def test_against_loops(both_tiers, causal, window):
    q = RNG.standard_normal((6, 4, 8)).astype("float32")
    k, v = (RNG.standard_normal((9, 2, 8)).astype("float32") for _ in range(2))
    starts = [paddle.to_tensor(s, dtype="int32") for s in (STARTS_Q, STARTS_K)]

    def run():
        tensors = [paddle.to_tensor(a) for a in (q, k, v)]
        return F.flash_attention_v3_varlen(
            *tensors, *starts, 4, 5, causal=causal, window_size=window
        )

    for ours, wanted in zip(both_tiers(run), _plain(q, k, v, causal, window), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5)


def test_gradient_is_that_of_the_unpadded_form():
    grads = []
    arrays = [RNG.standard_normal((9, 2, 8)).astype("float32") for _ in range(3)]
    starts = paddle.to_tensor(STARTS_K, dtype="int32")
    for new in (True, False):
        q, k, v = (paddle.to_tensor(a, stop_gradient=False) for a in arrays)
        if new:
            out = F.flash_attention_v3_varlen(q, k, v, starts, starts, 5, 5, causal=True)[0]
        else:
            out = F.flash_attention.flash_attn_unpadded(
                q, k, v, starts, starts, 5, 5, 8**-0.5, causal=True
            )[0]
        (out * out).sum().backward()
        grads.append([t.grad.numpy() for t in (q, k, v)])
    for a, b in zip(*grads, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_what_it_refuses():
    x, starts = paddle.ones([4, 2, 8]), paddle.to_tensor([0, 4], dtype="int32")
    with pytest.raises(InvalidArgument, match="softcap"):
        F.flash_attention_v3_varlen(x, x, x, starts, starts, 4, 4, softcap=3.0)
