"""Code of generated functions that one process leaves to the next."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

SCRIPT = """
import builtins
count = 0
real = builtins.compile
def counted(*args, **kwargs):
    global count
    count += args[1].startswith("<bireme op>")
    return real(*args, **kwargs)
builtins.compile = counted
import bireme
bireme.nn.Linear, bireme.optimizer.SGD
print(count, float((bireme.ones([2]) + 1).sum()))
"""


def run(folder: pathlib.Path) -> tuple[int, float]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={"BIREME_CACHE_DIR": str(folder), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    count, result = done.stdout.split()
    return int(count), float(result)


@pytest.mark.parametrize("damage", ["none", "cut", "flipped", "other"])
def test_the_second_import_compiles_no_op(tmp_path, damage):
    first, result = run(tmp_path)
    assert first > 100
    assert result == 4.0
    (path,) = tmp_path.glob("op-functions-*.bin")
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        path.write_bytes(content[:500] + bytes([content[500] ^ 1]) + content[501:])
    elif damage == "other":
        path.write_bytes(b"something else")
    second, result = run(tmp_path)
    assert result == 4.0
    assert second == (0 if damage == "none" else first)
    assert run(tmp_path) == (0, 4.0)


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert run(blocked)[1] == 4.0
