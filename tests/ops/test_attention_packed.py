"""Packed and masked attention against plain softmax in NumPy (Paddle has GPU kernels only)."""

from __future__ import annotations

import numpy as np
import pytest

import bireme
from bireme.core.errors import BiremeError

F = bireme.nn.functional
RNG = np.random.default_rng(0)


def reference(q, k, v, seen, scale=None):
    """[batch, length, heads, width]; `seen` broadcasts to [batch, heads, rows, columns]."""
    k, v = (np.repeat(x, q.shape[2] // x.shape[2], axis=2) for x in (k, v))
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) * (scale or q.shape[-1] ** -0.5)
    seen = np.broadcast_to(seen, scores.shape)
    weights = np.where(seen, np.exp(scores), 0.0)
    total = weights.sum(-1, keepdims=True)
    out = np.einsum("bhqk,bkhd->bqhd", weights / np.where(total > 0, total, 1), v)
    return out, np.log(np.where(total > 0, total, 1))[..., 0]


def some(*shape):
    return RNG.normal(size=shape).astype("float32")


def near(found, expected):
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_packed(paddle, causal):
    qkv = some(2, 6, 4, 2, 8)  # two queries for each key head
    out, weights = F.flash_attn_qkvpacked(bireme.to_tensor(qkv), causal=causal, return_softmax=True)
    query = qkv[:, :, :2].reshape(2, 6, 4, 8)
    seen = np.tril(np.ones((6, 6), bool)) if causal else np.ones((6, 6), bool)
    near(out, reference(query, qkv[:, :, 2], qkv[:, :, 3], seen)[0])
    assert weights.shape == [2, 4, 6, 6]
    one = some(2, 6, 3, 2, 8)
    expected, _ = paddle.nn.functional.flash_attn_qkvpacked(paddle.to_tensor(one), causal=causal)
    near(F.flash_attn_qkvpacked(bireme.to_tensor(one), causal=causal)[0], expected.numpy())


@pytest.mark.parametrize("causal", [False, True])
def test_packed_sequences(causal):
    qkv = some(7, 3, 2, 8)
    starts = bireme.to_tensor(np.array([0, 3, 7], "int32"))
    out, _ = F.flash_attn_varlen_qkvpacked(
        bireme.to_tensor(qkv), starts, starts, 4, 4, 0.5, causal=causal, varlen_padded=False
    )
    expected = []
    for low, high in ((0, 3), (3, 7)):
        q, k, v = (qkv[None, low:high, i] for i in range(3))
        ones = np.ones((high - low, high - low), bool)
        expected.append(reference(q, k, v, np.tril(ones) if causal else ones, 0.5)[0][0])
    near(out, np.concatenate(expected))
    # The same with room after each sequence.
    room = np.zeros((8, 3, 2, 8), "float32")
    room[:3], room[4:] = qkv[:3], qkv[3:]
    padded, _ = F.flash_attn_varlen_qkvpacked(
        bireme.to_tensor(room), starts, starts, 4, 4, 0.5, causal=causal
    )
    near(padded[:3], expected[0])
    near(padded[4:], expected[1])


MASKS = {
    "causal-1": (True, lambda n: np.stack([np.minimum(np.arange(n) + 3, n)], -1)),
    "causal-2": (True, lambda n: np.stack([np.arange(n) + 1, np.arange(n) + 3], -1)),
    "full-2": (False, lambda n: np.stack([np.arange(n) + 2, np.arange(n) - 1], -1)),
    "full-4": (
        False,
        lambda n: np.stack(
            [np.full(n, n - 1), np.full(n, n), np.full(n, 0), np.arange(n) // 2], -1
        ),
    ),
}


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("name", MASKS)
def test_rows_hidden_from_keys(name, heads):
    causal, bounds = MASKS[name]
    n = 6
    q, k, v = some(2, n, 4, 8), some(2, n, 2, 8), some(2, n, 2, 8)
    given = np.broadcast_to(bounds(n), (2, heads, n, bounds(n).shape[-1])).astype("int32")
    seen = np.ones((n, n), bool)
    for j in range(n):
        for i in range(n):
            b = bounds(n)[j]
            if causal:
                hidden = i >= b[0] and (len(b) == 1 or i < b[1])
                seen[i, j] = j <= i and not hidden
            elif len(b) == 2:
                seen[i, j] = not (i >= b[0] or i < b[1])
            else:
                seen[i, j] = not (b[0] <= i < b[1] or b[2] <= i < b[3])
    out, sums = F.flashmask_attention(
        *map(bireme.to_tensor, (q, k, v)), bireme.to_tensor(given.copy()), causal=causal,
        return_softmax_lse=True,
    )  # fmt: skip
    expected, logs = reference(q, k, v, seen)
    near(out, expected)
    visible = seen.any(-1)
    np.testing.assert_allclose(sums.numpy()[..., visible], logs[..., visible], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("causal", "window"), [(True, 2), (False, (1, 2)), (False, 1)])
def test_windows(causal, window):
    n = 7
    q, k, v = some(1, n, 2, 4), some(1, n, 2, 4), some(1, n, 2, 4)
    before, after = (window, window) if isinstance(window, int) else window
    distance = np.arange(n)[:, None] - np.arange(n)
    seen = (distance <= before) & (distance >= (0 if causal else -after))
    out = F.flashmask_attention(
        *map(bireme.to_tensor, (q, k, v)), causal=causal, window_size=window
    )
    near(out, reference(q, k, v, seen)[0])


def test_gradients_stop_at_the_mask():
    q, k, v = (bireme.to_tensor(some(1, 5, 1, 4), stop_gradient=False) for _ in range(3))
    bounds = bireme.to_tensor(np.full((1, 1, 5, 1), 3, "int32"))  # the last rows see nothing
    F.flashmask_attention(q, k, v, bounds, causal=True).sum().backward()
    assert np.isfinite(q.grad.numpy()).all()
    assert not q.grad.numpy()[:, 3:].any()
    assert k.grad.numpy()[:, :3].any()


def test_compressed_rows():
    q, k, v = some(1, 2, 4, 8), some(1, 2, 4, 8), some(1, 2, 4, 8)
    offset = np.array([[[0, 2, 4, 6, 8], [0, 1, 2, 4, 4]]], "int32")
    columns = np.array([[[0, 1, 0, 1, 2, 3, 2, 3], [0, 3, 1, 2, 0, 0, 0, 0]]], "int32")
    padding = np.array([[1, 1, 0, 1]], "float32")
    seen = np.zeros((1, 2, 4, 4), bool)
    for h in range(2):
        for row in range(4):
            seen[0, h, row, columns[0, h, offset[0, h, row] : offset[0, h, row + 1]]] = True
    turned = [x.transpose(0, 2, 1, 3) for x in (q, k, v)]
    tensors = [bireme.to_tensor(x) for x in (q, k, v, offset, columns)]
    near(F.sparse_attention(*tensors), reference(*turned, seen)[0].transpose(0, 2, 1, 3))
    seen = seen & (padding[:, None, None] != 0) & np.tril(np.ones((4, 4), bool))
    found = F.sparse_attention(
        *tensors, bireme.to_tensor(padding), bireme.to_tensor(np.tril(np.ones((4, 4), "float32")))
    )
    near(found, reference(*turned, seen)[0].transpose(0, 2, 1, 3))


def test_bad_arguments():
    x = bireme.ones([1, 4, 2, 8])
    for match, wrong in (
        ("groups|query heads", lambda: F.flash_attn_qkvpacked(x)),
        ("generator", lambda: F.flashmask_attention(x, x, x, rng_name="local")),
        ("not both", lambda: F.flashmask_attention(x, x, x, x, window_size=2)),
        ("GPU kernels", lambda: F.flashmask_attention(x, x, x, block_mask=x)),
        ("startend_row_indices", lambda: F.flashmask_attention(x, x, x, bireme.ones([1, 1, 4, 3]))),
    ):
        with pytest.raises(BiremeError, match=match):
            wrong()


# --- sampling -------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [2, 5, 10])
def test_class_center_sample(paddle, samples):
    label = np.array([3, 7, 3, 1], "int64")
    expected = [
        t.numpy()
        for t in paddle.nn.functional.class_center_sample(paddle.to_tensor(label), 10, samples)
    ]
    bireme.seed(1)
    remapped, sampled = F.class_center_sample(bireme.to_tensor(label), 10, samples)
    np.testing.assert_array_equal(remapped.numpy(), expected[0])
    assert sampled.shape == list(expected[1].shape)
    np.testing.assert_array_equal(sampled.numpy()[:3], [1, 3, 7])
    assert len(set(sampled.numpy().tolist())) == len(sampled)
    np.testing.assert_array_equal(sampled.numpy()[remapped.numpy()], label)
    bireme.seed(1)
    again = F.class_center_sample(bireme.to_tensor(label), 10, samples)[1]
    np.testing.assert_array_equal(again.numpy(), sampled.numpy())
    with pytest.raises(BiremeError, match="num_samples"):
        F.class_center_sample(bireme.to_tensor(label), 10, 11)
    with pytest.raises(BiremeError, match="labels must lie"):
        F.class_center_sample(bireme.to_tensor(label), 5, 5)
