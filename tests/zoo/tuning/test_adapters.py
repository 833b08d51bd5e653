"""Adapters, merged and not, and peft's files. peft.zip is what peft 0.21 made and its logits
(tests/zoo/make_peft.py, which also reads what Bireme writes)."""

from __future__ import annotations

import json
import pathlib
import zipfile
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import zoo
from bireme.core.errors import BiremeError, InvalidArgument
from bireme.zoo.tuning import adapters
from tests.zoo.make_peft import CASES, GOLDEN
from tests.zoo.tuning.conftest import Load

IDS = np.arange(12).reshape(1, 12)


@pytest.fixture
def golden(tmp_path: pathlib.Path) -> pathlib.Path:
    with zipfile.ZipFile(GOLDEN) as file:
        file.extractall(tmp_path / "golden")
    return tmp_path / "golden"


def _base(golden: pathlib.Path) -> Any:
    return zoo.AutoModelForCausalLM.from_pretrained(golden / "base")


def _logits(model: Any) -> np.ndarray:
    with paddle.no_grad():
        return model(paddle.to_tensor(IDS)).numpy()


@pytest.mark.parametrize("case", CASES)
def test_an_adapter_of_peft_gives_its_logits(case: str, golden: pathlib.Path) -> None:
    model = zoo.load_adapter(_base(golden), golden / case)
    want = np.load(golden / f"{case}.npy")
    np.testing.assert_allclose(_logits(model), want, atol=2e-6)
    before = {n: t.numpy() for n, t in model.state_dict().items()}
    zoo.merge(model)
    np.testing.assert_allclose(_logits(model), want, atol=5e-6)
    zoo.unmerge(model)
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), before[name])


def test_what_is_written_is_what_was_read(golden: pathlib.Path, tmp_path: pathlib.Path) -> None:
    model = zoo.load_adapter(_base(golden), golden / "all")
    zoo.save_adapter(model, tmp_path / "ours")
    again = zoo.load_adapter(_base(golden), tmp_path / "ours")
    np.testing.assert_array_equal(_logits(again), _logits(model))
    ours = json.loads((tmp_path / "ours" / "adapter_config.json").read_text())
    theirs = json.loads((golden / "all" / "adapter_config.json").read_text())
    for key in ("peft_type", "r", "lora_alpha", "lora_dropout", "bias", "task_type"):
        assert ours[key] == theirs[key]
    ends = {name.rpartition(".")[2] for name in theirs["target_modules"]}
    assert set(ours["target_modules"]) == ends


def test_a_merged_model_is_saved_without_its_adapters(
    golden: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    model = zoo.load_adapter(_base(golden), golden / "plain")
    with pytest.raises(BiremeError, match="has adapters"):
        zoo.save_pretrained(model, tmp_path / "whole")
    zoo.save_pretrained(zoo.merge(model), tmp_path / "whole")
    again = zoo.AutoModelForCausalLM.from_pretrained(tmp_path / "whole")
    np.testing.assert_array_equal(_logits(again), _logits(model))
    adapters.remove(model)
    np.testing.assert_array_equal(_logits(again), _logits(model))
    assert not adapters.adapters(model)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"peft_type": "IA3"}, "IA3"),
        ({"bias": "all"}, "bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"something_new": 3}, "something_new"),
        ({"rank_pattern": {"(a+)+$": 3}}, "patterns"),
        ({"r": 5}, "rank 4"),
        ({"lora_alpha": "x"}, "lora_alpha"),
        ({"target_parameters": ["mlp.experts"]}, "target_parameters"),
    ],
)
def test_settings_that_are_not_understood_raise(
    change: dict[str, Any], words: str, golden: pathlib.Path
) -> None:
    path = golden / "plain" / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    model = _base(golden)
    with pytest.raises(BiremeError, match=words):
        zoo.load_adapter(model, golden / "plain")
    assert not adapters.adapters(model)


def test_an_adapter_of_another_model_raises(golden: pathlib.Path, load: Load) -> None:
    model, _ = load()
    with pytest.raises(BiremeError, match="does not fit"):
        zoo.load_adapter(model, golden / "all")


def test_targets(load: Load) -> None:
    model, _ = load()
    with pytest.raises(BiremeError, match="called: down_proj"):
        adapters.attach(model, zoo.Lora(targets=("query",)))
    with pytest.raises(BiremeError, match="called \\['query'\\]"):
        adapters.attach(model, zoo.Lora(targets=("q_proj", "query")))
    adapters.attach(model, zoo.Lora(2, targets="all-linear"))
    assert len(adapters.adapters(model)) == 7
    trained = [n for n, p in model.named_parameters() if not p.stop_gradient]
    assert len(trained) == 14
    assert all(".lora." in n for n in trained)
    with pytest.raises(BiremeError, match="already"):
        adapters.attach(model, zoo.Lora())


def test_generation_takes_an_adapter(load: Load) -> None:
    """The adapter is part of the decoding program, and merging changes no token."""
    model, tokenizer = load()
    plain = zoo.generate(model, tokenizer, "abc", 12)
    paddle.seed(1)
    adapters.attach(model, zoo.Lora(4, 64, "all-linear"))
    assert zoo.generate(model, tokenizer, "abc", 12) == plain  # B is zero
    for adapter in adapters.adapters(model).values():
        adapter.B.set_value(paddle.randn(adapter.B.shape))
    tuned = zoo.generate(model, tokenizer, "abc", 12)
    assert tuned != plain
    assert zoo.generate(zoo.merge(model), tokenizer, "abc", 12) == tuned
    assert zoo.generate(zoo.unmerge(model), tokenizer, "abc", 12) == tuned


@pytest.mark.usefixtures("cold")
def test_adapters_are_trained_beside_quantised_blocks(load: Load, tmp_path: pathlib.Path) -> None:
    """The gradients are those of the unpacked weights, and the adapter fits both."""
    _, tokenizer = load()
    config = {
        "model_type": "llama", "vocab_size": tokenizer.vocab_size, "hidden_size": 32,
        "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_hidden_layers": 2, "max_position_embeddings": 64,
    }  # fmt: skip
    path = tmp_path / "blocks.gguf"
    zoo.save_gguf(zoo.make_model(zoo.AutoConfig.from_dict(config)), path, tokenizer, dtype="Q8_0")
    runs: list[Any] = []
    for kind in ("keep", "float32"):
        model, _ = zoo.load(path, dtype=kind)
        done = zoo.finetune(
            model, tokenizer, ["the bad end", "a good cat"], tmp_path / kind, steps=6,
            lora=zoo.Lora(4, targets="all-linear"), learning_rate=1e-2, max_length=16,
        )  # fmt: skip
        assert done.losses[-1] < done.losses[0]
        runs.append((model, done.losses))
    (kept, losses), (_, plain) = runs
    np.testing.assert_allclose(losses, plain, rtol=0.02)
    blocks = [n for n, t in kept.state_dict().items() if t.dtype.name == "uint8"]
    assert len(blocks) == 2 * 7 + 1 + 1  # every matrix, the words and the output
    with pytest.raises(InvalidArgument, match="quantised blocks"):
        zoo.merge(kept)
    ids = paddle.to_tensor(np.array([[3, 4, 5, 6]]))
    both = [
        zoo.load_adapter(zoo.load(path, dtype=kind)[0], tmp_path / "keep")(ids).numpy()
        for kind in ("keep", "float32")
    ]
    np.testing.assert_array_equal(both[0], kept(ids).numpy())
    np.testing.assert_allclose(both[0], both[1], atol=0.02 * np.abs(both[1]).max())
