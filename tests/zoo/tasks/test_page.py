"""docs/tasks.md runs, on tiny models where it names real ones; and so do the commands."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import numpy as np
import pytest

from bireme import cli
from tests.zoo import made_up
from tests.zoo.tasks.test_texts import _folder

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture
def models(tmp_path: pathlib.Path) -> dict[str, str]:
    about, _ = made_up.read("bart-lm")
    made = {
        "models/all-minilm-l6-v2": _folder(tmp_path / "a", "base"),
        "models/a-classifier": _folder(tmp_path / "b", "classifier", ["good", "bad"]),
        "models/a-reader": _folder(tmp_path / "c", "question_answering"),
        "models/a-writer": made_up.folder("bart-lm", about, tmp_path / "d"),
    }
    return {name: str(path) for name, path in made.items()}


def test_the_page(models: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs/tasks.md").read_text()
    space: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", text, re.S | re.M):
        for name, path in models.items():
            block = block.replace(f'"{name}"', repr(path))
        exec(compile(block, "docs/tasks.md", "exec"), space)
    assert "(3, 16)" in capsys.readouterr().out


def test_embed_command(
    models: dict[str, str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = models["models/all-minilm-l6-v2"], tmp_path / "v.npy"
    assert cli.main(["embed", folder, "the cat", "a dog"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert cli.main(["embed", folder, "the cat", "a dog", "--output", str(out)]) == 0
    np.testing.assert_allclose(np.load(out), lines, atol=1e-5)


def test_commands_say_what_is_wrong(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["embed", str(tmp_path), "x"]) == 1
    assert "config.json" in capsys.readouterr().err
    assert cli.main(["transcribe", str(tmp_path / "no.pt"), "x.wav"]) == 1
