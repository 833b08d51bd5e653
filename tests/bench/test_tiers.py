"""`python -m bench.gpu.tiers`, a few steps of it on this machine's CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.gpu import tiers


@pytest.mark.filterwarnings("ignore:.*different programs")
def test_tiers_agree_and_a_difference_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tiers.compare("mlp", 10) == []
    plain = tiers.losses

    def other(name: str, steps: int, change: float = 0.0) -> Any:
        found, masks = plain(name, steps, change)
        if tiers.config.compile_mode == "always":
            return [f + 1e-3 for f in found], [b""]
        return found, masks

    monkeypatch.setattr(tiers, "losses", other)
    wrong = tiers.compare("mlp", 10)
    assert len([w for w in wrong if "losses differ" in w]) == 1  # TF32 may
    assert len([w for w in wrong if "masks" in w]) == 2


@pytest.mark.filterwarnings("ignore:.*different programs")
def test_gradients_of_rows_and_large_arrays_agree() -> None:
    assert tiers.compare_lookups("lazy Adam") == []
    assert tiers.compare_large(1) == []


def test_nets_have_what_they_are_for() -> None:
    for name, make in tiers.NETS.items():
        x, _ = tiers.batches(name)(0)
        assert list(make()(tiers.paddle.to_tensor(x)).shape) == [16, 5]
    assert not np.array_equal(tiers.batches("mlp")(0)[0], tiers.batches("mlp")(1)[0])
