"""Semantic roles: the test part of CoNLL-2005."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import IO

import numpy as np

from bireme.core.errors import FileFormatError
from bireme.io import Dataset
from bireme.io.foreign import read_whole, reading, unfolded_limit, unpacked
from bireme.io.tar_file import TarFile
from bireme.vision.datasets.files import need_file

_UNKNOWN = 0
_FOLDER = "conll05st-release/test.wsj"


class Conll05st(Dataset):
    """Who did what to whom: for each verb of each sentence nine vectors of its length.

    Words, the five words around the verb (each repeated), the verb, marks of those five, and the
    labels. `data_file` is `conll05st-tests.tar.gz`; the dictionaries and the embedding are files
    with a word per line and a table of numbers.
    """

    def __init__(
        self,
        data_file: str | None = None,
        word_dict_file: str | None = None,
        verb_dict_file: str | None = None,
        target_dict_file: str | None = None,
        emb_file: str | None = None,
        download: bool = True,
    ) -> None:
        self.data_file = need_file("Conll05st", "data_file", data_file)
        self.word_dict_file = need_file("Conll05st", "word_dict_file", word_dict_file)
        self.verb_dict_file = need_file("Conll05st", "verb_dict_file", verb_dict_file)
        self.target_dict_file = need_file("Conll05st", "target_dict_file", target_dict_file)
        self.emb_file = need_file("Conll05st", "emb_file", emb_file)
        self.word_dict = _numbered(self.word_dict_file)
        self.predicate_dict = _numbered(self.verb_dict_file)
        self.label_dict = _label_numbers(self.target_dict_file)
        self.sentences: list[list[str]] = []
        self.predicates: list[str] = []
        self.labels: list[list[str]] = []
        with TarFile(self.data_file, "Conll05st") as archive, reading("Conll05st", self.data_file):
            words = self._lines(archive, f"{_FOLDER}/words/test.wsj.words.gz")
            roles = self._lines(archive, f"{_FOLDER}/props/test.wsj.props.gz")
            for sentence, columns in _sentences(words, roles):
                self._add(sentence, columns)

    def _lines(self, archive: TarFile, name: str) -> IO[bytes]:
        packed = archive.lines(name)
        limit = unfolded_limit(os.path.getsize(self.data_file))
        return unpacked(packed, limit, "Conll05st", f"{self.data_file}: {name}")

    def _add(self, sentence: list[str], columns: list[list[str]]) -> None:
        verbs = [row[0] for row in columns if row[0] != "-"]
        for i, verb in enumerate(verbs):
            self.sentences.append(sentence)
            self.predicates.append(verb)
            self.labels.append(_spans([row[i + 1] for row in columns]))
            if "B-V" not in self.labels[-1]:
                raise FileFormatError(
                    f"[Conll05st] {self.data_file!r}: the roles of the verb {verb!r} do not mark it"
                )

    def __getitem__(self, idx: int) -> tuple[np.ndarray, ...]:
        sentence, labels = self.sentences[idx], self.labels[idx]
        size, verb = len(sentence), labels.index("B-V")
        marks = [int(abs(i - verb) <= 2) for i in range(size)]
        around = []
        for step in (-2, -1, 0, 1, 2):
            at = verb + step
            word = "bos" if at < 0 else "eos" if at >= size else sentence[at]
            around.append([self.word_dict.get(word, _UNKNOWN)] * size)
        words = [self.word_dict.get(w, _UNKNOWN) for w in sentence]
        predicate = [self.predicate_dict.get(self.predicates[idx])] * size
        numbers = [self.label_dict.get(label) for label in labels]
        return tuple(np.array(v) for v in (words, *around, predicate, marks, numbers))

    def __len__(self) -> int:
        return len(self.sentences)

    def get_dict(self) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        """The numbers of words, of verbs and of labels."""
        return self.word_dict, self.predicate_dict, self.label_dict

    def get_embedding(self) -> str:
        """The path of the file with the words' vectors."""
        return self.emb_file


def _numbered(path: str) -> dict[str, int]:
    return {line: i for i, line in enumerate(_text_lines(path))}


def _text_lines(path: str) -> list[str]:
    with reading("Conll05st", path):
        text = read_whole(path, "Conll05st").decode("utf-8")
    return [line.strip() for line in io.StringIO(text)]


def _label_numbers(path: str) -> dict[str, int]:
    """Two numbers for each kind of label, begin and inside, and one for none."""
    lines = _text_lines(path)
    # In order, so that the numbers are the same in every run.
    kinds = sorted({line[2:] for line in lines if line[:2] in ("B-", "I-")})
    names = [f"{mark}-{kind}" for kind in kinds for mark in "BI"]
    return {name: i for i, name in enumerate([*names, "O"])}


def _sentences(words: IO[bytes], roles: IO[bytes]) -> Iterator[tuple[list[str], list]]:
    """(words, columns of roles) of each sentence; an empty line ends one."""
    sentence: list[str] = []
    columns: list[list[str]] = []
    for word, role in zip(words, roles, strict=False):
        parts = role.decode().split()
        if parts:
            sentence.append(word.decode().strip())
            columns.append(parts)
        elif columns:
            yield sentence, columns
            sentence, columns = [], []


def _spans(column: list[str]) -> list[str]:
    """`(A0*`, `*`, `*)` as B-A0, I-A0, I-A0; outside of brackets O."""
    made = []
    kind, inside = "O", False
    for mark in column:
        if "(" in mark:
            kind, inside = mark[1 : mark.index("*")], ")" not in mark
            made.append(f"B-{kind}")
        elif mark in ("*", "*)"):
            made.append(f"I-{kind}" if inside or mark == "*)" else "O")
            inside = inside and mark == "*"
        else:
            raise FileFormatError(f"[Conll05st] unexpected mark of a role. Received: {mark!r}")
    return made
