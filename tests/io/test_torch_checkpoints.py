"""Checkpoints that PyTorch itself wrote: before 1.6 (pickles and storages in a row) and after."""

from __future__ import annotations

import contextlib
import pathlib
import random

import numpy as np
import pytest

import bireme as paddle
from bireme.core.errors import BiremeError, FileFormatError

GOLDEN = pathlib.Path(__file__).parent / "golden"
BOTH = pytest.mark.parametrize("name", ["legacy.pth", "zipped.ckpt"])


@BOTH
def test_tensors_of_a_checkpoint(name: str) -> None:
    found = paddle.load(str(GOLDEN / name))
    assert (found["epoch"], found["lr"], found["shape"]) == (3, 0.1, (2, 3))
    state = found["state_dict"]
    whole = np.arange(12, dtype="float32").reshape(3, 4)
    for key, array in {
        "whole": whole, "part": whole[1:, 1:3], "turned": whole.T, "tied": whole,
        "count": np.int64(7), "empty": np.zeros((0, 3), "float32"),
        "flags": np.array([True, False]), "z": np.array([1 + 2j], "complex64"),
    }.items():  # fmt: skip
        assert state[key].numpy().dtype == array.dtype
        np.testing.assert_array_equal(state[key].numpy(), array)
    assert state["half"].dtype == paddle.bfloat16
    assert state["half"].astype("float32").tolist() == [1.0, 2.0]


@BOTH
def test_damaged_checkpoints(name: str, tmp_path: pathlib.Path) -> None:
    content, rng = (GOLDEN / name).read_bytes(), random.Random(0)
    for _ in range(200):
        data = bytearray(content)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        (tmp_path / "m").write_bytes(
            data[: rng.randint(0, len(data))] if rng.random() < 0.3 else data
        )
        with contextlib.suppress(BiremeError):
            paddle.load(str(tmp_path / "m"))


def test_nothing_in_an_old_file_is_called(tmp_path: pathlib.Path) -> None:
    content = (GOLDEN / "legacy.pth").read_bytes()
    at = content.index(b"}", 40)  # the object is the fourth pickle
    start = content.rindex(b"\x80\x02", 0, content.index(b"state_dict"))
    hostile = content[:start] + b"\x80\x02cos\nsystem\n(X\x02\0\0\0lstR." + content[start:]
    assert at < start
    (tmp_path / "m.pth").write_bytes(hostile)
    with pytest.raises(FileFormatError, match=r"os\.system"):
        paddle.load(str(tmp_path / "m.pth"))
