"""GGUF files that are written: blocks, models, vocabularies, and what is refused."""

from __future__ import annotations

import hashlib
import pathlib
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import cli, zoo
from bireme.core.errors import InvalidArgument
from bireme.zoo.files import open_source
from bireme.zoo.files.gguf import read_gguf
from bireme.zoo.files.quants import FORMATS, pack, unpack
from bireme.zoo.loading import load_model, make_model, read_config
from tests.zoo.make_gguf import tiny_llama
from tests.zoo.test_folders import _part, _unpacked

# SHA-256 of what gguf 0.19.0's quantize makes of `_numbers()`.
PACKED = {"Q8_0": "76678acddda7e3d1", "Q4_0": "37a029699e46fbac"}
_CODES = {form.name: code for code, form in FORMATS.items()}


def _numbers() -> np.ndarray:
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal((64, 256)) * rng.choice([1e-6, 0.01, 1, 100], (64, 1))
    numbers[3], numbers[5] = 0, -numbers[5]
    numbers[6] = np.round(numbers[6])
    return numbers.astype(np.float32)


@pytest.mark.parametrize("name", PACKED)
def test_blocks_are_those_of_the_reference(name: str) -> None:
    data = pack(FORMATS[_CODES[name]], _numbers())
    assert hashlib.sha256(data.tobytes()).hexdigest()[:16] == PACKED[name]


@pytest.mark.parametrize(("name", "steps"), [("Q8_0", 254), ("Q4_0", 16)])
def test_numbers_come_back_within_a_step(name: str, steps: int) -> None:
    form, numbers = FORMATS[_CODES[name]], _numbers()
    back = unpack(form, pack(form, numbers), numbers.size).reshape(-1, 32)
    blocks = numbers.reshape(-1, 32)
    largest = np.abs(blocks).max(1, keepdims=True)
    # A step of a block, and the rounding of its scale to float16 (whose least step is 6e-8) times
    # its numbers.
    allowed = largest * (2 / steps + 0.001) + 128 * 6e-8
    assert (np.abs(back - blocks) <= allowed).all()


@pytest.mark.parametrize(
    "name",
    [
        "ernie4_5", "gemma", "granite", "internlm3-bias", "llama", "llama-bias", "mistral-wide",
        "mixtral", "olmo2", "phi3", "phi3-long", "qwen2-tied", "qwen2_moe", "qwen3", "seed_oss",
        "stablelm", "stablelm-norms",
    ],
)  # fmt: skip
def test_what_is_written_gives_the_same_scores(name: str, tmp_path: pathlib.Path) -> None:
    given = _part(_unpacked(name, tmp_path), "in.")
    model = load_model(open_source(tmp_path))
    zoo.save_gguf(model, tmp_path / "m.gguf", dtype="F32")
    again = load_model(open_source(tmp_path / "m.gguf"))
    inputs = {k: paddle.to_tensor(v) for k, v in given.items()}
    np.testing.assert_allclose(again(**inputs).numpy(), model(**inputs).numpy(), rtol=0, atol=1e-5)


_SMALL = {
    "vocab_size": 37, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "num_hidden_layers": 2,
}  # fmt: skip
_FITTING: dict[str, dict[str, Any]] = {
    "gemma2": {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8},
    "gemma3_text": {
        "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8, "num_hidden_layers": 7,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    "smollm3": {"num_hidden_layers": 5},
    "qwen3_moe": {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2,
                  "moe_intermediate_size": 32, "norm_topk_prob": True},
    "olmoe": {"num_key_value_heads": 4, "num_experts": 4, "num_experts_per_tok": 2},
    "llama": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                               "original_max_position_embeddings": 16}},
}  # fmt: skip


