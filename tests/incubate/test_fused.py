"""Fused functions against the layers they fuse; Paddle's own are for GPUs.

Where the CPU wheel has a kernel the parity rows compare with it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import bireme as paddle
import bireme.incubate.nn.functional as F
from bireme import nn

RNG = np.random.default_rng(0)


def t(*shape: int, dtype: str = "float32") -> Any:
    return paddle.to_tensor(RNG.normal(size=shape).astype(dtype))


def close(a: Any, b: Any, tolerance: float = 1e-5) -> None:
    b = b.numpy() if hasattr(b, "numpy") else b
    np.testing.assert_allclose(a.numpy(), b, rtol=tolerance, atol=tolerance)


def test_linear_with_bias_and_activation() -> None:
    x, w, b = t(2, 3, 8), t(8, 4), t(4)
    close(F.fused_linear(x, w, b), x @ w + b)
    close(F.fused_linear(x, w.T, b, True), x @ w + b)
    close(F.fused_matmul_bias(x, w), x @ w)
    close(F.fused_linear_activation(x, w, b, activation="gelu"), nn.functional.gelu(x @ w + b))
    close(F.fused_linear_activation(x, w, b, activation="relu"), nn.functional.relu(x @ w + b))
    with pytest.raises(ValueError, match="activation"):
        F.fused_linear_activation(x, w, b, activation="tanh")


@pytest.mark.parametrize("method", ["gelu", "relu", "silu", "swiglu"])
def test_bias_and_activation(method: str) -> None:
    x, b = t(2, 3, 8), t(8)
    close(F.fused_bias_act(x, b, act_method=method), getattr(nn.functional, method)(x + b))


def test_quantised_activation() -> None:
    sums = paddle.to_tensor(RNG.integers(-100, 100, (3, 4)).astype("int32"))
    scales, shift, smooth = t(4), t(4), t(4)
    out = F.fused_bias_act(
        sums, None, scales, shift, smooth, "relu", "fp32", 0.02, 1, 127.0, -127.0
    )
    wide = (np.maximum(sums.numpy() * scales.numpy(), 0) + shift.numpy()) * smooth.numpy()
    wide = wide * 127 * 0.02
    expected = np.clip(np.sign(wide) * np.floor(np.abs(wide) + 0.5), -127, 127)
    assert out.dtype is paddle.int8
    np.testing.assert_array_equal(out.numpy(), expected)


def test_dropout_add_and_norm_without_dropout() -> None:
    x, y, w, b = t(2, 3, 8), t(2, 3, 8), t(8), t(8)
    close(F.fused_dropout_add(x, y, 0.0), x + y)
    close(F.fused_dropout_add(x, y, 0.5, training=False), x + y)
    expected = nn.functional.layer_norm(y + x + b, [8], w, b)
    close(F.fused_bias_dropout_residual_layer_norm(x, y, b, w, b, 0.0), expected)
    kept = F.fused_dropout_add(paddle.ones([4000]), paddle.zeros([4000]), 0.25)
    assert abs(kept.mean().item() - 1) < 0.05


@pytest.mark.parametrize("before", [False, True])
def test_encoder_layer_equals_the_plain_one(before: bool, tier: str) -> None:
    fused = paddle.incubate.nn.FusedTransformerEncoderLayer(8, 2, 16, 0.0, normalize_before=before)
    plain = nn.TransformerEncoderLayer(8, 2, 16, 0.0, normalize_before=before)
    attention, ffn = fused.fused_attn, fused.ffn
    for parameter in fused.parameters():
        parameter.set_value(t(*parameter.shape) * 0.5)
    for i, part in enumerate(("q_proj", "k_proj", "v_proj")):
        own = getattr(plain.self_attn, part)
        own.weight.set_value(attention.qkv_weight[i].reshape([8, 8]).T)
        own.bias.set_value(attention.qkv_bias[i].reshape([8]))
    pairs = [
        (plain.self_attn.out_proj.weight, attention.linear_weight),
        (plain.self_attn.out_proj.bias, attention.linear_bias),
        (plain.linear1.weight, ffn._linear1_weight), (plain.linear1.bias, ffn._linear1_bias),
        (plain.linear2.weight, ffn._linear2_weight), (plain.linear2.bias, ffn._linear2_bias),
        (plain.norm1.weight, attention.pre_ln_scale if before else attention.ln_scale),
        (plain.norm1.bias, attention.pre_ln_bias if before else attention.ln_bias),
        (plain.norm2.weight, ffn._ln1_scale if before else ffn._ln2_scale),
        (plain.norm2.bias, ffn._ln1_bias if before else ffn._ln2_bias),
    ]  # fmt: skip
    for mine, theirs in pairs:
        mine.set_value(theirs)
    x = t(2, 5, 8)
    mask = paddle.tril(paddle.ones([5, 5])).astype("bool").reshape([1, 1, 5, 5])
    for given in (None, mask):
        close(fused(x, given), plain(x, given), 1e-4)
    a, b = (x.clone() for _ in range(2))
    a.stop_gradient = b.stop_gradient = False
    (fused(a, mask) ** 2).sum().backward()
    (plain(b, mask) ** 2).sum().backward()
    close(a.grad, b.grad, 1e-3)


def test_packed_weights_and_a_cache() -> None:
    x, w, out = t(2, 4, 8), t(3, 2, 4, 8), t(8, 8)
    options = {"dropout_rate": 0.0, "attn_dropout_rate": 0.0}
    whole = F.fused_multi_head_attention(x, w, out, **options)
    packed = w.reshape([24, 8]).T
    close(
        F.fused_multi_head_attention(x, packed, out, num_heads=2, transpose_qkv_wb=True, **options),
        whole,
    )
    causal = (paddle.tril(paddle.ones([4, 4])) - 1).reshape([1, 1, 4, 4]) * 1e9
    expected = F.fused_multi_head_attention(x, w, out, attn_mask=causal, **options)
    cache = paddle.zeros([2, 2, 2, 0, 4])
    for i in range(4):
        step, cache = F.fused_multi_head_attention(
            x[:, i : i + 1], w, out, cache_kv=cache, **options
        )
        close(step[:, 0], expected[:, i], 1e-4)
    assert cache.shape == [2, 2, 2, 4, 4]


def _rope(x: np.ndarray, adjacent: bool) -> np.ndarray:
    """Each pair as a complex number, turned."""
    length, size = x.shape[1], x.shape[-1]
    angle = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, size, 2) / size)
    spin = np.exp(1j * angle)[None, :, None]
    if adjacent:
        z = (x[..., ::2] + 1j * x[..., 1::2]) * spin
        return np.stack([z.real, z.imag], -1).reshape(x.shape)
    z = (x[..., : size // 2] + 1j * x[..., size // 2 :]) * spin
    return np.concatenate([z.real, z.imag], -1)


def test_rotary_embedding() -> None:
    q, k = t(2, 5, 3, 8), t(2, 5, 1, 8)
    out_q, out_k, out_v = F.fused_rotary_position_embedding(q, k)
    assert out_v is None
    close(out_q, _rope(q.numpy(), True))
    close(out_k, _rope(k.numpy(), True))
    angle = np.arange(5)[:, None] * 10000.0 ** (-np.arange(0, 8, 2) / 8)
    wide = np.concatenate([angle, angle], -1).astype("float32")
    sin, cos = paddle.to_tensor(np.sin(wide)), paddle.to_tensor(np.cos(wide))
    half, _, _ = F.fused_rotary_position_embedding(q, None, None, sin, cos, None, False)
    close(half, _rope(q.numpy(), False))
    places = paddle.to_tensor([[4, 3, 2, 1, 0], [0, 1, 2, 3, 4]])
    shape = [1, 5, 1, 8]
    picked, _, _ = F.fused_rotary_position_embedding(
        q, None, None, sin.reshape(shape), cos.reshape(shape), places, False
    )
    turned = q.numpy()[:, ::-1]
    close(picked[0], _rope(turned, False)[0, ::-1])
    close(picked[1], half[1])
    major = [1, 0, 2, 3]
    moved, _, _ = F.fused_rotary_position_embedding(q.transpose(major), time_major=True)
    close(moved.transpose(major), out_q)
    with pytest.raises(ValueError, match="sin and cos"):
        F.fused_rotary_position_embedding(q, position_ids=places)
    with pytest.raises(ValueError, match="even"):
        F.fused_rotary_position_embedding(t(2, 5, 3, 7))


def test_attention_over_different_lengths(tier: str) -> None:
    q, k, v = t(2, 4, 5, 8), t(2, 2, 6, 8), t(2, 2, 6, 8)
    lengths, keys = [5, 3], [6, 4]
    got = F.variable_length_memory_efficient_attention(
        q, k, v, paddle.to_tensor([[5], [3]], dtype="int32"),
        paddle.to_tensor([[6], [4]], dtype="int32"), causal=True,
    ).numpy()  # fmt: skip
    for b in range(2):
        n, m = lengths[b], keys[b]
        wide = np.repeat(k.numpy()[b, :, :m], 2, 0), np.repeat(v.numpy()[b, :, :m], 2, 0)
        scores = q.numpy()[b, :, :n] @ wide[0].transpose(0, 2, 1) / math.sqrt(8)
        scores = np.where(np.arange(m) <= np.arange(n)[:, None], scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        expected = weights / weights.sum(-1, keepdims=True) @ wide[1]
        np.testing.assert_allclose(got[b, :, :n], expected, rtol=1e-4, atol=1e-5)
        assert not got[b, :, n:].any()


@pytest.mark.parametrize("kv_heads", [2, 1])
def test_one_step_at_a_time_over_a_cache(kv_heads: int) -> None:
    heads, size, steps = 2, 4, 3
    cache = paddle.zeros([2, 2, kv_heads, 6, size])
    xs = [t(2, (heads + 2 * kv_heads) * size) for _ in range(steps)]
    for i, x in enumerate(xs):
        where = paddle.full([2, 1], i, "int32")
        out, same = F.masked_multihead_attention(x, cache, sequence_lengths=where)
        assert same is cache
    packed = np.stack([x.numpy().reshape(2, -1, size) for x in xs], 2)  # [batch, head, time, size]
    q, k, v = np.split(packed, [heads, heads + kv_heads], 1)
    k, v = (np.repeat(a, heads // kv_heads, 1) for a in (k, v))
    scores = q[:, :, -1:] @ k.transpose(0, 1, 3, 2) / math.sqrt(size)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = (weights / weights.sum(-1, keepdims=True) @ v).reshape(2, -1)
    close(out, expected, 1e-4)
    np.testing.assert_array_equal(cache.numpy()[0, :, :, 3:], 0)
    mask = paddle.zeros([2, 1, 1, 3])
    cache[:, :, :, 2] = 0.0
    close(F.masked_multihead_attention(xs[-1], cache, src_mask=mask)[0], expected, 1e-4)


def test_a_step_with_turned_pairs() -> None:
    size = 4
    angle = np.arange(6)[:, None] * 10000.0 ** -(np.arange(size) // 2 * 2 / size)
    table = np.stack([np.cos(angle), np.sin(angle)])[:, None, None].repeat(2, 1).astype("float32")
    x = t(2, 3 * 2 * size)
    cache = paddle.zeros([2, 2, 2, 6, size])
    where = paddle.to_tensor([[3], [3]], dtype="int32")
    F.masked_multihead_attention(
        x, cache, sequence_lengths=where, rotary_tensor=paddle.to_tensor(table), rotary_emb_dims=1
    )
    key = x.reshape([2, 1, 6, size])[:, :, 2:4]
    pair = key.numpy()[..., ::2] + 1j * key.numpy()[..., 1::2]
    spun = pair * np.exp(1j * angle[3, ::2])
    expected = np.stack([spun.real, spun.imag], -1).reshape(2, 2, size)
    np.testing.assert_allclose(cache.numpy()[0, :, :, 3], expected, rtol=1e-4, atol=1e-5)


def test_norms_with_their_moments() -> None:
    x, w, b = t(2, 3, 8), t(8), t(8)
    out, mean, inverse = F.fast_ln(x, w, b)
    close(out, nn.functional.layer_norm(x, [8], w, b))
    close(mean, x.numpy().mean(-1))
    close(inverse, 1 / np.sqrt(x.numpy().var(-1) + 1e-5), 1e-4)
    out, inverse = F.fast_rms_norm(x, w)
    root = 1 / np.sqrt((x.numpy() ** 2).mean(-1) + 1e-5)
    close(inverse, root)
    close(out, x.numpy() * root[..., None] * w.numpy())
    close(F.fused_rms_norm_ext(x, w)[0], out)


def test_quantised_norm() -> None:
    x, w, b = t(2, 8), t(8), t(8)
    plain = F.fused_rms_norm(x, w, b, 1e-5)[0].numpy()
    got = F.fused_rms_norm(x, w, b, 1e-5, 1, None, None, 0.05, 0, 127.0, -127.0)[0]
    np.testing.assert_array_equal(got.numpy(), np.clip(np.rint(plain * 127 * 0.05), -127, 127))


def test_counts_and_lengths() -> None:
    x = paddle.to_tensor([[1, 2, 2], [5, 0, 2]])
    assert F.int_bincount(x, 1, 6).tolist() == [1, 3, 0, 0, 1]
    assert F.int_bincount(x, 1, 3, "int32").dtype is paddle.int32
    lengths = paddle.to_tensor([3, 7], dtype="int32"), paddle.to_tensor([0, 4], dtype="int32")
    assert [v.tolist() for v in F.blha_get_max_len(*lengths, paddle.to_tensor([2]))] == [[7], [4]]


def test_masked_softmax_of_a_triangle() -> None:
    x = t(2, 2, 4, 4)
    got = paddle.incubate.softmax_mask_fuse_upper_triangle(x).numpy()
    for i in range(4):
        row = np.exp(x.numpy()[:, :, i, : i + 1])
        np.testing.assert_allclose(
            got[:, :, i, : i + 1], row / row.sum(-1, keepdims=True), rtol=1e-5
        )
        assert not got[:, :, i, i + 1 :].any()


def test_neighbours() -> None:
    """Paddle's own sampler crashes on this input in the CPU wheel."""
    row = paddle.to_tensor([3, 7, 0, 9, 1])
    colptr = paddle.to_tensor([0, 2, 4, 5])
    nodes = paddle.to_tensor([2, 0])
    found, count = paddle.incubate.graph_sample_neighbors(row, colptr, nodes)
    assert (sorted(found.tolist()), count.tolist()) == ([1, 3, 7], [1, 2])
    with pytest.raises(ValueError, match="perm_buffer"):
        paddle.incubate.graph_sample_neighbors(row, colptr, nodes, flag_perm_buffer=True)


