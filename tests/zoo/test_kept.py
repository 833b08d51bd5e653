"""Models whose weights stay in quantised blocks."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import bireme as paddle
from bireme import nn, zoo
from bireme.zoo.kept import KeptEmbedding, KeptLinear
from tests.zoo.make_gguf import kept_llama


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    made = tmp_path / "kept.gguf"
    kept_llama(made)
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
