"""Models whose weights stay in quantised blocks."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import nn, zoo
from bireme.ops.block_formats import BLOCK_FORMATS
from bireme.zoo.kept import KeptEmbedding, KeptLinear
from tests.zoo.make_gguf import WORDS, gguf


def _blocks(rng: np.random.Generator, form: str, rows: int, width: int) -> Any:
    """A tensor of random blocks with small scales, as `gguf` takes it."""
    f = BLOCK_FORMATS[form]
    made = rng.integers(0, 256, (rows * width // f.count, f.size), dtype=np.uint8)
    made[:, 1] = made[:, 1] & 0x80 | 0x24
    if form == "Q4_1":
        made[:, 3] = 0xA4
    return (rows, width), f.code, made.tobytes()


def _file(path: pathlib.Path, embedding: str = "Q8_0") -> None:
    """A llama of two layers, with queries that lie as pairs."""
    rng = np.random.default_rng(0)
    width, inner, heads, kv, size = 64, 96, 4, 2, 16
    tensors: dict[str, Any] = {
        "token_embd.weight": _blocks(rng, embedding, len(WORDS), width),
        "output_norm.weight": np.ones(width, np.float32),
    }
    for i in range(2):
        tensors |= {
            f"blk.{i}.attn_norm.weight": np.ones(width, np.float32),
            f"blk.{i}.attn_q.weight": _blocks(rng, "Q4_1", heads * size, width),
            f"blk.{i}.attn_k.weight": _blocks(rng, "Q4_0", kv * size, width),
            f"blk.{i}.attn_v.weight": _blocks(rng, "Q8_0", kv * size, width),
            f"blk.{i}.attn_output.weight": _blocks(rng, "Q5_0", width, heads * size),
            f"blk.{i}.ffn_norm.weight": np.ones(width, np.float32),
            f"blk.{i}.ffn_gate.weight": _blocks(rng, "Q4_1", inner, width),
            f"blk.{i}.ffn_up.weight": _blocks(rng, "Q4_0", inner, width),
            f"blk.{i}.ffn_down.weight": rng.standard_normal((width, inner)).astype(np.float32) / 9,
        }
    values = {
        "general.architecture": "llama",
        "llama.block_count": 2, "llama.context_length": 64, "llama.embedding_length": width,
        "llama.feed_forward_length": inner, "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": kv, "llama.rope.freq_base": 10000.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": WORDS,
        "tokenizer.ggml.token_type": [3, 3, *[1] * (len(WORDS) - 2)],
        "tokenizer.ggml.merges": ["t h", "th e", "Ġ the"],
        "tokenizer.ggml.eos_token_id": 0, "tokenizer.ggml.bos_token_id": 1,
    }  # fmt: skip
    path.write_bytes(gguf(values, tensors))


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    made = tmp_path / "kept.gguf"
    _file(made)
    return made


def test_kept_blocks_give_the_dequantised_scores(path: pathlib.Path) -> None:
    kept, _ = zoo.load(path, dtype="keep")
    whole, _ = zoo.load(path)
    layer = kept.model.layers[0]
    assert isinstance(layer.self_attn.q_proj, KeptLinear)
    assert isinstance(kept.model.embed_tokens, KeptEmbedding)
    assert isinstance(layer.mlp.down_proj, nn.Linear)  # it has no blocks
    wanted = whole.model.layers[1].self_attn.q_proj.weight.numpy()
    np.testing.assert_array_equal(kept.model.layers[1].self_attn.q_proj.dequantised().T, wanted)
    ids = paddle.to_tensor(np.arange(20).reshape(1, 20))
    with paddle.no_grad():
        found, wanted = kept(ids).numpy(), whole(ids).numpy()
    assert np.abs(found - wanted).max() < 0.03 * np.abs(wanted).max()


def test_gradients_pass_through_kept_layers(path: pathlib.Path) -> None:
    kept, _ = zoo.load(path, dtype="keep")
    assert all(p.dtype == paddle.float32 for p in kept.parameters())
    kept(paddle.to_tensor([[3, 4, 5]])).mean().backward()
    norm = kept.model.layers[0].input_layernorm.weight
    assert norm.grad is not None
    assert np.abs(norm.grad.numpy()).max() > 0


def test_files_without_blocks_become_float32(tmp_path: pathlib.Path) -> None:
    from tests.zoo.make_gguf import tiny_llama

    path = tmp_path / "tiny.gguf"
    tiny_llama(path)
    kept, _ = zoo.load(path, dtype="keep")
    assert isinstance(kept.model.layers[0].self_attn.q_proj, nn.Linear)


def test_a_kept_model_is_saved_with_its_numbers(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    kept, _ = zoo.load(path, dtype="keep")
    zoo.save_pretrained(kept, tmp_path / "saved")
    again = zoo.AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    whole, _ = zoo.load(path)
    for name, wanted in whole.state_dict().items():
        np.testing.assert_array_equal(again.state_dict()[name].numpy(), wanted.numpy())