def test_neighbours_of_neighbours() -> None:
    row = paddle.to_tensor([3, 7, 0, 9, 1, 4, 2, 9, 3, 9, 1, 9, 7])
    colptr = paddle.to_tensor([0, 2, 4, 5, 6, 7, 9, 11, 11, 13, 13])
    nodes = paddle.to_tensor([0, 8, 1, 2])
    edges = paddle.arange(13)
    source, target, old, inputs, eids = paddle.incubate.graph_khop_sampler(
        row, colptr, nodes, [2, 2], edges, True
    )
    assert source.shape == target.shape == eids.shape
    assert inputs.tolist() == [0, 1, 2, 3]
    assert old.tolist()[:4] == [0, 8, 1, 2]
    starts = colptr.numpy()
    names = old.numpy()
    for s, d, e in zip(source.numpy()[:, 0], target.numpy()[:, 0], eids.numpy()[:, 0], strict=True):
        assert starts[names[d]] <= e < starts[names[d] + 1]
        assert row.numpy()[e] == names[s]


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.fused_feedforward(t(2, 3, 4), t(4, 8), t(8, 4), mode="other"),
        lambda: F.fused_feedforward(t(2, 3, 4), t(4, 8), t(8, 4), dropout1_rate=2.0),
        lambda: F.fused_feedforward(t(2, 3, 4), t(4, 8), t(8, 4), ring_id=0),
        lambda: F.fused_multi_head_attention(t(3, 8), t(3, 2, 4, 8), t(8, 8)),
        lambda: F.fused_multi_head_attention(t(1, 3, 8), t(8, 24), t(8, 8)),
        lambda: F.fused_rms_norm(t(2, 8), t(4), None, 1e-5),
        lambda: F.fused_rms_norm(t(2, 8), t(8), None, 1e-5, 2),
        lambda: F.masked_multihead_attention(t(2, 24), t(2, 2, 2, 6, 4)),
        lambda: F.masked_multihead_attention(t(2, 24)),
        lambda: paddle.incubate.nn.FusedMultiHeadAttention(8, 3),
        lambda: paddle.incubate.nn.FusedMultiHeadAttention(8, 2, nranks=2),
        lambda: paddle.incubate.nn.FusedMultiHeadAttention(8, 2)(t(1, 2, 8), t(1, 2, 8)),
    ],
)
def test_what_is_refused(call: Any) -> None:
    with pytest.raises(ValueError, match="Received"):
        call()
