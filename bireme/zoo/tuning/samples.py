"""Samples of texts, prompts with answers and chats as tokens, and rows that a step trains on.

A target is the token that should follow, or `NONE` where nothing is learned: prompts, and all that
others than the assistant say in chats.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.io.foreign import open_regular
from bireme.zoo.tokenizer import Tokenizer

NONE = -100
_MOST = 1 << 30  # bytes of a line

# A text, or one of {"text"}, {"prompt", "completion"}, {"messages"}, {"input_ids", "labels"}.
Sample = str | Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Tokens:
    """One sample: its tokens, and which of them are learned."""

    ids: np.ndarray
    learned: np.ndarray  # bool; the first token has nothing before it, so it is never learned

    def __len__(self) -> int:
        return len(self.ids)


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows of one size: tokens and targets [rows, tokens], and of packed rows the places of the
    tokens in their samples and the samples' numbers."""

    ids: np.ndarray
    targets: np.ndarray
    places: np.ndarray | None = None
    samples: np.ndarray | None = None

    @property
    def count(self) -> int:
        """How many tokens are learned."""
        return int((self.targets != NONE).sum())


def read_samples(path: str | os.PathLike[str]) -> list[Sample]:
    """The samples of a file: a JSON object or string in each line of .jsonl, else a text in each
    paragraph (lines between empty ones)."""
    name = os.fspath(path)
    with open_regular(name, "finetune") as file:
        try:
            text = str(file.read(), "utf-8")
        except UnicodeDecodeError as e:
            raise FileFormatError(f"[finetune] {name!r} is no text in UTF-8: {e}") from e
    if not name.endswith((".jsonl", ".json")):
        parts = text.replace("\r\n", "\n").split("\n\n")
        return [p.strip("\n") for p in parts if p.strip()]
    found: list[Sample] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as e:
            raise FileFormatError(f"[finetune] line {number} of {name!r} is no JSON: {e}") from e
        if not isinstance(value, str | dict):
            raise FileFormatError(
                f"[finetune] line {number} of {name!r} is neither a string nor an object"
            )
        found.append(value)
    return found


def tokens_of(sample: Sample, tokenizer: Tokenizer) -> Tokens:
    """The tokens of a sample. Texts and completions get the model's end token."""
    if isinstance(sample, str):
        return continued(tokenizer, "", sample)
    if not isinstance(sample, Mapping):
        raise _unknown(sample)
    keys = set(sample)
    if keys == {"text"}:
        return continued(tokenizer, "", _string(sample, "text"))
    if keys == {"prompt", "completion"}:
        return continued(tokenizer, _string(sample, "prompt"), _string(sample, "completion"))
    if keys == {"messages"}:
        return _chat(tokenizer, sample["messages"])
    if keys == {"input_ids", "labels"}:
        return _given(sample)
    raise _unknown(sample)


def _unknown(sample: object) -> InvalidArgument:
    had = sorted(sample) if isinstance(sample, Mapping) else type(sample).__name__
    return InvalidArgument(
        '[finetune] a sample is a string, {"text"}, {"prompt", "completion"}, {"messages"} or '
        f'{{"input_ids", "labels"}}; for preferences {{"prompt", "chosen", "rejected"}}. '
        f"Received: {had}"
    )


def _string(sample: Mapping[str, Any], key: str) -> str:
    value = sample[key]
    if not isinstance(value, str):
        raise InvalidArgument(
            f"[finetune] {key!r} of a sample must be a string. Received: {type(value).__name__}"
        )
    return value


def continued(tokenizer: Tokenizer, prompt: str, text: str) -> Tokens:
    """A prompt, which is not learned, and the text that follows it, which is. Both are tokenised
    apart, as in use: the model sees the prompt's tokens before it writes."""
    end = tokenizer.eos_token_id
    first = _begun(tokenizer, prompt) if prompt else []
    rest = tokenizer.encode(text, add_special_tokens=False) if prompt else _begun(tokenizer, text)
    rest = [*rest, *([] if end is None or (rest and rest[-1] == end) else [end])]
    return _tokens([*first, *rest], [False] * len(first) + [True] * len(rest))


