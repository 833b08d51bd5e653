"""A slice of `make fuzz` in every run, and files that are wrong on purpose."""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bireme
from bireme import jit
from bireme.core.errors import BiremeError
from tests.fuzz.formats import Format, formats
from tests.fuzz.rules import Verdicts, watch_for_effects

STATES = ["graph .json", "graph .safetensors", "state", "pdparams 2", "pdparams 4", "ONNX"]
SMALL = 20  # damaged files of each format in every run


@pytest.fixture(scope="module")
def known(paddle: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Format]:
    pytest.importorskip("onnx")
    pytest.importorskip("PIL")
    return formats(tmp_path_factory.mktemp("fuzz"))


@pytest.fixture(scope="module")
def ours(known: dict[str, Format]) -> dict[str, Format]:
    return {name: known[name] for name in STATES}


def check(chosen: Format, count: int, seed: int) -> None:
    watch_for_effects()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Pillow's, about what it does without
        verdicts = Verdicts(chosen).try_mutants(count, seed)
    assert not verdicts.broken, verdicts.broken[0][1]
    assert verdicts.taken + verdicts.refused == count


def test_damaged_files_of_every_format(known: dict[str, Format]) -> None:
    for name, chosen in known.items():
        try:
            check(chosen, SMALL, seed=os.getpid())
        except AssertionError as e:
            raise AssertionError(f"{name}: {e}") from e


@pytest.mark.slow
def test_a_thousand_of_every_format(known: dict[str, Format]) -> None:
    for name, chosen in known.items():
        try:
            check(chosen, 1000, seed=1)
        except AssertionError as e:
            raise AssertionError(f"{name}: {e}") from e


def test_a_crash_is_seen_and_named(tmp_path: Path) -> None:
    """The command's parent process tells which file ended its child."""
    code = (
        "import os, signal, sys, tests.fuzz.formats as f\n"
        "from tests.fuzz import __main__ as command\n"
        "def read(data):\n"
        "    if b'5' in data: os.kill(os.getpid(), signal.SIGSEGV)\n"
        "f.formats = lambda folder: {'digits': f.Format(b'1234', read, lambda s, r: b'%d' % "
        "r.randrange(10))}\n"
        "(command.child(sys.argv[1], int(sys.argv[2]), 1, sys.argv[3], []))\n"
    )
    (tmp_path / "now").write_bytes(bytes((1 << 24) + 512))
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), "40", ""], cwd=Path(__file__).parents[2]
    )
    assert done.returncode == -signal.SIGSEGV
    head = (tmp_path / "now").read_bytes()[:520]
    name, number, size = json.loads(head[:512])
    assert name == "digits"
    assert b"5" in head[512 : 512 + size]
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), str(number), ""],
        cwd=Path(__file__).parents[2], capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"digits: {number} files" in done.stdout


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


# Readers that any bytes are good for, and those of pickles, for which one of them is good.
RAW = {"ONNX data", "hub tar", "hub zip", "patterns", "chat template"}
PICKLES = {"state", "binary tensor", "pdopt", *[f"pdparams {n}" for n in (2, 3, 4, 5)]}


@pytest.mark.parametrize("what", WRONG)
def test_other_files(known: dict[str, Format], what: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    watch_for_effects()
    for name, chosen in known.items():
        verdicts = Verdicts(chosen)
        verdicts.try_file(WRONG[what])
        assert not verdicts.broken, (name, verdicts.broken[0][1])
        fine = RAW | PICKLES if what == "many empty lists" else RAW
        assert verdicts.refused == 1 or name in fine, name
    assert list(tmp_path.iterdir()) == []


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
