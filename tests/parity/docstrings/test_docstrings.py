"""Every example of the wheel's docstrings, by it and by Bireme: the same, or listed why not."""

from __future__ import annotations

import os
import pathlib
import pickle
import subprocess
import sys
from typing import Any

import pytest

from tests.parity.docstrings.comparing import differences, outcome, text
from tests.parity.docstrings.extracting import examples

KNOWN = pathlib.Path(__file__).with_name("known.txt")
PARTS = 8


def known() -> dict[str, str]:
    """Example -> why Bireme's record of it is another one, from the list beside this file."""
    found = {}
    reason = ""
    for line in KNOWN.read_text().splitlines():
        if line.startswith("# "):
            reason = line[2:]
        elif line:
            found |= dict.fromkeys(line.split(), reason)
    return found


def recorded(sources: list[str], folder: pathlib.Path) -> list[list[dict[str, Any]]]:
    """Records of all programs by Bireme, by the wheel, and by the wheel with another seed."""
    jobs = folder / "jobs"
    jobs.write_bytes(pickle.dumps(sources))
    runs = (("bireme", "0"), ("wheel", "0"), ("wheel", "1"))
    for which, seed in runs:
        command = [sys.executable, "-m", "tests.parity.docstrings.running", which, seed]
        subprocess.run(
            [*command, str(jobs), str(folder / f"{which}{seed}")],
            check=True,
            capture_output=True,
            env={**os.environ, "GLOG_minloglevel": "3"},
        )
    return [_read(folder / f"{which}{seed}", len(sources)) for which, seed in runs]


def _read(path: pathlib.Path, count: int) -> list[dict[str, Any]]:
    with path.open("rb") as f:
        return [pickle.load(f) for _ in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_examples_of_the_wheel(part: int, paddle: Any, tmp_path: pathlib.Path) -> None:
    chosen = examples(paddle)[part::PARTS]
    records = recorded([e.source for e in chosen], tmp_path)
    listed, failures, agreeing = known(), [], []
    for example, ours, wheel, again in zip(chosen, *records, strict=True):
        if outcome(wheel) != "ran":  # no network, no accelerator, or its own mistake
            continue
        found = differences(ours, wheel, again)
        if found and example.name not in listed:
            failures.append(f"{example.name}: {found[0][:300]}")
        elif not found and example.name in listed:
            agreeing.append(example.name)
    assert not failures, "\n".join(failures)
    assert not agreeing, f"take these off the list, they are the wheel's by now: {agreeing}"


def test_texts_are_compared_by_words_and_numbers() -> None:
    assert not text("Tensor([0.1000001, 2.])", "Tensor([0.1,\n       2.])")
    assert text("Tensor([0.1])", "Tensor([0.2])")
    assert text("paddle.Size([2])", "[2]")


def test_results_that_the_seed_decides_are_compared_by_type() -> None:
    def record(value: float) -> dict[str, Any]:
        return {"events": [], "left": {"x": ("plain", value)}}

    assert differences(record(3.0), record(1.0), record(1.0))
    assert not differences(record(3.0), record(1.0), record(2.0))
    assert differences({"events": [], "left": {"x": ("plain", "3")}}, record(1.0), record(2.0))
