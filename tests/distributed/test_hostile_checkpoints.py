"""Checkpoints whose index says something else than the files hold."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bireme as paddle
import bireme.distributed as dist
from bireme.core.errors import FileFormatError
from bireme.distributed.checkpoint.tiling import Irregular, tiles
from bireme.io import atomic, safetensors_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of x, 4 by 6, in two blocks of two rows, and of y."""
    x = np.arange(24.0, dtype="float32").reshape(4, 6)
    dist.save_state_dict({"x": paddle.to_tensor(x), "y": paddle.ones([2]), "n": 3}, str(tmp_path))
    with atomic.replacing(str(tmp_path / "0_0.safetensors")) as file:
        arrays = {"x@0": x[:2], "x@1": x[2:], "y": np.ones(2, "float32")}
        safetensors_file.write(arrays, {}, file)
    part = {"file": "0_0.safetensors", "shape": [2, 6]}
    blocks = [{**part, "key": f"x@{i}", "offset": [2 * i, 0]} for i in (0, 1)]
    change(tmp_path, lambda d: d["tensors"]["x"].update(blocks=blocks))
    np.testing.assert_array_equal(dist.load_merged_state_dict(str(tmp_path))["x"].numpy(), x)
    return tmp_path


def change(folder: Path, how: Any, name: str = "0_0.parts.json") -> None:
    path = folder / name
    document = json.loads(path.read_text())
    how(document)
    path.write_text(json.dumps(document))


def block(number: int, **values: Any) -> Any:
    return lambda d: d["tensors"]["x"]["blocks"][number].update(values)


def tensor(**values: Any) -> Any:
    return lambda d: d["tensors"]["x"].update(values)


DAMAGE: dict[str, tuple[Any, str]] = {
    "blocks that overlap": (block(1, offset=[1, 0]), "overlap"),
    "a block outside": (block(1, offset=[3, 0]), "overlap"),
    "a gap": (lambda d: d["tensors"]["x"]["blocks"].pop(), "gap"),
    "a larger whole": (tensor(shape=[5, 6]), "gap"),
    "two blocks at one place": (block(1, offset=[0, 0], shape=[1, 6]), "differ in shape"),
    "another shape than in the file": (block(1, shape=[2, 3]), "overlap"),
    "a block used twice": (block(1, key="x@0"), "twice"),
    "a block of another type": (tensor(dtype="int32"), "belongs to another"),
    "a turned block": (
        lambda d: d["tensors"]["x"].update(
            shape=[6, 4],
            blocks=[
                {**b, "shape": [6, 2], "offset": b["offset"][::-1]}
                for b in d["tensors"]["x"]["blocks"]
            ],
        ),
        "belongs to another",
    ),
    "no such block": (block(1, key="z"), "no block"),
    "a file elsewhere": (block(1, file="../0_0.safetensors"), "outside"),
    "a file's name with a NUL": (block(1, file="0_0\0.safetensors"), "outside"),
    "a negative offset": (block(1, offset=[-2, 0]), "sizes"),
    "an offset with a fraction": (block(1, offset=[2.0, 0]), "sizes"),
    "other dimensions": (block(1, offset=[2]), "dimensions"),
    "many dimensions": (tensor(shape=[1] * 40_000), "sizes"),
    "huge sizes": (tensor(shape=[1 << 40, 1 << 40]), "sizes"),
    "no dtype": (lambda d: d["tensors"]["x"].pop("dtype"), "KeyError"),
    "a strange dtype": (tensor(dtype="object"), "object"),
    "blocks that are a number": (tensor(blocks=7), "TypeError"),
    "no tensors": (lambda d: d.pop("tensors"), "no tensors"),
    "a later version": (lambda d: d.update(version=9), "newer"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_the_index_is_checked(folder: Path, what: str) -> None:
    how, words = DAMAGE[what]
    change(folder, how)
    with pytest.raises(FileFormatError, match=words):
        dist.load_merged_state_dict(str(folder))
    if what not in ("a larger whole", "a turned block"):  # those do not fit the tensor either
        with pytest.raises(FileFormatError, match=words):
            dist.load_state_dict({"x": paddle.zeros([4, 6])}, str(folder))


@pytest.mark.parametrize("ranks", [None, 7, [0, 0], ["0"], [-1], [[0]]])
def test_the_processes_are_checked(folder: Path, ranks: Any) -> None:
    change(folder, lambda d: d.update(ranks=ranks), "0.checkpoint.json")
    with pytest.raises(FileFormatError, match="the processes are"):
        dist.load_merged_state_dict(str(folder))


def test_bytes_that_belong_to_nobody(folder: Path) -> None:
    path = folder / "0_0.safetensors"
    path.write_bytes(path.read_bytes() + bytes(8))
    with pytest.raises(FileFormatError, match="unknown bytes"):
        dist.load_merged_state_dict(str(folder))


def test_random_tilings() -> None:
    """Against counting how often each element is covered."""
    rng = random.Random(0)
    for _ in range(2000):
        shape = [rng.randrange(1, 5) for _ in range(rng.randrange(4))]
        boxes = [tuple([(0, n) for n in shape])]
        for _ in range(rng.randrange(6) if shape else 0):
            box = boxes.pop(rng.randrange(len(boxes)))
            axis = rng.randrange(len(shape))
            a, b = box[axis]
            cut = rng.randrange(a, b)
            parts = [(a, cut), (cut, b)] if a < cut else [(a, b)]
            boxes += [(*box[:axis], p, *box[axis + 1 :]) for p in parts]
        if shape and rng.random() < 0.5:  # one of them elsewhere
            box = list(boxes.pop())
            axis = rng.randrange(len(shape))
            a = rng.randrange(shape[axis])
            box[axis] = (a, rng.randrange(a + 1, shape[axis] + 1))
            boxes.append(tuple(box))
        count = np.zeros(shape, int)
        for box in boxes:
            count[tuple([slice(a, b) for a, b in box])] += 1
        assert tiles(shape, boxes) == bool((count == 1).all()), (shape, boxes)


def test_blocks_like_no_program_writes_are_not_sorted_out_for_ever() -> None:
    n = 400  # one row high and wide: every edge of one cuts all others
    stairs = [((i, i + 1), (0, n - i)) for i in range(n)]
    rest = [((i, i + 1), (n - i, n)) for i in range(1, n)]
    assert tiles((n, n), stairs + rest)
    columns = [((0, n), (i, i + 1), (0, 1)) for i in range(n)]
    rows = [((i, i + 1), (0, n), (1, 2)) for i in range(n)]
    with pytest.raises(Irregular):
        tiles((n, n, 2), columns + rows)
