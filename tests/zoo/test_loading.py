"""Loading: unknown keys, tensors that do not fit, shards, types, heads, views of the file."""

from __future__ import annotations

import json
import pathlib
import zipfile
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import zoo
from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.io import safetensors_file
from bireme.zoo.files import open_source
from tests.zoo.folders import tiny
from tests.zoo.make_folders import GOLDEN


def _folder(name: str, folder: pathlib.Path, **changed: Any) -> dict[str, np.ndarray]:
    """A folder from the golden files, with changed keys in its config; returns its tensors."""
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
        archive.extractall(folder)
    config = json.loads((folder / "config.json").read_text()) | changed
    (folder / "config.json").write_text(json.dumps(config))
    path = folder / "model.safetensors"
    with open(path, "rb") as file:
        return safetensors_file.read(file, path.stat().st_size, str(path))[0]


def _write(folder: pathlib.Path, tensors: dict[str, np.ndarray], name: str = "model") -> None:
    with open(folder / f"{name}.safetensors", "wb") as file:
        safetensors_file.write(tensors, {}, file)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"new_attention_trick": 3}, "new_attention_trick=3"),
        ({"pretraining_tp": 4}, "pretraining_tp=4"),
        ({"rope_parameters": {"rope_type": "spiral"}}, "spiral"),
        ({"rope_parameters": {"rope_type": "default", "twist": 2}}, "twist"),
    ],
)
def test_what_could_change_numbers_is_an_error(
    changed: dict[str, Any], named: str, tmp_path: pathlib.Path
) -> None:
    _folder("llama", tmp_path, **changed)
    with pytest.raises(zoo.UnknownSetting, match=named):
        zoo.AutoModelForCausalLM.from_pretrained(tmp_path)


def test_keys_without_a_value_and_harmless_ones_are_taken(tmp_path: pathlib.Path) -> None:
    _folder("llama", tmp_path, new_attention_trick=None, initializer_range=0.5, use_cache=False)
    assert zoo.AutoConfig.from_pretrained(tmp_path).model_type == "llama"


@pytest.mark.parametrize("value", ["wide", -1, 2.5, [1], 10**30])
def test_sizes_that_cannot_be(value: Any, tmp_path: pathlib.Path) -> None:
    _folder("llama", tmp_path, hidden_size=value)
    with pytest.raises(FileFormatError):
        zoo.AutoConfig.from_pretrained(tmp_path)


def test_all_that_does_not_fit_is_listed(tmp_path: pathlib.Path) -> None:
    tensors = _folder("llama", tmp_path)
    del tensors["model.norm.weight"]
    tensors["model.layers.0.mlp.up_proj.weight"] = np.ones((3, 3), np.float32)
    tensors["model.extra"] = np.ones(2, np.float32)
    _write(tmp_path, tensors)
    with pytest.raises(FileFormatError) as error:
        zoo.AutoModelForCausalLM.from_pretrained(tmp_path)
    told = str(error.value)
    assert "model.norm.weight is missing" in told
    assert "[3, 3] does not fit" in told
    assert "model.extra [2] is used by no parameter" in told


def test_shards_with_an_index(tmp_path: pathlib.Path) -> None:
    _folder("llama", tmp_path)
    model: Any = zoo.AutoModelForCausalLM.from_pretrained(tmp_path)
    target = tmp_path / "shards"
    zoo.save_pretrained(model, target, shard_size=4000)
    assert len(list(target.glob("*.safetensors"))) > 2
    copy: Any = zoo.AutoModelForCausalLM.from_pretrained(target)
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(copy.state_dict()[name].numpy(), value.numpy())
    index = json.loads((target / "model.safetensors.index.json").read_text())
    index["weight_map"]["model.norm.weight"] = "../model.safetensors"
    (target / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(FileFormatError, match="names the file"):
        open_source(target)


def test_a_tied_output_layer_may_lie_in_the_file_if_it_is_equal(tmp_path: pathlib.Path) -> None:
    tensors = _folder("qwen2-tied", tmp_path)
    same = {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"]}
    _write(tmp_path, same)
    zoo.AutoModelForCausalLM.from_pretrained(tmp_path)
    _write(tmp_path, {**same, "lm_head.weight": same["lm_head.weight"] + 1})
    with pytest.raises(FileFormatError, match="should equal"):
        zoo.AutoModelForCausalLM.from_pretrained(tmp_path)
    only = {n: t for n, t in same.items() if n != "model.embed_tokens.weight"}
    _write(tmp_path, only)
    zoo.AutoModelForCausalLM.from_pretrained(tmp_path)


def test_types_of_parameters(tmp_path: pathlib.Path) -> None:
    _folder("llama", tmp_path)
    half: Any = zoo.AutoModelForCausalLM.from_pretrained(tmp_path, dtype="bfloat16")
    assert {p.dtype for p in half.parameters()} == {paddle.bfloat16}
    zoo.save_pretrained(half, tmp_path / "half")
    kept: Any = zoo.AutoModelForCausalLM.from_pretrained(tmp_path / "half", dtype="auto")
    assert {p.dtype for p in kept.parameters()} == {paddle.bfloat16}
    assert paddle.get_default_dtype() == "float32"


def test_a_new_head_must_be_asked_for(tmp_path: pathlib.Path) -> None:
    _folder("llama", tmp_path)
    with pytest.raises(FileFormatError, match=r"score\.weight is missing"):
        zoo.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    base: Any = zoo.AutoModel.from_pretrained(tmp_path)  # the head is left alone
    assert base(paddle.to_tensor([[1, 2]])).shape == [1, 2, 24]


def test_float32_weights_are_views_of_the_file(tmp_path: pathlib.Path) -> None:
    _folder("llama", tmp_path)
    source = open_source(tmp_path)
    array = source.tensors["model.embed_tokens.weight"].read()
    assert not array.flags.owndata
    assert not array.flags.writeable


def test_tasks_and_types_that_are_not_there(tmp_path: pathlib.Path) -> None:
    _folder("llama", tmp_path)
    with pytest.raises(InvalidArgument, match="masked_lm"):
        zoo.AutoModelForMaskedLM.from_pretrained(tmp_path)
    _folder("llama", tmp_path, model_type="quark")
    with pytest.raises(InvalidArgument, match="quark"):
        zoo.AutoConfig.from_pretrained(tmp_path)


@pytest.mark.parametrize(("kind", "base"), [("mixtral", 1e6), ("llama", 1e4), ("smollm3", 2e6)])
def test_a_config_that_names_no_rope_has_that_of_its_type(kind: str, base: float) -> None:
    assert zoo.AutoConfig.from_dict(tiny(kind)).rope.theta == base
