"""Functions of text generation whose kernels Paddle has for GPUs only: references are loops and
the layers of `nn`."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme import nn
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.incubate.nn import FusedMultiTransformer
from bireme.incubate.nn import functional as I

RNG = np.random.default_rng(11)
HEADS, KV_HEADS, SIZE, BLOCK = 4, 2, 8, 4


def _rand(*shape):
    return RNG.standard_normal(shape).astype("float32")


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _rotated(x, angle, neox):
    """x [heads, size] turned by one angle per pair."""
    out = x.copy()
    half = SIZE // 2
    for i in range(half):
        a, b = (i, i + half) if neox else (2 * i, 2 * i + 1)
        c, s = np.cos(angle[i]), np.sin(angle[i])
        out[:, a], out[:, b] = x[:, a] * c - x[:, b] * s, x[:, b] * c + x[:, a] * s
    return out


class Paged:
    """A batch of sequences, held plainly, beside the blocks that the function works on."""

    def __init__(self, lengths, neox=False, rope=False, places=12):
        self.batch, self.neox = len(lengths), neox
        blocks = -(-places // BLOCK)
        self.tables = RNG.permutation(self.batch * blocks).reshape(self.batch, blocks)
        shape = [self.batch * blocks, KV_HEADS, BLOCK, SIZE]
        self.caches = [paddle.zeros(shape), paddle.zeros(shape)]
        self.seen: list[list[tuple]] = [[] for _ in lengths]
        self.angles = np.arange(places)[:, None] * RNG.random(SIZE // 2) if rope else None
        self.longest = places

    def step(self, counts, starting, max_seq_len=-1, bias=None, **options):
        """(ours, wanted) for so many new tokens of each sequence."""
        before = [len(s) for s in self.seen]
        qkv = _rand(sum(counts), (HEADS + 2 * KV_HEADS) * SIZE)
        wanted, row = [], 0
        for b, n in enumerate(counts):
            for i in range(n):
                heads = (qkv[row] + (0 if bias is None else bias)).reshape(-1, SIZE)
                q, k, v = np.split(heads, [HEADS, HEADS + KV_HEADS])
                if self.angles is not None:
                    q, k = (_rotated(t, self.angles[before[b] + i], self.neox) for t in (q, k))
                self.seen[b].append((k, v))
                keys, values = (np.stack(t) for t in zip(*self.seen[b], strict=True))
                out = np.zeros((HEADS, SIZE), "float32")
                for h in range(HEADS):
                    g = h * KV_HEADS // HEADS
                    scores = keys[:, g] @ q[h] / np.sqrt(SIZE)
                    if "tgt_mask" in options and not starting:
                        scores = scores + options["tgt_mask"][b, 0, 0, : len(scores)]
                    out[h] = _softmax(scores) @ values[:, g]
                wanted.append(out.reshape(-1))
                row += 1
        starts = paddle.to_tensor(np.cumsum([0, *counts]).astype("int32"))
        rope = None
        if self.angles is not None:
            rope = np.stack([np.cos(self.angles), np.sin(self.angles)])[:, None, :, None]
            rope = paddle.to_tensor(rope.astype("float32"))
        now = paddle.to_tensor(counts, dtype="int32")
        ours = I.block_multihead_attention(
            paddle.to_tensor(qkv), *self.caches, now if starting else now * 0,
            paddle.to_tensor(before, dtype="int32"), now, starts, starts, starts, starts,
            paddle.to_tensor(self.tables, dtype="int32"),
            rope_emb=rope, block_size=BLOCK, use_neox_style=self.neox, max_seq_len=max_seq_len,
            qkv_bias=None if bias is None else paddle.to_tensor(bias),
            **{k: paddle.to_tensor(v) for k, v in options.items()},
        )  # fmt: skip
        assert ours[2] is self.caches[0]
        return ours[0].numpy(), np.stack(wanted)


@pytest.mark.parametrize(("rope", "neox"), [(False, False), (True, False), (True, True)])
def test_blocks_of_cache(tier, rope, neox):
    batch = Paged([3, 5], neox, rope)
    for counts, starting, longest in (([3, 5], True, 5), ([1, 1], False, -1), ([1, 1], False, 12)):
        ours, wanted = batch.step(counts, starting, longest)
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5)


def test_blocks_with_bias_masks_and_pieces():
    """Several new tokens at once after earlier ones, and what is added for later tokens."""
    batch = Paged([2, 1])
    bias = _rand((HEADS + 2 * KV_HEADS) * SIZE)
    first = batch.step([2, 1], True, bias=bias)
    more = batch.step([1, 3], False, tgt_mask=_rand(2, 1, 1, 9), bias=bias)
    for ours, wanted in (first, more):
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5)
    # A mask in the place of causality: everything is visible.
    q = k = v = _rand(3, 1, SIZE)
    qkv = paddle.to_tensor(np.concatenate([q, k, v], 1).reshape(3, -1))
    cache = [paddle.zeros([1, 1, 4, SIZE]) for _ in range(2)]
    lengths, none = paddle.to_tensor([3], dtype="int32"), paddle.zeros([1], "int32")
    starts = paddle.to_tensor([0, 3], dtype="int32")
    out = I.block_multihead_attention(
        qkv, *cache, lengths, none, lengths, none, none, starts, starts,
        paddle.zeros([1, 1], "int32"), mask=paddle.zeros([1, 1, 3, 3]), block_size=4,
    )[0]  # fmt: skip
    wanted = _softmax(q[:, 0] @ k[:, 0].T / np.sqrt(SIZE)) @ v[:, 0]
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(InvalidArgument, match="cache_k_quant_scales"):
        I.block_multihead_attention(
            qkv, *cache, lengths, none, lengths, none, none, starts, starts,
            paddle.zeros([1, 1], "int32"), cache_k_quant_scales=none, block_size=4,
        )  # fmt: skip
    with pytest.raises(InvalidArgument, match="block_size"):
        I.block_multihead_attention(
            qkv, *cache, lengths, none, lengths, none, none, starts, starts,
            paddle.zeros([1, 1], "int32"), block_size=8,
        )  # fmt: skip


def _stack(**options):
    attrs = {f"{n}_attrs": nn.initializer.Normal() for n in (
        "ln_bias", "qkv_bias", "linear_bias", "ffn_ln_bias", "ffn1_bias", "ffn2_bias")}  # fmt: skip
    attrs = {k: paddle.ParamAttr(initializer=v) for k, v in attrs.items()}
    return FusedMultiTransformer(32, 4, 48, num_layers=2, **{**attrs, **options})


@pytest.mark.parametrize("first", [True, False])
def test_stack_is_the_plain_encoder(first):
    stack = _stack(normalize_before=first, activation="relu")
    plain = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(32, 4, 48, 0.0, "relu", normalize_before=first), 2
    )
    for i, layer in enumerate(plain.layers):
        at = {kind: getattr(stack, kind)[i] for kind in stack._kinds}
        qkv = at["qkv_weights"].reshape([3, 32, 32])
        attention = layer.self_attn
        for j, part in enumerate((attention.q_proj, attention.k_proj, attention.v_proj)):
            part.weight.set_value(qkv[j].transpose([1, 0]))
            part.bias.set_value(at["qkv_biases"].reshape([3, 32])[j])
        pairs = [
            (attention.out_proj, "linear_weights", "linear_biases"),
            (layer.norm1, "ln_scales", "ln_biases"),
            (layer.norm2, "ffn_ln_scales", "ffn_ln_biases"),
            (layer.linear1, "ffn1_weights", "ffn1_biases"),
            (layer.linear2, "ffn2_weights", "ffn2_biases"),
        ]
        for part, weight, bias in pairs:
            part.weight.set_value(at[weight])
            part.bias.set_value(at[bias])
    x = paddle.to_tensor(_rand(2, 5, 32), stop_gradient=False)
    mask = paddle.to_tensor(np.triu(np.full((5, 5), -1e4, "float32"), 1)).expand([2, 1, 5, 5])
    ours, wanted = stack(x, mask), plain(x, mask)
    np.testing.assert_allclose(ours.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-4)
    ours.sum().backward()
    assert len(stack.parameters()) == 24
    assert all(p.grad is not None for p in stack.parameters())


@pytest.mark.parametrize(
    "options",
    [{}, {"gqa_group_size": 2, "activation": "swiglu", "norm_type": "rmsnorm"},
     {"trans_qkvw": False, "use_neox_rotary_style": True, "activation": "geglu",
      "residual_alpha": 0.5}],
)  # fmt: skip
def test_steps_are_the_whole_sequence(options):
    """Generating with a cache gives what the causal mask gives for all places at once."""
    stack = _stack(**options)
    stack.eval()
    x = _rand(2, 6, 32)
    angle = np.arange(6)[:, None] * np.repeat(RNG.random(4), 2)
    rotary = np.stack([np.cos(angle), np.sin(angle)])[:, None, None].astype("float32")
    rotary = paddle.to_tensor(np.tile(rotary, (1, 2, 1, 1, 1)))
    causal = paddle.to_tensor(np.triu(np.full((6, 6), -1e4, "float32"), 1)).expand([2, 1, 6, 6])
    with paddle.no_grad():
        whole = stack(paddle.to_tensor(x), causal, rotary_embs=rotary, rotary_emb_dims=1).numpy()
        kv = options.get("gqa_group_size", 4)
        caches = [paddle.zeros([2, 2, kv, 8, 8]) for _ in range(2)]
        out, made = stack(
            paddle.to_tensor(x[:, :4]), causal[:, :, :4, :4], caches, rotary_embs=rotary,
            rotary_emb_dims=1,
        )  # fmt: skip
        assert made is caches
        np.testing.assert_allclose(out.numpy(), whole[:, :4], rtol=1e-4, atol=1e-4)
        for t in (4, 5):
            lengths = paddle.to_tensor([t, t]) if t == 5 else None
            out, _ = stack(
                paddle.to_tensor(x[:, t : t + 1]), caches=caches, rotary_embs=rotary,
                rotary_emb_dims=1, time_step=paddle.to_tensor([t], dtype="int32"), seq_lens=lengths,
            )  # fmt: skip
            np.testing.assert_allclose(out.numpy(), whole[:, t : t + 1], rtol=1e-4, atol=1e-4)


def test_stack_refuses():
    stack, x = _stack(), paddle.ones([2, 5, 32])
    with pytest.raises(InvalidArgument, match="cache_kvs"):
        stack(x[:, :1], time_step=paddle.to_tensor([1]))
    with pytest.raises(ShapeMismatch, match="one step"):
        stack(x, caches=[paddle.zeros([2, 2, 4, 8, 8])] * 2, time_step=paddle.to_tensor([1]))
    with pytest.raises(InvalidArgument, match="beam"):
        stack(x, beam_offset=x)
    with pytest.raises(InvalidArgument, match="activation"):
        _stack(activation="tanh")(x)


def test_gradients_by_name():
    main = paddle.to_tensor(_rand(5, 3))
    before, ids, grad = main.numpy().copy(), np.array([[1, 4], [1, 0]]), _rand(2, 2, 3)
    made = I.embedding_grad_add_to_(paddle.to_tensor(ids), main, paddle.to_tensor(grad))
    np.add.at(before, ids.reshape(-1), grad.reshape(-1, 3))
    assert made is main
    np.testing.assert_allclose(main.numpy(), before, rtol=1e-6)

    logits = paddle.to_tensor(_rand(4, 6), stop_gradient=False)
    label = paddle.to_tensor([[1], [0], [5], [2]])
    above = paddle.to_tensor(_rand(4, 1))
    loss, softmax = nn.functional.softmax_with_cross_entropy(logits, label, return_softmax=True)
    (loss * above).sum().backward()
    down = I.cross_entropy_with_softmax_bwd_w_downcast(label, softmax, above)
    assert down.dtype is paddle.bfloat16
    np.testing.assert_allclose(
        down.astype("float32").numpy(), logits.grad.numpy(), rtol=1e-2, atol=1e-3
    )

    o1 = paddle.to_tensor(_rand(4, 6), stop_gradient=False)
    probs = paddle.to_tensor(RNG.random((4, 1)).astype("float32"), stop_gradient=False)
    out = nn.functional.swiglu(o1) * probs
    up = paddle.to_tensor(_rand(4, 3))
    (out * up).sum().backward()
    wanted = (o1.grad, probs.grad, out)
    for a, b in zip(I.fused_swiglu_weighted_bwd(o1, up, probs), wanted, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)


def test_float8_rows():
    x = paddle.to_tensor(_rand(3, 200)).astype("float8_e4m3fn")
    scale = paddle.to_tensor(RNG.random((3, 2)).astype("float32"))
    out = I.fused_act_dequant(x, scale)
    wanted = x.astype("float32").numpy() * np.repeat(scale.numpy(), 128, 1)[:, :200]
    np.testing.assert_allclose(out.astype("float32").numpy(), wanted, rtol=1e-2)
    with pytest.raises(ShapeMismatch, match="width / 128"):
        I.fused_act_dequant(x, scale[:, :1])
