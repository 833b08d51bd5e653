"""Models from packages written for Paddle, unmodified, on Bireme and on Paddle.

Each model is built by its package's own code, twice: on the real wheel, whose weights are kept,
and on Bireme, which starts from them. Results, losses before and after a training step, gradients
of all parameters and running statistics are compared. `make clients` runs all of them and prints
a table (conftest.py).

In float64 the two must agree: the formulas are the same. In float32 both are compared with Paddle's
float64, and Bireme may be as far from it as Paddle's own float32 is. Where a package's code is for
float32 only, Bireme may be as far from Paddle as Paddle is from itself after every weight moved to
the next float32.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.clients.models import CASES
from tests.clients.packages import CLIENTS

ROOT = Path(__file__).parents[2]
# Both distances are the largest of thousands of rounding errors, in different orders of addition.
ALIKE = 3.0

Values = dict[str, np.ndarray]


def distances(exact: Values, found: Values, steepest: float) -> dict[str, list[float]]:
    """By kind of value, for each trial: the largest difference as a share of its tensor's largest.

    A gradient that is nothing but rounding (a bias before batch norm) counts as a share of a
    thousandth of the largest gradient.
    """
    worst: dict[tuple[str, str], float] = defaultdict(float)
    for name, expected in exact.items():
        kind, trial, _ = name.split("/", 2)
        got = found[name]
        assert got.shape == expected.shape, name
        if expected.dtype.kind not in "fc":
            assert np.array_equal(got, expected), name
            continue
        scale = np.abs(expected).max(initial=0) + (1e-3 * steepest if kind == "grad" else 1e-6)
        off = float(np.abs(got.astype(expected.dtype) - expected).max(initial=0) / scale)
        worst[kind, trial] = max(worst[kind, trial], off)
    by_kind: dict[str, list[float]] = defaultdict(list)
    for (kind, _), off in worst.items():
        by_kind[kind].append(off)
    return by_kind


def split(file: str) -> dict[str, Values]:
    parts: dict[str, Values] = defaultdict(dict)
    with np.load(file) as found:
        for name in found.files:
            dtype, _, rest = name.partition("/")
            if not rest.startswith("w/"):
                parts[dtype][rest] = found[name]
    return parts


def recorded(engine: str, name: str, folder: Path, *start: str) -> str:
    target = folder / f"{engine}.npz"
    command = [sys.executable, "-m", "tests.clients.run", engine, name, str(target), *start]
    # Some packages write caches into the working directory.
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{engine}: {done.stderr[-3000:]}"
    return str(target)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if c.quick else pytest.mark.slow) for n, c in CASES.items()],
)
@pytest.mark.usefixtures("paddle")
def test_client_model(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    case = CASES[name]
    CLIENTS[case.package].fetch()
    real_file = recorded("real", name, tmp_path)
    real = split(real_file)
    ours = split(recorded("bireme", name, tmp_path, real_file))
    for how, values in real.items():
        assert set(ours[how]) == set(values), sorted(set(ours[how]) ^ set(values))
        for key, value in values.items():
            assert ours[how][key].dtype == value.dtype, key
            assert np.isfinite(value).all(), f"{key}: the real wheel's own values"
    exact = real["float32" if case.float32_only else "float64"]
    steepest = max(np.abs(v).max(initial=0) for k, v in exact.items() if k.startswith("grad/"))
    mine = distances(exact, ours["float32"], steepest)
    others = real["nudged" if case.float32_only else "float32"]
    theirs = {k: max(v) for k, v in distances(exact, others, steepest).items()}
    formula = {} if case.float32_only else distances(exact, ours["float64"], steepest)
    row: dict[str, str] = {"package": case.package, "model": name}
    for kind in ("out", "grad"):
        row[f"{kind} 64"] = f"{max(formula[kind]):.0e}" if formula else "-"
        row[f"{kind} 32"] = f"{np.median(mine[kind]):.0e} ({theirs[kind]:.0e})"
    record_property("client", row)
    for kind, off in formula.items():
        assert max(off) < case.formula, kind
    # What is computed wrongly is off in every trial, a corner is met in some of them. Theirs count
    # where they are worst.
    for kind, off in theirs.items():
        assert np.median(mine[kind]) < ALIKE * off + case.rounding, kind
