"""Code written for Paddle, unmodified, on Bireme: the same weights give the same numbers.

Every model is built by its package's own code, twice: on the real wheel, whose weights are kept,
and on Bireme, which starts from them. Results, losses before and after a training step, gradients
of all parameters and running statistics are compared. `make clients` runs all of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.clients.models import CASES
from tests.clients.packages import CLIENTS

ROOT = Path(__file__).parents[2]


def differences(real: dict[str, np.ndarray], ours: dict[str, np.ndarray]) -> dict[str, float]:
    """The largest difference of each kind of value, as a share of the tensor's largest element.

    A gradient that is nothing but rounding (a bias before batch norm) counts as a share of a
    thousandth of the largest gradient.
    """
    assert set(real) == set(ours), sorted(set(real) ^ set(ours))
    steepest = max(np.abs(v).max(initial=0) for k, v in real.items() if k.startswith("grad/"))
    found: dict[str, float] = {}
    for name, expected in real.items():
        got = ours[name]
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), name
        if expected.dtype.kind not in "fc":
            assert np.array_equal(got, expected), name
            continue
        assert np.isfinite(expected).all(), f"{name}: the real wheel's own values"
        kind = name.partition("/")[0]
        floor = 1e-3 * steepest if kind == "grad" else 1e-6
        scale = np.abs(expected).max(initial=0) + floor
        off = float(np.abs(got - expected).max(initial=0) / scale)
        found[kind] = max(found.get(kind, 0.0), off)
    return found


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
def test_client_model(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    CLIENTS[case.package].fetch()
    real = recorded("real", name, tmp_path)
    ours = recorded("bireme", name, tmp_path, real)
    found = differences(dict(np.load(real)), dict(np.load(ours)))
    print(f"\n{case.package} {name}: " + ", ".join(f"{k} {v:.1e}" for k, v in found.items()))
    assert max(found.values()) < case.tolerance, found
