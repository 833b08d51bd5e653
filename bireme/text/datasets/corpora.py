"""Film reviews (IMDB) and the Penn Treebank as Mikolov prepared it."""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import Any

import numpy as np

from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.io import Dataset
from bireme.io.tar_file import TarFile
from bireme.text.datasets.archive import by_frequency
from bireme.vision.datasets.files import check_mode, need_file

_PUNCTUATION = string.punctuation.encode("latin-1")


class Imdb(Dataset):
    """Reviews as word numbers, and 0 for a good one or 1 for a bad one.

    `data_file` is `aclImdb_v1.tar.gz`. Words that occur `cutoff` times or less are unknown.
    """

    def __init__(
        self,
        data_file: str | None = None,
        mode: str = "train",
        cutoff: int = 150,
        download: bool = True,
    ) -> None:
        self.mode = check_mode("Imdb", mode, ("train", "test"))
        self.data_file = need_file("Imdb", "data_file", data_file)
        reviews = self._read()
        counts = Counter(word for _, _, words in reviews for word in words)
        self.word_idx = by_frequency(counts, cutoff, "Imdb")
        unknown = self.word_idx["<unk>"]
        self.docs: list[list[int]] = []
        self.labels: list[int] = []
        for label, kind in enumerate(("pos", "neg")):
            for part, verdict, words in reviews:
                if (part, verdict) == (self.mode, kind):
                    self.docs.append([self.word_idx.get(w, unknown) for w in words])
                    self.labels.append(label)

    def _read(self) -> list[tuple[str, str, list[bytes]]]:
        """(train or test, pos or neg, words) of each review, in the archive's order."""
        pattern = re.compile(r"aclImdb/(train|test)/(pos|neg)/.*\.txt$")
        reviews = []
        with TarFile(self.data_file, "Imdb") as archive:
            for entry in archive.members:
                match = pattern.match(entry.name.removeprefix("./"))
                if match:
                    text = archive.read(entry).rstrip(b"\n\r").translate(None, _PUNCTUATION)
                    reviews.append((match[1], match[2], text.lower().split()))
        if not reviews:
            raise FileFormatError(f"[Imdb] {self.data_file!r} has no reviews under aclImdb/")
        return reviews

    def __getitem__(self, idx: int) -> tuple[np.ndarray, np.ndarray]:
        return np.array(self.docs[idx]), np.array([self.labels[idx]])

    def __len__(self) -> int:
        return len(self.docs)


class Imikolov(Dataset):
    """The Penn Treebank: windows of words ('NGRAM') or (source, target) sentences ('SEQ').

    `data_file` is `simple-examples.tgz`. Words that occur `min_word_freq` times or less are
    unknown. 'NGRAM' needs a `window_size`; with 'SEQ' longer sentences are left out.
    """

    def __init__(
        self,
        data_file: str | None = None,
        data_type: str = "NGRAM",
        window_size: int = -1,
        mode: str = "train",
        min_word_freq: int = 50,
        download: bool = True,
    ) -> None:
        self.data_type = str(data_type).upper()
        if self.data_type not in ("NGRAM", "SEQ"):
            raise InvalidArgument(
                f"[Imikolov] data_type must be 'NGRAM' or 'SEQ'. Received: {data_type!r}"
            )
        if self.data_type == "NGRAM" and window_size < 0:
            raise InvalidArgument(
                f"[Imikolov] 'NGRAM' needs window_size, 0 or more. Received: {window_size}"
            )
        self.mode = check_mode("Imikolov", mode, ("train", "test"))
        self.window_size, self.min_word_freq = window_size, min_word_freq
        self.data_file = need_file("Imikolov", "data_file", data_file)
        with TarFile(self.data_file, "Imikolov") as archive:
            lines = {part: self._lines(archive, part) for part in {"train", "valid", self.mode}}
        self.word_idx = self._numbers([*lines["train"], *lines["valid"]])
        self.data: list[tuple[Any, ...]] = []
        for line in lines[self.mode]:
            self._add(line)

    def _lines(self, archive: TarFile, part: str) -> list[list[Any]]:
        file = archive.lines(f"simple-examples/data/ptb.{part}.txt")
        return [line.strip().split() for line in file]

    def _numbers(self, lines: list[list[Any]]) -> dict[Any, int]:
        counts: Counter[Any] = Counter(word for line in lines for word in line)
        counts["<s>"] += len(lines)
        counts["<e>"] += len(lines)
        return by_frequency(counts, self.min_word_freq, "Imikolov")

    def _add(self, line: list[Any]) -> None:
        unknown = self.word_idx["<unk>"]
        if self.data_type == "NGRAM":
            words = [self.word_idx.get(w, unknown) for w in ("<s>", *line, "<e>")]
            n = self.window_size
            self.data += [tuple(words[i - n : i]) for i in range(n, len(words) + 1)]
            return
        words = [self.word_idx.get(w, unknown) for w in line]
        source = [self.word_idx["<s>"], *words]
        if not 0 < self.window_size < len(source):
            self.data.append((source, [*words, self.word_idx["<e>"]]))

    def __getitem__(self, idx: int) -> tuple[np.ndarray, ...]:
        return tuple(np.array(part) for part in self.data[idx])

    def __len__(self) -> int:
        return len(self.data)
