"""Tasks that give labels: classes of texts and of tokens, answers in texts, masked words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.zoo.tasks.running import Compiled, run_rows
from bireme.zoo.tasks.texts import TextModel, listed

# What a task finds in one text.
Found = dict[str, Any] | list[dict[str, Any]]


def softmax(scores: np.ndarray) -> np.ndarray:
    """Probabilities of scores, along the last axis."""
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class _Task:
    """A task on texts: its model, compiled."""

    kind = ""

    def __init__(self, model: str | os.PathLike[str], *, max_length: int | None = None):
        self.text = TextModel(model, self.kind, max_length)
        self._run = Compiled(
            self.text.model, lambda *arguments: self.text.call(self.text.model, arguments)
        )

    def _scores(self, encodings: Sequence[Any]) -> list[list[np.ndarray]]:
        columns, fill = self.text.columns(encodings)
        return run_rows(self._run, columns, fill, self.text.longest)


class Classify(_Task):
    """Texts in classes: `classify(texts)` gives {"label", "score"} of each, or with `top` the
    best ones."""

    kind = "classifier"

    def __call__(self, texts: str | Sequence[str], top: int | None = None) -> Found | list[Found]:
        given, single = listed(texts, "classify")
        labels = self.text.config.labels
        several = self.text.config.raw.get("problem_type") == "multi_label_classification"
        found: list[Found] = []
        for (scores,) in self._scores(self.text.encoded(given)):
            sigmoid = several or len(labels) == 1
            chances = 1 / (1 + np.exp(-scores)) if sigmoid else softmax(scores)
            order = np.argsort(-chances, kind="stable")[: top or 1]
            rows = [{"label": labels[i], "score": float(chances[i])} for i in order]
            found.append(rows if top else rows[0])
        return found[0] if single else found


class ZeroShot(_Task):
    """Texts in classes that are given with them, by a model that was trained on inference."""

    kind = "classifier"

    def __init__(self, model: str | os.PathLike[str], *, max_length: int | None = None):
        super().__init__(model, max_length=max_length)
        names = [label.lower() for label in self.text.config.labels]
        found = [i for i, n in enumerate(names) if n.startswith("entail")]
        against = [i for i, n in enumerate(names) if n.startswith("contra")]
        if len(found) != 1:
            raise InvalidArgument(
                "[task] zero_shot needs a model with a class 'entailment'. This one has: "
                f"{', '.join(names)}"
            )
        self.entail, self.contradict = found[0], (against or [None])[0]

    def __call__(
        self,
        texts: str | Sequence[str],
        labels: Sequence[str],
        template: str = "This example is {}.",
        several: bool = False,
    ) -> Found | list[Found]:
        """{"labels", "scores"} of each text, the best first. With `several` each label is judged
        on its own."""
        given, single = listed(texts, "zero_shot")
        pairs = [(t, template.format(label)) for t in given for label in labels]
        scores = np.stack([r[0] for r in self._scores(self.text.encoded(pairs))])
        scores = scores.reshape(len(given), len(labels), -1)
        if several or len(labels) == 1:
            other = self.contradict if self.contradict is not None else 1 - self.entail
            chances = softmax(scores[:, :, [other, self.entail]])[:, :, 1]
        else:
            chances = softmax(scores[:, :, self.entail])
        found: list[Found] = []
        for row in chances:
            order = np.argsort(-row, kind="stable")
            found.append(
                {"labels": [labels[i] for i in order], "scores": [float(row[i]) for i in order]}
            )
        return found[0] if single else found


class Entities(_Task):
    """Names in texts: `find(texts)` gives [{"label", "text", "start", "end", "score"}] of each.

    Tokens of labels B-x and I-x that follow each other are one; a token inside a word counts
    with its word's first.
    """

    kind = "token_classifier"

    def __call__(self, texts: str | Sequence[str]) -> Found | list[Found]:
        given, single = listed(texts, "ner")
        encodings = self.text.encoded(given)
        labels = self.text.config.labels
        found: list[Found] = []
        for text, encoding, (scores,) in zip(
            given, encodings, self._scores(encodings), strict=True
        ):
            chances = softmax(scores[: len(encoding.ids)])
            found.append(_spans(text, encoding, chances, labels))
        return found[0] if single else found


def _spans(text: str, encoding: Any, chances: np.ndarray, labels: Sequence[str]) -> list[Any]:
    spans: list[dict[str, Any]] = []
    scores: list[list[float]] = []
    last_word, open_ = None, False
    words = zip(encoding.word_ids, encoding.offsets, chances, strict=True)
    for word, (start, end), chance in words:
        if word is None:
            open_ = False
            continue
        if word == last_word:
            if open_:
                spans[-1]["end"] = end
            continue
        last_word = word
        best = int(chance.argmax())
        prefix, _, name = labels[best].rpartition("-")
        if labels[best] == "O":
            open_ = False
        elif open_ and prefix != "B" and spans[-1]["label"] == name:
            spans[-1]["end"] = end
            scores[-1].append(float(chance[best]))
        else:
            spans.append({"label": name, "start": start, "end": end})
            scores.append([float(chance[best])])
            open_ = True
    return [
        {**s, "text": text[s["start"] : s["end"]], "score": float(np.mean(c))}
        for s, c in zip(spans, scores, strict=True)
    ]


class Answer(_Task):
    """Answers that stand in a text: `answer(question, text)` gives {"text", "start", "end",
    "score"}. A long text is read in parts that overlap."""

    kind = "question_answering"

    def __call__(
        self, question: str, text: str, longest: int = 30, overlap: int = 128
    ) -> dict[str, Any]:
        tokenizer, limit = self.text.tokenizer, min(self.text.longest, 384)
        room = limit - len(tokenizer.encode(question).ids) - 8
        if room < 16:
            raise InvalidArgument("[task] the question leaves no room for the text: shorten it")
        stride = min(overlap, room // 2)
        tokenizer.enable_truncation(limit, stride=stride, strategy="only_second")
        try:
            first = tokenizer.encode(question, text)
        finally:
            tokenizer.enable_truncation(self.text.longest)
        parts = [first, *first.overflowing]
        best: tuple[float, int, int] = (-1.0, 0, 0)
        for part, (start, end) in zip(parts, self._scores(parts), strict=True):
            found = _span(part, start, end, longest)
            best = max(best, found)
        return {"text": text[best[1] : best[2]], "start": best[1], "end": best[2], "score": best[0]}


def _span(part: Any, start: np.ndarray, end: np.ndarray, longest: int) -> tuple[float, int, int]:
    count = len(part.ids)
    inside = np.array([s == 1 for s in part.sequence_ids])
    ends = []
    for scores in (start[:count], end[:count]):
        kept = inside.copy()
        kept[0] = True  # the first token stands for "there is no answer"
        chances = softmax(np.where(kept, scores, -np.inf))
        ends.append(np.where(inside, chances, 0.0))
    both = np.triu(ends[0][:, None] * ends[1][None, :])
    both = both - np.triu(both, longest)
    i, j = np.unravel_index(int(both.argmax()), both.shape)
    return float(both[i, j]), part.offsets[i][0], part.offsets[j][1]


class FillMask(_Task):
    """Words for masked places: `fill(texts, top)` gives [{"token", "id", "score", "text"}] for the
    mask of each text."""

    kind = "masked_lm"

    def __call__(self, texts: str | Sequence[str], top: int = 5) -> Found | list[Found]:
        given, single = listed(texts, "fill_mask")
        mask = self.text.token("mask")
        encodings = self.text.encoded(given)
        found: list[Found] = []
        for encoding, (scores,) in zip(encodings, self._scores(encodings), strict=True):
            places = [i for i, t in enumerate(encoding.ids) if t == mask]
            if mask is None or len(places) != 1:
                raise InvalidArgument(
                    f"[task] fill_mask needs one {self.text.settings.get('mask_token')!r} in each "
                    f"text. Received: {len(places)} of them"
                )
            chances = softmax(scores[places[0]])
            order = np.argsort(-chances, kind="stable")[:top]
            found.append([self._word(encoding.ids, places[0], int(i), chances) for i in order])
        return found[0] if single else found

    def _word(self, ids: list[int], place: int, token: int, chances: np.ndarray) -> dict[str, Any]:
        tokenizer = self.text.tokenizer
        whole = tokenizer.decode([*ids[:place], token, *ids[place + 1 :]])
        word = tokenizer.decode([token], skip_special_tokens=False).strip()
        return {"token": word, "id": token, "score": float(chances[token]), "text": whole}
