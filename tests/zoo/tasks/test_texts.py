"""Tasks on texts: few programs, and padding that changes nothing."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme.core.errors import BiremeError
from bireme.profiler import count_compiles
from bireme.zoo.loading import read_config
from bireme.zoo.registry import class_of
from bireme.zoo.saving import save_pretrained
from bireme.zoo.tasks import task
from bireme.zoo.tasks.running import batches, rows_of, size_of

_WORDS = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "cat", "dog", "sat", "on", "mat",
    "in", "Rome", "Anna", "is", "good", "bad",
]  # fmt: skip
_ARCHITECTURES = {
    "base": "BertModel",
    "classifier": "BertForSequenceClassification",
    "token_classifier": "BertForTokenClassification",
    "question_answering": "BertForQuestionAnswering",
    "masked_lm": "BertForMaskedLM",
}


def _folder(path: pathlib.Path, kind: str, labels: list[str] | None = None) -> pathlib.Path:
    """A tiny BERT with a tokenizer of words."""
    import tokenizers
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing

    raw: dict[str, Any] = {
        "model_type": "bert",
        "vocab_size": len(_WORDS),
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 48,
        "pad_token_id": 0,
        "architectures": [_ARCHITECTURES[kind]],
    }
    if labels:
        raw["id2label"] = {str(i): label for i, label in enumerate(labels)}
    paddle.seed(7)
    config = read_config(raw)
    model = class_of("bert", kind)(config)
    model.config, model.task = config, kind
    for p in model.parameters():
        p.set_value(paddle.randn(p.shape) * 0.6)
    save_pretrained(model, path)
    inner = tokenizers.Tokenizer(WordLevel({w: i for i, w in enumerate(_WORDS)}, "[UNK]"))
    inner.pre_tokenizer = Whitespace()  # pyright: ignore
    inner.add_special_tokens(_WORDS[:5])
    inner.post_processor = TemplateProcessing(  # pyright: ignore
        "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)]
    )
    inner.enable_padding(length=40)  # which a task must not follow
    inner.save(str(path / "tokenizer.json"))
    settings = {"mask_token": "[MASK]", "pad_token": "[PAD]", "model_max_length": 48}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


def _texts(count: int) -> list[str]:
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(_WORDS[5:], rng.integers(1, 44))) for _ in range(count)]


def test_batches_use_few_shapes_and_every_input_once() -> None:
    lengths = np.random.default_rng(0).integers(1, 600, 1000).tolist()
    made = list(batches(lengths, 512))
    assert sorted(i for chosen, _, _ in made for i in chosen) == list(range(1000))
    assert len({(rows, size) for _, rows, size in made}) <= 12
    for chosen, rows, size in made:
        assert len(chosen) <= rows
        assert rows in (rows_of(size), max(rows_of(size) // 4, 1), 1)
        assert all(min(lengths[i], 512) <= size for i in chosen)
    assert size_of(47, 48) == 48
    assert size_of(40, 44) == 44


def test_embeddings_of_a_batch_are_those_of_single_texts(tmp_path: pathlib.Path) -> None:
    _folder(tmp_path, "base")
    modules = [
        {"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    embed: Any = task("embedding", tmp_path)
    texts = _texts(50)
    found = embed(texts)
    assert found.shape == (50, 16)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    for i in (0, 7, 49):
        np.testing.assert_allclose(embed(texts[i]), found[i], atol=1e-5)
    # By hand, without padding and programs.
    ids = embed.text.tokenizer.encode(texts[3]).ids
    vector = embed.text.model(paddle.to_tensor([ids])).numpy()[0].mean(0)
    np.testing.assert_allclose(found[3], vector / np.linalg.norm(vector), atol=1e-5)
    with count_compiles() as compiled:
        embed(texts[::-1])
    assert compiled == [0]
    np.testing.assert_allclose(embed.similarity(texts[:2], texts[:3])[0, 0], 1, atol=1e-5)


@pytest.mark.parametrize("how", ["cls_token", "max_tokens", "mean_sqrt_len_tokens", "lasttoken"])
def test_pooling(how: str, tmp_path: pathlib.Path) -> None:
    _folder(tmp_path, "base")
    modules = [{"path": "", "type": "m.Transformer"}, {"path": "p", "type": "m.Pooling"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "config.json").write_text(json.dumps({f"pooling_mode_{how}": True}))
    embed: Any = task("feature-extraction", tmp_path)
    found = embed(["the cat sat", "a dog"])
    ids = embed.text.tokenizer.encode("a dog").ids
    hidden = embed.text.model(paddle.to_tensor([ids])).numpy()[0]
    wanted = {
        "cls_token": hidden[0],
        "max_tokens": hidden.max(0),
        "mean_sqrt_len_tokens": hidden.sum(0) / np.sqrt(len(ids)),
        "lasttoken": hidden[-1],
    }[how]
    np.testing.assert_allclose(found[1], wanted, atol=1e-5)


def test_other_weights_give_other_vectors(tmp_path: pathlib.Path) -> None:
    embed: Any = task("embedding", _folder(tmp_path, "base"))
    before = embed("the cat")
    for p in embed.text.model.parameters():
        p.set_value(p * 0.5)
    assert np.abs(embed("the cat") - before).max() > 1e-3


def test_tokens_are_counted_as_they_are_read(tmp_path: pathlib.Path) -> None:
    embed: Any = task("embedding", _folder(tmp_path, "base"), max_length=5)
    short, long = embed.counts(["cat", "the cat " * 20])
    assert 0 < short < long == 5


def test_classes(tmp_path: pathlib.Path) -> None:
    classify: Any = task("sentiment-analysis", _folder(tmp_path, "classifier", ["good", "bad"]))
    texts = _texts(9)
    found = classify(texts)
    ids = classify.text.tokenizer.encode(texts[4]).ids
    scores = classify.text.model(paddle.to_tensor([ids])).numpy()[0]
    chances = np.exp(scores) / np.exp(scores).sum()
    assert found[4]["label"] == ["good", "bad"][int(scores.argmax())]
    assert found[4]["score"] == pytest.approx(chances.max(), abs=1e-5)
    both = classify(texts[4], top=2)
    assert sum(r["score"] for r in both) == pytest.approx(1, abs=1e-6)


def test_zero_shot_compares_entailments(tmp_path: pathlib.Path) -> None:
    names = ["CONTRADICTION", "NEUTRAL", "ENTAILMENT"]
    judge: Any = task("zero-shot", _folder(tmp_path, "classifier", names))
    found = judge("the cat sat", ["cat", "dog", "mat"])
    assert sorted(found["labels"]) == ["cat", "dog", "mat"]
    assert sum(found["scores"]) == pytest.approx(1, abs=1e-6)
    alone = judge("the cat sat", ["cat", "dog"], several=True)
    assert all(0 < s < 1 for s in alone["scores"])


def test_rerank_sorts(tmp_path: pathlib.Path) -> None:
    rank: Any = task("rerank", _folder(tmp_path, "classifier", ["score"]))
    found = rank("cat", ["the mat", "a cat sat", "dog"])
    scores = [r["score"] for r in found]
    assert scores == sorted(scores, reverse=True)
    assert {r["index"] for r in found} == {0, 1, 2}


def test_names_are_joined(tmp_path: pathlib.Path) -> None:
    find: Any = task("ner", _folder(tmp_path, "token_classifier", ["O", "B-PER", "I-PER", "B-LOC"]))
    text = "Anna sat in Rome"
    for span in find(text):
        assert text[span["start"] : span["end"]] == span["text"]
        assert span["label"] in ("PER", "LOC")


def test_answers_stand_in_the_text(tmp_path: pathlib.Path) -> None:
    answer: Any = task("qa", _folder(tmp_path, "question_answering"))
    text = " ".join(["the cat sat on the mat"] * 12)  # longer than the model's positions
    found = answer("the cat", text)
    assert text[found["start"] : found["end"]] == found["text"]
    assert found["text"]


def test_masked_words(tmp_path: pathlib.Path) -> None:
    fill: Any = task("fill-mask", _folder(tmp_path, "masked_lm"))
    found = fill("the [MASK] sat", top=3)
    assert len(found) == 3
    assert found[0]["score"] >= found[1]["score"]
    with pytest.raises(BiremeError, match="one"):
        fill("the cat sat")


def test_errors_say_what_to_write(tmp_path: pathlib.Path) -> None:
    with pytest.raises(BiremeError, match="no task 'embeding'"):
        task("embeding", tmp_path)
    _folder(tmp_path, "base")
    (tmp_path / "modules.json").write_text('[{"path": "../x", "type": "m.Pooling"}]')
    with pytest.raises(BiremeError, match="outside"):
        task("embedding", tmp_path)
