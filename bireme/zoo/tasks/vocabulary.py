"""The words that Whisper writes, from a folder's tokenizer or from OpenAI's list of bytes."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from typing import Any

from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.io.foreign import read_whole

_TASKS = ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")
# What is heard and not said: signs, brackets, music. A recording's words are wanted.
_SIGNS = [
    *"\"#()*+/:;<=>@[\\]^_`{|}~「」『』",
    "<<", ">>", "<<<", ">>>", "--", "---", "-(", "-[", "('", '("', "((", "))", "(((", ")))", "[[",
    "]]", "{{", "}}", "♪♪", "♪♪♪",
]  # fmt: skip
_NOTES = "♩♪♫♬♭♮♯"


class Vocabulary:
    """What the decoder's tokens mean. `bytes_of` are those of words; special tokens have names."""

    def __init__(self, bytes_of: dict[int, bytes], special: dict[str, int]):
        self.bytes_of, self.special = bytes_of, special
        self.end = special["<|endoftext|>"]
        self.start = special["<|startoftranscript|>"]
        self.no_times = special["<|notimestamps|>"]
        self.times = self.no_times + 1  # the first of the times, 0.02 s each
        numbers = {b: i for i, b in bytes_of.items()}
        self.blank = numbers.get(b" ")
        wanted = [s.encode() for s in _SIGNS]
        found = {numbers[b] for s in wanted for b in (s, b" " + s) if b in numbers}
        found |= {numbers[b] for b in (b" -", b" '") if b in numbers}
        for note in _NOTES:
            for whole in (note.encode(), b" " + note.encode()):
                ends = [n for n in range(len(whole), 1, -1) if whole[:n] in numbers]
                found |= {numbers[whole[: ends[0]]]} if ends else set()
        self.signs = sorted(found)

    def text(self, tokens: Sequence[int]) -> str:
        """The text of words; special tokens and times count for nothing."""
        return b"".join(self.bytes_of.get(t, b"") for t in tokens).decode("utf-8", "replace")


def from_list(path: str | os.PathLike[str], words: int) -> Vocabulary:
    """The vocabulary of OpenAI's file (`gpt2.tiktoken` for the English models,
    `multilingual.tiktoken` for the others), which holds a line per token."""
    found: dict[int, bytes] = {}
    for line in read_whole(path, "zoo").splitlines():
        try:
            token, number = line.split()
            found[int(number)] = base64.b64decode(token, validate=True)
        except ValueError:
            raise FileFormatError(f"[zoo] {os.fspath(path)!r} is no list of tokens") from None
    first = len(found)
    # Behind the words: the end, the start, the languages, the tasks, and 1501 times.
    languages = words - first - 2 - len(_TASKS) - 1501
    if sorted(found) != list(range(first)) or not 90 <= languages <= 110:
        raise FileFormatError(
            f"[zoo] {os.fspath(path)!r} has {first} tokens, which do not fit a model of {words}"
        )
    special = {"<|endoftext|>": first, "<|startoftranscript|>": first + 1}
    for i, name in enumerate(_TASKS):
        special[f"<|{name}|>"] = first + 2 + languages + i
    return Vocabulary(found, special)


def from_tokenizer(inner: Any) -> Vocabulary:
    """The vocabulary of a tokenizer of the library `tokenizers`."""
    letters = _letters()
    found, special = {}, {}
    for text, number in inner.get_vocab(with_added_tokens=True).items():
        if text.startswith("<|") and text.endswith("|>"):
            special[text] = number
        else:
            found[number] = bytes(letters[c] for c in text if c in letters)
    if "<|notimestamps|>" not in special:
        raise InvalidArgument("[task] transcribe needs Whisper's tokenizer, with <|notimestamps|>")
    special.setdefault("<|endoftext|>", min(special.values()))
    return Vocabulary(found, special)


def _letters() -> dict[str, int]:
    """The byte that each letter of a byte-level tokenizer stands for: printable bytes stand for
    themselves, the others for the letters from U+0100 on."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(rest)}
