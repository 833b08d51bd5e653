"""A slice of `make fuzz` in every run, and files that are wrong on purpose."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bireme
from bireme import jit
from bireme.core.errors import BiremeError
from tests.fuzz.formats import Format, graph_format, onnx_format, paddle_formats, state_format
from tests.fuzz.rules import Verdicts, watch_for_effects

OURS = ["graph .json", "graph .safetensors", "state", "pdparams", "pdparams 2", "ONNX"]
PADDLES = ["ProgramDesc", "PIR", "pdiparams"]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Format]:
    pytest.importorskip("onnx")
    folder = tmp_path_factory.mktemp("fuzz")
    return {**graph_format(folder), **state_format(), **onnx_format()}


@pytest.fixture(scope="module")
def paddles(paddle: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Format]:
    return paddle_formats(tmp_path_factory.mktemp("fuzz"))


def check(chosen: Format, count: int, seed: int) -> None:
    watch_for_effects()
    verdicts = Verdicts(chosen).try_mutants(count, seed)
    assert not verdicts.broken, verdicts.broken[0][1]
    assert verdicts.taken + verdicts.refused == count


@pytest.mark.parametrize("name", OURS)
def test_our_readers(ours: dict[str, Format], name: str) -> None:
    check(ours[name], 60, seed=os.getpid())


@pytest.mark.parametrize("name", PADDLES)
def test_readers_of_paddles_files(paddles: dict[str, Format], name: str) -> None:
    check(paddles[name], 60, seed=os.getpid())


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
def test_ten_thousand(ours: dict[str, Format], name: str) -> None:
    check(ours[name], 10_000, seed=1)


def bomb() -> bytes:
    """A zip file of a few kilobytes that unpacks to 20 megabytes, with names that climb out."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("../../evil.py", b"\0" * 20_000_000)
        file.writestr("data.pkl", pickle.dumps({"w": np.ones(3)}))
    return buffer.getvalue()


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("echo executed > executed",)


WRONG = {
    "empty": b"",
    "text": b"hello, world\n" * 20,
    "zip": bomb(),
    "elf": b"\x7fELF" + bytes(200),
    "gzip": b"\x1f\x8b\x08" + bytes(100),
    "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(100),
    "a pickle that runs a program": pickle.dumps({"w": Evil()}),
    "deep lists": b"[" * 200_000,
    "a huge header": (1 << 62).to_bytes(8, "little") + b"{}",
    "many empty lists": b"\x80\x04" + b"]" * 20_000 + b".",
}


@pytest.mark.parametrize("what", WRONG)
def test_other_files(ours: dict[str, Format], what: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    watch_for_effects()
    for name in OURS:
        verdicts = Verdicts(ours[name])
        verdicts.try_file(WRONG[what])
        assert not verdicts.broken, (name, verdicts.broken[0][1])
        assert verdicts.refused == 1 or what == "many empty lists", name
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", WRONG)
def test_other_files_as_paddles(paddles: dict[str, Format], what: str) -> None:
    watch_for_effects()
    for name in PADDLES:
        verdicts = Verdicts(paddles[name])
        verdicts.try_file(WRONG[what])
        assert not verdicts.broken, (name, verdicts.broken[0][1])


def _changed(source: bytes, change: Any) -> bytes:
    document = json.loads(source)
    change(document)
    return json.dumps(document).encode()


def _deep(levels: int) -> Any:
    made: Any = "*"
    for _ in range(levels):
        made = {"list": [made]}
    return made


def _op(document: Any, op: str) -> None:
    document["programs"]["eval"]["graph"]["nodes"][0]["op"] = op


CHANGES: dict[str, tuple[Any, str]] = {
    "newer": (lambda d: d.update(version=99), "format version 99; this Bireme reads up to"),
    "no version": (lambda d: d.pop("version"), "format version None"),
    "another format": (lambda d: d.update(format="other"), "not a saved Bireme model"),
    "unknown op": (lambda d: _op(d, "warp_drive"), "does not have: warp_drive"),
    "weights elsewhere": (
        lambda d: d["weights"].update(file="../../etc/passwd"), "must lie beside the graph"
    ),
    "more results": (
        lambda d: d["programs"]["eval"].update(result={"list": ["*"] * 9}), "does not fit"
    ),
    "deep results": (lambda d: d["programs"]["eval"].update(result=_deep(400)), "."),
    "weights of another save": (lambda d: d["weights"].update(id="x"), "belongs to another save"),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_graphs_that_do_not_fit(ours: dict[str, Format], what: str) -> None:
    change, message = CHANGES[what]
    graph = ours["graph .json"]
    with pytest.raises(BiremeError, match=message):
        graph.read(_changed(graph.source, change))


def test_a_folder_and_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BiremeError, match=r"no file|no Paddle model"):
        jit.load(str(tmp_path / "nothing"))
    (tmp_path / "m.json").mkdir()
    with pytest.raises((BiremeError, IsADirectoryError)):
        jit.load(str(tmp_path / "m"))
    with pytest.raises(BiremeError):
        bireme.load(io.BytesIO(WRONG["zip"]))
