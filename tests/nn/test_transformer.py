"""Attention: masks, caches, weights."""

from __future__ import annotations

from typing import Any

import numpy as np

import bireme

R = np.random.default_rng(3)


def _pair(paddle: Any, name: str, **options: Any) -> tuple[Any, Any]:
    theirs = getattr(paddle.nn, name)(**options)
    mine = getattr(bireme.nn, name)(**options)
    mine.set_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    theirs.eval()
    mine.eval()
    return theirs, mine


def _close(want: Any, got: Any) -> None:
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-4, atol=2e-5)


def test_masks(paddle: Any) -> None:
    theirs, mine = _pair(paddle, "MultiHeadAttention", embed_dim=8, num_heads=2)
    x = R.standard_normal((2, 5, 8)).astype("float32")
    causal = np.tril(np.ones((5, 5), bool))
    masks = (causal, causal.astype("int64"), np.where(causal, 0.0, -1e4).astype("float32"))
    for mask in masks:
        _close(
            theirs(paddle.to_tensor(x), attn_mask=paddle.to_tensor(mask)),
            mine(bireme.to_tensor(x), attn_mask=bireme.to_tensor(mask)),
        )


def test_weights(paddle: Any) -> None:
    theirs, mine = _pair(paddle, "MultiHeadAttention", embed_dim=8, num_heads=2, need_weights=True)
    x = R.standard_normal((2, 5, 8)).astype("float32")
    for want, got in zip(theirs(paddle.to_tensor(x)), mine(bireme.to_tensor(x)), strict=True):
        _close(want, got)


def test_step_by_step_equals_all_at_once() -> None:
    options = {"d_model": 8, "nhead": 2, "dim_feedforward": 16, "dropout": 0.0}
    layer = bireme.nn.TransformerDecoderLayer(**options)
    decoder = bireme.nn.TransformerDecoder(layer, 2)
    decoder.eval()
    memory = bireme.to_tensor(R.standard_normal((2, 3, 8)).astype("float32"))
    target = bireme.to_tensor(R.standard_normal((2, 4, 8)).astype("float32"))
    mask = bireme.nn.Transformer.generate_square_subsequent_mask(4)
    whole = decoder(target, memory, tgt_mask=mask)
    cache = decoder.gen_cache(memory)
    outs = []
    for t in range(4):
        out, cache = decoder(target[:, t : t + 1], memory, cache=cache)
        outs.append(out)
    _close(whole, bireme.concat(outs, axis=1))
    assert cache[0][0].k.shape == [2, 2, 4, 4]


def test_encoder_cache(paddle: Any) -> None:
    options = {"d_model": 8, "nhead": 2, "dim_feedforward": 16, "dropout": 0.0}
    theirs, mine = _pair(paddle, "TransformerEncoderLayer", **options)
    x = R.standard_normal((2, 3, 8)).astype("float32")
    want, _ = theirs(paddle.to_tensor(x), cache=theirs.gen_cache(paddle.to_tensor(x)))
    got, cache = mine(bireme.to_tensor(x), cache=mine.gen_cache(bireme.to_tensor(x)))
    _close(want, got)
    assert cache.k.shape == [2, 2, 3, 4]


def test_stacked_layers_do_not_share_weights() -> None:
    layer = bireme.nn.TransformerEncoderLayer(8, 2, 16)
    encoder = bireme.nn.TransformerEncoder(layer, 2)
    first, second = encoder.layers
    assert first is layer
    assert not np.array_equal(first.linear1.weight.numpy(), second.linear1.weight.numpy())
