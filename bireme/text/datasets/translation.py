"""Pairs of sentences: WMT14 (English and French) and WMT16 (English and German)."""

from __future__ import annotations

from collections import Counter
from typing import IO, Any

import numpy as np

from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.io import Dataset
from bireme.io.foreign import reading
from bireme.io.tar_file import TarFile
from bireme.text.datasets.archive import line_pairs, positive
from bireme.vision.datasets.files import check_mode, need_file

_START, _END, _UNKNOWN = "<s>", "<e>", "<unk>"


class _Pairs(Dataset):
    """Sentences as (source, target, target one step ahead), all as numbers of words."""

    src_dict: dict[str, int]
    trg_dict: dict[str, int]

    def __init__(self) -> None:
        self.src_ids: list[list[int]] = []
        self.trg_ids: list[list[int]] = []
        self.trg_ids_next: list[list[int]] = []

    def _add(self, source: list[int], target: list[int], start: int, end: int) -> None:
        self.src_ids.append(source)
        self.trg_ids.append([start, *target])
        self.trg_ids_next.append([*target, end])

    def __getitem__(self, idx: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return (
            np.array(self.src_ids[idx]),
            np.array(self.trg_ids[idx]),
            np.array(self.trg_ids_next[idx]),
        )

    def __len__(self) -> int:
        return len(self.src_ids)


def _reversed(words: dict[str, int]) -> dict[int, str]:
    return {number: word for word, number in words.items()}


class WMT14(_Pairs):
    """Pairs of WMT14 from `wmt14.tgz`, with the first `dict_size` words of each dictionary.

    Pairs with more than 80 words are left out.
    """

    def __init__(
        self,
        data_file: str | None = None,
        mode: str = "train",
        dict_size: int = -1,
        download: bool = True,
    ) -> None:
        super().__init__()
        self.mode = check_mode("WMT14", mode, ("train", "test", "gen"))
        self.data_file = need_file("WMT14", "data_file", data_file)
        self.dict_size = positive("WMT14", "dict_size", dict_size)
        unknown = 2  # the third line of both dictionaries
        with TarFile(self.data_file, "WMT14") as archive, reading("WMT14", self.data_file):
            self.src_dict = self._dictionary(archive, "src.dict")
            self.trg_dict = self._dictionary(archive, "trg.dict")
            for name in archive.names():
                if name.endswith(f"{self.mode}/{self.mode}"):
                    for source, target in line_pairs(archive.lines(name)):
                        words = (_START, *source.split(), _END)
                        from_ = [self.src_dict.get(w, unknown) for w in words]
                        to = [self.trg_dict.get(w, unknown) for w in target.split()]
                        if len(from_) <= 80 and len(to) <= 80:
                            self._add(from_, to, self.trg_dict[_START], self.trg_dict[_END])

    def _dictionary(self, archive: TarFile, ending: str) -> dict[str, int]:
        names = [name for name in archive.names() if name.endswith(ending)]
        if len(names) != 1:
            raise FileFormatError(
                f"[WMT14] the archive must have one file *{ending}. Received: {names[:5]}"
            )
        lines = archive.read(names[0]).decode().splitlines()
        return {line.strip(): i for i, line in enumerate(lines[: self.dict_size])}

    def get_dict(self, reverse: bool = False) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """(source words, target words) by word, or by number with `reverse`."""
        if reverse:
            return _reversed(self.src_dict), _reversed(self.trg_dict)
        return self.src_dict, self.trg_dict


class WMT16(_Pairs):
    """Pairs of WMT16 from `wmt16.tar.gz`; `lang` is the source language, 'en' or 'de'.

    The dictionaries hold the most frequent words of the training part, up to their sizes.
    """

    def __init__(
        self,
        data_file: str | None = None,
        mode: str = "train",
        src_dict_size: int = -1,
        trg_dict_size: int = -1,
        lang: str = "en",
        download: bool = True,
    ) -> None:
        super().__init__()
        self.mode = check_mode("WMT16", mode, ("train", "test", "val"))
        if lang not in ("en", "de"):
            raise InvalidArgument(f"[WMT16] lang must be 'en' or 'de'. Received: {lang!r}")
        self.data_file = need_file("WMT16", "data_file", data_file)
        self.lang = lang
        self.src_dict_size = positive("WMT16", "src_dict_size", src_dict_size)
        self.trg_dict_size = positive("WMT16", "trg_dict_size", trg_dict_size)
        source, target = (0, 1) if lang == "en" else (1, 0)
        with TarFile(self.data_file, "WMT16") as archive, reading("WMT16", self.data_file):
            train = list(line_pairs(self._part(archive, "train")))
            pairs = train
            if self.mode != "train":
                pairs = list(line_pairs(self._part(archive, self.mode)))
        self.src_dict = _frequent(train, source, src_dict_size)
        self.trg_dict = _frequent(train, target, trg_dict_size)
        start, end, unknown = (self.src_dict[mark] for mark in (_START, _END, _UNKNOWN))
        for pair in pairs:
            from_ = [self.src_dict.get(w, unknown) for w in pair[source].split()]
            to = [self.trg_dict.get(w, unknown) for w in pair[target].split()]
            self._add([start, *from_, end], to, start, end)

    def _part(self, archive: TarFile, name: str) -> IO[bytes]:
        return archive.lines(f"wmt16/{name}")

    def get_dict(self, lang: str, reverse: bool = False) -> dict[Any, Any]:
        """The words of a language, 'en' or 'de', by word, or by number with `reverse`."""
        words = self.src_dict if lang == self.lang else self.trg_dict
        return _reversed(words) if reverse else words


def _frequent(pairs: list[tuple[str, str]], column: int, size: int) -> dict[str, int]:
    """Three marks and the most frequent words of a language; equal ones as they appear."""
    counts = Counter(word for pair in pairs for word in pair[column].split())
    words = sorted(counts, key=lambda w: counts[w], reverse=True)
    marks = [_START, _END, _UNKNOWN]
    return {word: i for i, word in enumerate([*marks, *words][: max(size, len(marks))])}