def _begun(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens of a text that begins a sequence, without the end that some tokenizers add."""
    ids, plain = tokenizer.encode(text), tokenizer.encode(text, add_special_tokens=False)
    end = tokenizer.eos_token_id
    added = ids[-1:] == [end] and plain[-1:] != [end]
    return ids[:-1] if added else ids


def _chat(tokenizer: Tokenizer, messages: Any) -> Tokens:
    good = isinstance(messages, Sequence) and all(isinstance(m, Mapping) for m in messages)
    if not good or not messages or isinstance(messages, str):
        raise InvalidArgument("[finetune] 'messages' of a sample is a list of messages")
    ids = tokenizer.encode_chat(messages, add_generation_prompt=False)
    learned = np.zeros(len(ids), bool)
    for i, message in enumerate(messages):
        if message.get("role") != "assistant":
            continue
        before = tokenizer.encode_chat(messages[:i], add_generation_prompt=True) if i else []
        after = tokenizer.encode_chat(messages[: i + 1], add_generation_prompt=False)
        if ids[: len(after)] != after or ids[: len(before)] != before:
            raise InvalidArgument(
                "[finetune] the chat template writes earlier messages differently once others "
                "follow, so the assistant's tokens cannot be told apart. Give one answer per "
                'sample, or {"prompt", "completion"}'
            )
        learned[len(before) : len(after)] = True
    if not learned.any():
        raise InvalidArgument("[finetune] a chat without an assistant's message teaches nothing")
    return _tokens(ids, learned)


def _given(sample: Mapping[str, Any]) -> Tokens:
    ids, labels = np.asarray(sample["input_ids"]), np.asarray(sample["labels"])
    if ids.ndim != 1 or ids.shape != labels.shape or ids.dtype.kind not in "iu":
        raise InvalidArgument(
            "[finetune] 'input_ids' and 'labels' of a sample are lists of as many numbers"
        )
    learned = labels != NONE
    if (labels[learned] != ids[learned]).any():
        raise InvalidArgument(
            f"[finetune] a label is the token at its own place, or {NONE} where nothing is learned"
        )
    return _tokens(ids, learned)


def _tokens(ids: Any, learned: Any) -> Tokens:
    made, which = np.asarray(ids, np.int64), np.asarray(learned, bool).copy()
    which[:1] = False
    return Tokens(made, which)


def cut(found: Iterable[Tokens], longest: int) -> list[Tokens]:
    """The samples cut to at most `longest` tokens; those that then teach nothing are left out."""
    short = (Tokens(t.ids[:longest], t.learned[:longest]) for t in found)
    kept = [t for t in short if t.learned.any()]
    if not kept:
        raise InvalidArgument(
            f"[finetune] no sample has a token to learn among its first {longest}"
        )
    return kept


def padded(samples: Sequence[Tokens], longest: int, rows: int, *, whole: bool = False) -> Rows:
    """A row for each sample and empty ones up to `rows`, padded on the right to `longest` tokens;
    if not `whole`, to a half, quarter or eighth of that where it is enough."""
    most = max(len(s) for s in samples)
    sizes = [longest] if whole else [-(-longest // n) for n in (8, 4, 2, 1)]
    wide = next(size for size in sizes if size >= most)
    ids = np.zeros((rows, wide), np.int64)
    targets = np.full_like(ids, NONE)
    for row, target, s in zip(ids, targets, samples, strict=False):
        row[: len(s)] = s.ids
        target[: len(s) - 1] = np.where(s.learned, s.ids, NONE)[1:]
    return Rows(ids, targets)


def packed(groups: Sequence[Sequence[Tokens]], wide: int, rows: int) -> Rows:
    """A row of `wide` tokens for each group of samples, one sample after the other, and empty
    rows up to `rows`.

    Samples do not see each other: `samples` numbers them from 1 (0 is padding), and `places`
    begins at 0 for each.
    """
    ids = np.zeros((rows, wide), np.int64)
    targets, places, number = np.full_like(ids, NONE), np.zeros_like(ids), np.zeros_like(ids)
    for i, group in enumerate(groups):
        at = 0
        for n, s in enumerate(group, 1):
            to = at + len(s)
            ids[i, at:to], number[i, at:to], places[i, at:to] = s.ids, n, np.arange(len(s))
            targets[i, at : to - 1] = np.where(s.learned, s.ids, NONE)[1:]
            at = to
    return Rows(ids, targets, places, number)


def grouped(lengths: Sequence[int], wide: int) -> list[list[int]]:
    """Groups of samples that fit rows of `wide` tokens: each goes into the first of the last 64
    rows with room."""
    groups: list[list[int]] = []
    room: list[int] = []
    for i, n in enumerate(lengths):
        begin = max(0, len(groups) - 64)
        at = next((k for k in range(begin, len(groups)) if room[k] >= n), None)
        if at is None:
            groups.append([])
            room.append(wide)
            at = len(groups) - 1
        groups[at].append(i)
        room[at] -= n
    return groups
