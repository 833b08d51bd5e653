"""GGUF files: block formats, names, vocabularies, and files that lie."""

from __future__ import annotations

import hashlib
import pathlib
import struct
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import zoo
from bireme.core.errors import BiremeError, FileFormatError
from bireme.zoo.files import open_source
from bireme.zoo.files.gguf import read_gguf
from bireme.zoo.files.quants import FORMATS, unpack
from tests.zoo.make_gguf import gguf, tiny_llama

# SHA-256 of 64 random blocks as float32, by gguf 0.19.0's dequantize.
UNPACKED = {
    "Q4_0": "e1564afe7f4ddd37",
    "Q4_1": "75ee514f3403cce0",
    "Q5_0": "2ef4e03ec6b9b416",
    "Q5_1": "88bdf812cfc5dd22",
    "Q8_0": "1ffd146ed9a275bb",
    "Q2_K": "f543db8faf80846e",
    "Q3_K": "2195a3c033cd6cd9",
    "Q4_K": "cedf7e9ca547e696",
    "Q5_K": "7309031d782e09e0",
    "Q6_K": "ba967f6030e15284",
}


@pytest.mark.parametrize("code", [c for c, f in FORMATS.items() if f.blocks])
def test_blocks_unpack_to_what_the_reference_says(code: int) -> None:
    form = FORMATS[code]
    data = _random_blocks(form.size)
    found = unpack(form, data.reshape(-1), 64 * form.count)
    assert hashlib.sha256(found.tobytes()).hexdigest()[:16] == UNPACKED[form.name]


def _random_blocks(size: int) -> np.ndarray:
    """Blocks whose halves (the scales) are finite."""
    data = np.random.default_rng(size).integers(0, 256, (64, size), dtype=np.uint8)
    data[:, 1::2] &= 0xBF
    return data


def test_q4_1_by_hand() -> None:
    block = np.frombuffer(np.float16([0.5, 2.0]).tobytes() + bytes([0x21] * 16), np.uint8)
    found = unpack(FORMATS[3], block, 32)
    assert found[0] == 0.5 * 1 + 2  # low halves first
    assert found[16] == 0.5 * 2 + 2


