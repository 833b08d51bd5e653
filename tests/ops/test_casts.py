"""Floats that no integer of the type holds have one answer, in a first run and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme
from bireme.host import config

NUMBERS = [
    300.0, -5.0, 255.9, -0.9, 7e4, -7e4, 65536.5, 3e9, -3e9, 2.0**31, -(2.0**31), -(2.0**31) - 0.5,
    4294967297.0, 2.0**63, -(2.0**63), 1e19, -1e19, np.nan, np.inf, -np.inf,
]  # fmt: skip

# One line, many programs.
pytestmark = pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")

INTEGERS = ("uint8", "int8", "int16", "int32", "int64")


@pytest.mark.parametrize("source", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("to", INTEGERS)
def test_tiers_agree(monkeypatch: pytest.MonkeyPatch, source: str, to: str) -> None:
    results = []
    for mode in ("never", "always"):
        monkeypatch.setattr(config, "compile_mode", mode)
        x = bireme.to_tensor(NUMBERS, dtype="float64").astype(source)
        results.append(x.astype(to).tolist())
    assert results[0] == results[1]


@pytest.mark.parametrize("to", INTEGERS)
def test_they_are_paddles(tier: str, paddle: Any, to: str) -> None:
    for source in ("float32", "float64"):
        ours = bireme.to_tensor(NUMBERS, dtype=source).astype(to)
        theirs = paddle.to_tensor(NUMBERS, dtype=source).astype(to)
        assert ours.tolist() == theirs.tolist()
