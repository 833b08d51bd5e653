"""Static programs give what the real wheel's give: losses, gradients, parameters, state."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import bireme
from tests.static import scenarios


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("paddle", reason="needs the 'parity' extra")
    found: dict[str, Any] = {}
    for kind, flag in (("old", "0"), ("new", "1")):
        out = tmp_path_factory.mktemp("static") / f"{kind}.npz"
        # The wheel's static mode belongs to the whole process, so it gets one of its own.
        done = subprocess.run(
            [sys.executable, str(pathlib.Path(scenarios.__file__)), str(out), kind],
            env={**os.environ, "FLAGS_enable_pir_api": flag},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found |= dict(np.load(out))
    return found


@pytest.mark.parametrize("name", scenarios.SCENARIOS)
def test_same_as_the_wheel(name: str, expected: Any) -> None:
    bireme.enable_static()
    try:
        with bireme.static.scope_guard(bireme.static.Scope()):
            got = scenarios.SCENARIOS[name](bireme)
    finally:
        bireme.disable_static()
    assert got
    for key, value in got.items():
        want = expected[f"{name}/{key}"]
        assert np.asarray(value).dtype == want.dtype, key
        np.testing.assert_allclose(value, want, rtol=2e-4, atol=2e-5, err_msg=key)
