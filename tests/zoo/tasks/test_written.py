"""Summaries and translations: a batch gives what single texts give, and the folder's rules hold."""

from __future__ import annotations

import itertools
import json
import pathlib
from typing import Any

import pytest

from bireme.core.errors import BiremeError
from bireme.zoo.tasks import task
from tests.zoo import made_up


def _folder(path: pathlib.Path) -> pathlib.Path:
    import tokenizers
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    about, _ = made_up.read("bart-lm")
    made_up.folder("bart-lm", about, path)
    words = ["<s>", "<pad>", "</s>", "<unk>", *(f"w{i}" for i in range(4, 67))]
    inner = tokenizers.Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, "<unk>"))
    inner.pre_tokenizer = WhitespaceSplit()  # pyright: ignore
    inner.add_special_tokens(words[:4])
    inner.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text('{"model_max_length": 33}')
    said = {"num_beams": 2, "no_repeat_ngram_size": 2, "bad_words_ids": [[9]], "max_length": 12}
    (path / "generation_config.json").write_text(json.dumps(said))
    return path


@pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")
def test_batches_and_rules(tmp_path: pathlib.Path) -> None:
    write: Any = task("summarization", _folder(tmp_path))
    texts = ["w5 w6 w7 w8 w10", "w20", " ".join(f"w{i}" for i in range(10, 40))]
    found = write(texts)
    for text, written in zip(texts, found, strict=True):
        assert write(text) == written
        words = written.split()
        pairs = list(itertools.pairwise(words))
        assert len(set(pairs)) == len(pairs)
        assert "w9" not in words
        assert len(words) <= 11
    assert write(texts[0], num_beams=1, max_new_tokens=3).split()[:1]


def test_languages_begin_a_translation(tmp_path: pathlib.Path) -> None:
    translate: Any = task("translation", _folder(tmp_path))
    assert translate("w5 w6", to="w30").startswith("w30")
    with pytest.raises(BiremeError, match="no language 'xx'"):
        translate("w5", to="xx")