def test_a_file_becomes_a_model_that_answers(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "tiny.gguf"
    tensors = tiny_llama(path)
    model, tokenizer = zoo.load(path)
    assert model.config.tied  # there is no output.weight
    weight = model.state_dict()["model.layers.0.mlp.up_proj.weight"].numpy()
    np.testing.assert_array_equal(weight, tensors["blk.0.ffn_up.weight"].T)
    assert tokenizer.encode("the the") == [31, 32]
    text = "".join(zoo.chat(model, tokenizer, "the", 5))
    assert text == zoo.generate(model, tokenizer, "<|user|>the", 5)[0]


def test_query_rows_lie_as_pairs_in_the_file(tmp_path: pathlib.Path) -> None:
    """llama.cpp turns neighbours, Hugging Face halves: rows are reordered, with the key's own
    count of heads for the key."""
    path = tmp_path / "tiny.gguf"
    tensors = tiny_llama(path)
    source = open_source(path)
    for part, heads in (("q", 4), ("k", 2)):
        theirs = tensors[f"blk.0.attn_{part}.weight"].reshape(heads, 4, 16)
        found = source.tensors[f"model.layers.0.self_attn.{part}_proj.weight"].read()
        np.testing.assert_array_equal(found.reshape(heads, 4, 16), theirs[:, [0, 2, 1, 3]])


def test_gemma_norms_are_stored_with_one_added(tmp_path: pathlib.Path) -> None:
    values = {
        "general.architecture": "gemma", "gemma.block_count": 0, "gemma.context_length": 8,
        "gemma.embedding_length": 4, "gemma.feed_forward_length": 4,
        "gemma.attention.head_count": 1, "gemma.attention.layer_norm_rms_epsilon": 1e-6,
    }  # fmt: skip
    scale = np.array([1, 2, 0.5, 1.5], np.float32)
    path = tmp_path / "g.gguf"
    tensors = {"token_embd.weight": np.ones((3, 4), np.float32), "output_norm.weight": scale}
    path.write_bytes(gguf(values, tensors))
    found = open_source(path).tensors["model.norm.weight"].read()
    np.testing.assert_array_equal(found, scale - 1)


def test_an_unknown_cut_of_texts_is_an_error(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "tiny.gguf"
    tiny_llama(path, **{"tokenizer.ggml.pre": "no-such-cut"})
    with pytest.raises(FileFormatError, match="no-such-cut"):
        zoo.AutoTokenizer.from_pretrained(path)


def test_an_unknown_tensor_is_named(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "f.gguf"
    values = {
        "general.architecture": "llama", "llama.block_count": 1, "llama.context_length": 8,
        "llama.embedding_length": 4, "llama.feed_forward_length": 4,
        "llama.attention.head_count": 1, "llama.attention.layer_norm_rms_epsilon": 1e-6,
    }  # fmt: skip
    tensor = np.ones((3, 4), np.float32)
    path.write_bytes(gguf(values, {"token_embd.weight": tensor, "blk.0.odd.weight": tensor}))
    with pytest.raises(FileFormatError, match=r"blk\.0\.odd"):
        open_source(path)


def _cases(whole: bytes) -> dict[str, bytes]:
    huge = struct.pack("<Q", 2**63 - 1)
    return {
        "cut": whole[: len(whole) // 2],
        "empty": b"GGUF",
        "version": whole[:4] + struct.pack("<I", 99) + whole[8:],
        "tensors": whole[:8] + huge + whole[16:],
        "values": whole[:16] + huge + whole[24:],
        "name": whole[:24] + huge + whole[32:],
    }


@pytest.mark.parametrize("case", list(_cases(b"\0" * 64)))
def test_lengths_that_lie_are_found(case: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "tiny.gguf"
    tiny_llama(path)
    path.write_bytes(_cases(path.read_bytes())[case])
    with pytest.raises(FileFormatError, match="gguf"):
        read_gguf(str(path))


def test_mutated_files_give_errors_and_nothing_else(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "tiny.gguf"
    tiny_llama(path)
    whole = path.read_bytes()
    head = len(whole) - 6000
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(300):
        data = bytearray(whole)
        for at in rng.integers(0, head, rng.integers(1, 4)):
            data[at] = rng.integers(0, 256)
        path.write_bytes(data)
        try:
            source = open_source(path)
            for tensor in source.tensors.values():
                tensor.read()
            zoo.AutoConfig.from_dict(source.config)
        except BiremeError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize("kind", ["generate", "stream"])
def test_a_batch_gives_what_each_prompt_gives_alone(kind: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "tiny.gguf"
    tiny_llama(path)
    model, tokenizer = zoo.load(path)
    rng = np.random.default_rng(2)
    prompts = ["".join(rng.choice(list("abcdefgh "), n)) for n in (1, 2, 3, 9, 17, 30, 40)]
    options: dict[str, Any] = {"stop": ["zz"]} if kind == "stream" else {}
    together = zoo.generate(model, tokenizer, prompts, 12, **options)
    alone = [zoo.generate(model, tokenizer, p, 12, **options)[0] for p in prompts]
    assert together == alone


def test_padding_on_either_side_changes_no_scores(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "tiny.gguf"
    tiny_llama(path)
    model, tokenizer = zoo.load(path)
    ids = np.array([tokenizer.encode("some words")], np.int64)
    alone = model(paddle.to_tensor(ids)).numpy()
    for before, after in ((0, 3), (3, 0)):
        padded = np.pad(ids, ((0, 0), (before, after)))
        mask = np.pad(np.ones_like(ids), ((0, 0), (before, after)))
        found = model(paddle.to_tensor(padded), paddle.to_tensor(mask)).numpy()
        kept = found[:, before : before + ids.shape[1]]
        np.testing.assert_allclose(kept, alone, atol=1e-5)