@pytest.mark.parametrize("kind", _FITTING)
@pytest.mark.parametrize("dtype", ["F32", "Q8_0"])
def test_configs_that_gguf_can_say(kind: str, dtype: str, tmp_path: pathlib.Path) -> None:
    model = make_model(read_config({**_SMALL, "model_type": kind, **_FITTING[kind]}))
    zoo.save_gguf(model, tmp_path / "m.gguf", dtype=dtype)
    again = load_model(open_source(tmp_path / "m.gguf"))
    ids = paddle.to_tensor(np.random.default_rng(0).integers(0, 37, (2, 20)))
    want, got = model(ids).numpy(), again(ids).numpy()
    allowed = 1e-5 if dtype == "F32" else 0.1 * np.abs(want).max()
    np.testing.assert_allclose(got, want, rtol=0, atol=allowed)


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("llama-dynamic", "rope"), ("llama-yarn", "act"), ("qwen2_moe-mixed", "sparse"),
        ("gemma-bias", "qkv_bias"), ("smollm3", "turned"), ("gemma2-nocap", "attention_cap"),
        ("helium", "no place"), ("llama-classifier", "no place"), ("olmoe", "heads"),
    ],
)  # fmt: skip
def test_what_gguf_cannot_say_is_named(name: str, lost: str, tmp_path: pathlib.Path) -> None:
    _unpacked(name, tmp_path)
    model = load_model(open_source(tmp_path))
    with pytest.raises(InvalidArgument, match=lost):
        zoo.save_gguf(model, tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()


def test_matrices_are_packed_and_vectors_are_not(tmp_path: pathlib.Path) -> None:
    model = make_model(read_config({**_SMALL, "model_type": "llama", "hidden_size": 64}))
    zoo.save_gguf(model, tmp_path / "m.gguf", dtype="Q4_0")
    file = read_gguf(str(tmp_path / "m.gguf"))
    forms = {n: t.blocks.form.name for n, t in file.tensors.items() if t.blocks}
    assert forms["blk.0.attn_q.weight"] == forms["blk.1.ffn_down.weight"] == "Q4_0"
    assert forms["token_embd.weight"] == forms["output.weight"] == "Q8_0"
    assert "output_norm.weight" not in forms
    assert file.values["general.file_type"] == 2
    kept = load_model(open_source(tmp_path / "m.gguf"), dtype="keep")
    plain = load_model(open_source(tmp_path / "m.gguf"))
    ids = paddle.to_tensor([[1, 2, 3]])
    difference = np.abs(kept(ids).numpy() - plain(ids).numpy()).max()
    assert difference < 0.05 * np.abs(plain(ids).numpy()).max()


def test_numbers_that_halves_cannot_hold_are_refused(tmp_path: pathlib.Path) -> None:
    model: Any = make_model(read_config({**_SMALL, "model_type": "llama"}))
    weight = model.lm_head.weight
    weight.set_value(weight * 0 + 1e5)
    with pytest.raises(InvalidArgument, match="F32 or BF16"):
        zoo.save_gguf(model, tmp_path / "m.gguf")
    zoo.save_gguf(model, tmp_path / "m.gguf", dtype="bf16")
    with pytest.raises(InvalidArgument, match="Q5_K"):
        zoo.save_gguf(model, tmp_path / "m.gguf", dtype="Q5_K")


def test_vocabulary_and_template_are_written(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_llama(tmp_path / "tiny.gguf", **{"tokenizer.ggml.add_bos_token": True})
    assert cli.main(["convert", str(tmp_path / "tiny.gguf"), str(tmp_path / "out.gguf")]) == 0
    assert "wrote" in capsys.readouterr().out
    model, tokenizer = zoo.load(tmp_path / "tiny.gguf")
    again, other = zoo.load(tmp_path / "out.gguf")
    text = "the <|user|> the bad the"
    assert other.encode(text) == tokenizer.encode(text)
    assert other.encode(text)[0] == 1
    assert other.chat_template == tokenizer.chat_template
    assert other.end_ids == tokenizer.end_ids
    assert zoo.generate(again, other, "the ", 8) == zoo.generate(model, tokenizer, "the ", 8)


def _pieces(prefix: bool) -> Any:
    """A tokenizer as Llama 2 and Gemma have it."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    marks = ["<unk>", "<s>", "</s>", *[f"<0x{i:02X}>" for i in range(256)]]
    tokens = [*marks, *"▁abcdefgh", "ab", "▁ab", "abc", "▁abc", "cd", "▁a"]
    merges = [("a", "b"), ("▁", "a"), ("▁", "ab"), ("c", "d"), ("ab", "c"), ("▁ab", "c")]
    vocabulary = {t: i for i, t in enumerate(tokens)}
    inner = Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    start = [normalizers.Prepend("▁")] if prefix else []
    inner.normalizer = normalizers.Sequence([*start, normalizers.Replace(" ", "▁")])
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    inner.add_special_tokens(["<unk>", "<s>", "</s>"])
    settings = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return zoo.Tokenizer(inner, settings), len(tokens)


@pytest.mark.parametrize("prefix", [True, False])
def test_a_vocabulary_of_pieces_is_written(prefix: bool, tmp_path: pathlib.Path) -> None:
    tokenizer, count = _pieces(prefix)
    config = {**_SMALL, "model_type": "llama", "vocab_size": count + 3}
    zoo.save_gguf(make_model(read_config(config)), tmp_path / "m.gguf", tokenizer)
    again = zoo.AutoTokenizer.from_pretrained(tmp_path / "m.gguf")
    rng = np.random.default_rng(0)
    for _ in range(50):
        text = "".join(rng.choice(list("aabbccddefgh é人"), 12))
        assert again.encode(text) == tokenizer.encode(text)


def _byte_level(cut: Any) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({t: i for i, t in enumerate([*alphabet, "ab"])}, [("a", "b")]))
    inner.pre_tokenizer = cut
    inner.decoder = decoders.ByteLevel()
    return zoo.Tokenizer(inner, {})


def test_cuts_of_tokenizer_json_are_recognised(tmp_path: pathlib.Path) -> None:
    from tokenizers import pre_tokenizers as cuts

    model = make_model(read_config({**_SMALL, "model_type": "llama", "vocab_size": 257}))
    plain = cuts.ByteLevel(add_prefix_space=False)
    for cut, name in (
        (plain, "gpt-2"),
        (cuts.Sequence([cuts.Digits(individual_digits=True), plain]), "smollm"),
    ):
        zoo.save_gguf(model, tmp_path / "m.gguf", _byte_level(cut))
        assert read_gguf(str(tmp_path / "m.gguf")).values["tokenizer.ggml.pre"] == name
    for cut in (
        cuts.Sequence([cuts.Whitespace(), plain]),
        cuts.ByteLevel(add_prefix_space=True),
    ):
        with pytest.raises(InvalidArgument, match="no name"):
            zoo.save_gguf(model, tmp_path / "m.gguf", _byte_level(cut))
    small = make_model(read_config({**_SMALL, "model_type": "llama"}))
    with pytest.raises(InvalidArgument, match="257 tokens and the model 37"):
        zoo.save_gguf(small, tmp_path / "m.gguf", _byte_level(plain))
