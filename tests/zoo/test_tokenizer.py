"""Tokenizers: bytes that make a character together, special tokens, folders, and batches."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest
from tokenizers import Tokenizer as Inner
from tokenizers import decoders, models, pre_tokenizers

from bireme.core.errors import FileFormatError
from bireme.zoo.tokenizer import StreamDecoder, Tokenizer, folder_tokenizer
from bireme.zoo.tokenizer_gguf import _merges


def _bytes_tokenizer(**settings: object) -> Tokenizer:
    """A token for every byte."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Inner(models.BPE({c: i for i, c in enumerate(letters)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<end>"])
    return Tokenizer(inner, {"eos_token": "<end>", "pad_token": "<end>", **settings})


TEXTS = ["plain", "naïve façade", "你好，世界", "👩‍👩‍👧‍👦🎉", "a\n\n\tb  ", "\u200d\u0301e\u0301"]


@pytest.mark.parametrize("text", TEXTS)
def test_streamed_pieces_join_to_the_text_and_split_no_character(text: str) -> None:
    tokenizer = _bytes_tokenizer()
    stream = StreamDecoder(tokenizer)
    pieces = [stream.put(i) for i in tokenizer.encode(text)]
    assert "".join([*pieces, stream.end()]) == text
    assert not any("\ufffd" in p for p in pieces)


def test_a_stream_that_ends_inside_a_character_says_so() -> None:
    tokenizer = _bytes_tokenizer()
    stream = StreamDecoder(tokenizer)
    ids = tokenizer.encode("aé")[:-1]
    assert "".join(stream.put(i) for i in ids) + stream.end() == tokenizer.decode(ids) == "a\ufffd"


def test_special_tokens_inside_a_text_are_found_and_left_out() -> None:
    tokenizer = _bytes_tokenizer()
    ids = tokenizer.encode("a<end>b")
    assert ids[1] == tokenizer.eos_token_id == tokenizer.end_ids[0]
    assert tokenizer.decode(ids) == "ab"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "a<end>b"


def test_batches_are_filled_on_the_right_and_cut() -> None:
    tokenizer = _bytes_tokenizer()
    found = tokenizer(["abc", "a"])
    np.testing.assert_array_equal(found["attention_mask"], [[1, 1, 1], [1, 0, 0]])
    assert found["input_ids"][1, 1] == tokenizer.pad_token_id
    assert tokenizer(["abcdef"], max_length=4)["input_ids"].shape == (1, 4)
    assert tokenizer(["abcdef"])["input_ids"].shape == (1, 6)  # cutting ends with the call


def test_a_saved_tokenizer_is_the_same(tmp_path: pathlib.Path) -> None:
    template = "{{ messages[0].content }}{{ eos_token }}"
    tokenizer = _bytes_tokenizer(chat_template=template, model_max_length=77)
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 5]}))
    copy = folder_tokenizer(str(tmp_path), {})
    assert copy.encode("né<end>") == tokenizer.encode("né<end>")
    assert copy.end_ids == (3, 5, tokenizer.eos_token_id)  # a list, and from another file
    assert copy.max_length == 77
    ask = [{"role": "user", "content": "x"}]
    assert copy.apply_chat_template(ask) == "x<end>"
    assert copy.encode_chat(ask) == tokenizer.encode("x<end>", add_special_tokens=False)


def test_damaged_tokenizers_are_file_errors(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileFormatError, match=r"tokenizer\.json"):
        folder_tokenizer(str(tmp_path), {})
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "BPE"')
    with pytest.raises(FileFormatError, match="damaged"):
        folder_tokenizer(str(tmp_path), {})


def test_merges_follow_the_scores() -> None:
    tokens = ["a", "b", "c", "ab", "abc", "bc"]
    scores = [-9.0, -9.0, -9.0, -2.0, -1.0, -3.0]
    found = _merges(tokens, scores, {t: i for i, t in enumerate(tokens)})
    assert sorted(found[:2]) == [("a", "bc"), ("ab", "c")]
    assert found[2:] == [("a", "b"), ("b", "c")]
