"""docs/finetuning.md, its commands and examples run, on tiny models where they name real ones."""

from __future__ import annotations

import json
import pathlib
import re
import runpy
from typing import Any

import pytest

from bireme import cli, zoo
from tests.zoo.tasks.test_texts import _folder
from tests.zoo.test_page import stand_in

__all__ = ["stand_in"]
ROOT = pathlib.Path(__file__).resolve().parents[3]
pytestmark = [
    pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning"),
    pytest.mark.usefixtures("cold"),
]


def test_the_page_runs(stand_in: pathlib.Path) -> None:
    text = (ROOT / "docs/finetuning.md").read_text()
    space: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    assert len(blocks) == 4
    for block in blocks:
        exec(compile(block, "docs/finetuning.md", "exec"), space)
    losses = space["tuned"].losses
    assert losses[-1] < losses[0]
    zoo.load("whole")


def test_the_commands(stand_in: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(stand_in / "tiny.gguf")
    data = pathlib.Path("data.jsonl")
    data.write_text("".join(json.dumps({"text": "abc" * n}) + "\n" for n in range(1, 6)))
    tune = ["finetune", model, str(data), "out", "--steps", "3", "--max-length", "32"]
    assert cli.main([*tune, "--targets", "all-linear", "--learning-rate", "0.01"]) == 0
    assert "3 steps, loss" in capsys.readouterr().out
    assert cli.main(tune) == 1
    assert "holds a run already" in capsys.readouterr().err
    assert cli.main(["generate", model, "abc", "--adapter", "out", "--max-new-tokens", "3"]) == 0
    items = pathlib.Path("items.jsonl")
    items.write_text(json.dumps({"prompt": "a", "choices": ["b", "c"], "answer": 1}) + "\n")
    assert cli.main(["evaluate", model, str(items), "--adapter", "out"]) == 0
    assert "accuracy_by_length" in capsys.readouterr().out
    data.write_text("{}\n[1]\n")
    assert cli.main(["finetune", model, str(data), "other"]) == 1
    assert "line 2" in capsys.readouterr().err


def test_the_lora_example(stand_in: pathlib.Path) -> None:
    example = runpy.run_path(str(ROOT / "examples/finetune_lora.py"), run_name="example")
    answers = example["main"](["--steps", "3", "--ask", "a"])
    assert len(answers) == 2
    assert pathlib.Path("capitals/adapter_model.safetensors").exists()


def test_the_search_example(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = _folder(tmp_path / "model", "base")
    text = tmp_path / "text.txt"
    text.write_text("the cat sat\non the mat\n\na dog is good\n\nAnna sat in Rome\n")
    example = runpy.run_path(str(ROOT / "examples/semantic_search.py"), run_name="example")
    for _ in range(2):  # the second time from the vectors that were kept
        found = example["main"]([str(folder), "a dog is good", str(text), "--best", "2"])
        assert found[0][1] == "a dog is good"
        assert found[0][0] == pytest.approx(1.0, abs=1e-5)
