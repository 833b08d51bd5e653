"""Text datasets, on small archives with the layout of the real ones, against the wheel."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bireme import text
from bireme.core.errors import FileFormatError, InvalidArgument


def write_tar(path: Path, files: dict[str, bytes], mode: str = "w:gz") -> str:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return str(path)


def same(ours: Any, theirs: Any) -> None:
    assert len(ours) == len(theirs)
    for i in range(len(theirs)):
        mine, want = ours[i], theirs[i]
        assert len(mine) == len(want)
        for a, b in zip(mine, want, strict=True):
            np.testing.assert_array_equal(a, b)
            assert np.asarray(a).dtype == np.asarray(b).dtype


@pytest.mark.parametrize("mode", ["train", "test"])
def test_uci_housing(tmp_path: Path, paddle: Any, mode: str) -> None:
    file = tmp_path / "housing.data"
    numbers = np.random.default_rng(0).uniform(0, 100, (20, 14))
    file.write_text("\n".join(" ".join(f"{v:.3f}" for v in row) for row in numbers))
    same(text.UCIHousing(str(file), mode), paddle.text.UCIHousing(str(file), mode))


@pytest.mark.parametrize("mode", ["train", "test"])
def test_imdb(tmp_path: Path, paddle: Any, mode: str) -> None:
    reviews = {
        "train/pos/1_9.txt": b"A good, good film.\n", "train/neg/1_1.txt": b"a bad film",
        "test/pos/1_8.txt": b"good; very good!", "test/neg/2_2.txt": b"Bad a bad one",
    }  # fmt: skip
    file = write_tar(tmp_path / "imdb.tgz", {f"aclImdb/{k}": v for k, v in reviews.items()})
    ours, theirs = text.Imdb(file, mode, cutoff=1), paddle.text.Imdb(file, mode, cutoff=1)
    assert ours.word_idx == theirs.word_idx
    same(ours, theirs)


@pytest.mark.parametrize("kind", ["NGRAM", "SEQ"])
@pytest.mark.parametrize("mode", ["train", "test"])
def test_imikolov(tmp_path: Path, paddle: Any, kind: str, mode: str) -> None:
    lines = {"train": b"the cat sat\nthe dog sat on the cat the\n", "valid": b"a cow\n",
             "test": b"the dog\na cow sat\n"}  # fmt: skip
    files = {f"./simple-examples/data/ptb.{k}.txt": v for k, v in lines.items()}
    file = write_tar(tmp_path / "simple-examples.tgz", files)
    options = {"data_type": kind, "window_size": 3, "mode": mode, "min_word_freq": 0}
    ours, theirs = text.Imikolov(file, **options), paddle.text.Imikolov(file, **options)
    assert set(ours.word_idx) == set(theirs.word_idx)
    same(ours, theirs)


def test_movielens(tmp_path: Path, paddle: Any) -> None:
    file = tmp_path / "ml-1m.zip"
    with zipfile.ZipFile(file, "w") as package:
        package.writestr("ml-1m/movies.dat", "1::Toy Story (1995)::Animation|Comedy\n"
                         "2::Heat (1995)::Action\n")  # fmt: skip
        package.writestr("ml-1m/users.dat", "1::F::1::10::48067\n2::M::56::16::70072\n")
        ratings = [f"{1 + i % 2}::{1 + i % 2}::{1 + i % 5}::97830{i}" for i in range(40)]
        package.writestr("ml-1m/ratings.dat", "\n".join(ratings))
    for mode in ("train", "test"):
        ours = text.Movielens(str(file), mode, test_ratio=0.3, rand_seed=4)
        theirs = paddle.text.Movielens(str(file), mode, test_ratio=0.3, rand_seed=4)
        assert len(ours) == len(theirs)
        for i in range(len(theirs)):
            mine, want = ours[i], theirs[i]
            for column in (0, 1, 2, 3, 4, 7):  # categories and words have numbers of their own
                np.testing.assert_array_equal(mine[column], want[column])
            for column in (5, 6):
                assert mine[column].shape == want[column].shape
    assert ours.categories_dict == {"Action": 0, "Animation": 1, "Comedy": 2}
    assert ours.movie_info[2].title == "Heat "


@pytest.mark.parametrize("mode", ["train", "test", "gen"])
def test_wmt14(tmp_path: Path, paddle: Any, mode: str) -> None:
    words = b"<s>\n<e>\n<unk>\nhello\nworld\nrare\n"
    pairs = b"hello world\tworld hello\nno tab\n" + b"x " * 90 + b"\ty\nhello\tworld rare\n"
    files = {"wmt14/src.dict": words, "wmt14/trg.dict": words}
    files |= {f"wmt14/{m}/{m}": pairs for m in ("train", "test", "gen")}
    file = write_tar(tmp_path / "wmt14.tgz", files)
    ours, theirs = text.WMT14(file, mode, 5), paddle.text.WMT14(file, mode, 5)
    same(ours, theirs)
    assert ours.get_dict() == theirs.get_dict()
    assert ours.get_dict(True) == theirs.get_dict(True)


@pytest.mark.parametrize("lang", ["en", "de"])
def test_wmt16(tmp_path: Path, lang: str) -> None:
    files = {"wmt16/train": b"a dog a\tein hund\na cat\teine katze ein\n",
             "wmt16/val": b"a bird\tein vogel\n", "wmt16/test": b"cat\tkatze\n"}  # fmt: skip
    file = write_tar(tmp_path / "wmt16.tar.gz", files)
    made = text.WMT16(file, "val", 5, 6, lang)
    english = ["<s>", "<e>", "<unk>", "a", "dog", "cat"]
    german = ["<s>", "<e>", "<unk>", "ein", "hund", "eine"]
    sizes = {"en": (5, 6), "de": (6, 5)}[lang]
    assert list(made.get_dict("en")) == english[: sizes[0]]
    assert list(made.get_dict("de")) == german[: sizes[1]]
    assert made.get_dict("de", reverse=True)[3] == "ein"
    source, target, ahead = made[0]
    assert source.tolist() == [0, 3, 2, 1]
    assert target.tolist() == [0, 3, 2]
    assert ahead.tolist() == [3, 2, 1]
    assert len(text.WMT16(file, "train", 5, 6, lang)) == 2


def test_conll05(tmp_path: Path, paddle: Any) -> None:
    words = b"The\ncat\nsaw\ndogs\nrun\n\nIt\nslept\n\n"
    roles = b"- (A0* *\n- *) *\nsee (V*) *\n- (A1* (A0*)\nrun *) (V*)\n\n- (A0*)\nsleep (V*)\n\n"
    folder = "conll05st-release/test.wsj"
    data = write_tar(
        tmp_path / "conll.tar.gz",
        {f"{folder}/words/test.wsj.words.gz": gzip.compress(words),
         f"{folder}/props/test.wsj.props.gz": gzip.compress(roles)},
    )  # fmt: skip
    dictionaries = {
        "words": "UNK\nThe\ncat\nsaw\nbos\neos\n", "verbs": "see\nrun\nsleep\n",
        "labels": "B-A0\nI-A0\nB-A1\nI-A1\nB-V\nI-V\nO\n", "emb": "",
    }  # fmt: skip
    paths = []
    for name, content in dictionaries.items():
        (tmp_path / name).write_text(content)
        paths.append(str(tmp_path / name))
    ours, theirs = text.Conll05st(data, *paths), paddle.text.Conll05st(data, *paths)
    assert len(ours) == len(theirs) == 3
    for i in range(3):
        for a, b in zip(ours[i][:-1], theirs[i][:-1], strict=True):
            np.testing.assert_array_equal(a, b)
        assert ours.labels[i] == theirs.labels[i]
    assert ours.get_dict()[:2] == theirs.get_dict()[:2]
    assert ours.label_dict["B-A0"] == 0
    assert ours.get_embedding() == paths[-1]


def test_files_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="does not download"):
        text.Imdb()
    with pytest.raises(InvalidArgument, match="no file"):
        text.WMT14(str(tmp_path / "missing.tgz"), dict_size=5)
    with pytest.raises(InvalidArgument, match="mode"):
        text.UCIHousing("x", mode="dev")
    empty = write_tar(tmp_path / "empty.tgz", {"other": b""})
    with pytest.raises(FileFormatError, match="no reviews"):
        text.Imdb(empty)
    with pytest.raises(InvalidArgument, match="positive"):
        text.WMT16(empty)
    with pytest.raises(FileFormatError, match="has no file"):
        text.Imikolov(empty, window_size=2)
