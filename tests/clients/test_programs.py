"""Programs written for Paddle, unmodified: on the wheel, and by `bireme run program.py`.

Each prints the numbers it comes to (losses of every step, scores, predictions), which must agree.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.clients.packages import CLIENTS

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
# What must be made importable before the program starts, in the same process.
START = """
import runpy, sys, warnings
warnings.simplefilter("ignore")
import setuptools
engine, package, program, folder = sys.argv[1:]
if package:
    from tests.clients.packages import CLIENTS
    CLIENTS[package].enable()
if engine == "bireme":
    from bireme.cli import main
    sys.exit(main(["run", program, folder]))
sys.argv = [program, folder]
runpy.run_path(program, run_name="__main__")
"""


def found(engine: str, package: str, program: str, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    command = [sys.executable, "-c", START, engine, package, str(PROGRAMS / program), str(folder)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{engine}: {done.stderr[-3000:]}"
    (line,) = [x for x in done.stdout.splitlines() if x.startswith("found ")]
    return json.loads(line.removeprefix("found "))


@pytest.mark.parametrize(
    ("program", "package"),
    [
        pytest.param("hapi_digits.py", ""),
        pytest.param("nlp_finetune.py", "paddlenlp", marks=pytest.mark.slow),
        pytest.param("nlp_trainer.py", "paddlenlp", marks=pytest.mark.slow),
        pytest.param("seg_train.py", "paddleseg", marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("paddle")
def test_program(program: str, package: str, tmp_path: Path) -> None:
    if package:
        CLIENTS[package].fetch()
    real = found("real", package, program, tmp_path / "real")
    ours = found("bireme", package, program, tmp_path / "bireme")
    assert set(ours) == set(real)
    for name, expected in real.items():
        scale = np.abs(expected).max() if np.ndim(expected) else abs(expected)
        np.testing.assert_allclose(ours[name], expected, rtol=2e-3, atol=2e-3 * scale, err_msg=name)
    assert real["losses"][-1] < real["losses"][0]
