"""fleet.auto.Engine: a planned model's loops, on eight virtual devices."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import eight

from bireme import nn
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.distributed.fleet import auto

FILE = "checks_engine.py"


@pytest.mark.parametrize("name", eight.names(FILE))
def test_on_eight_devices(name) -> None:
    error = eight.results(FILE)[name]
    assert error is None, error


def test_wrong_arguments_say_what_is_right() -> None:
    with pytest.raises(TypeMismatch, match="model is a Layer"):
        auto.Engine(None)
    with pytest.raises(TypeMismatch, match="loss is a function"):
        auto.Engine(nn.Linear(2, 2), loss=3)  # type: ignore[arg-type]
    with pytest.raises(TypeMismatch, match="strategy is a Strategy"):
        auto.Engine(nn.Linear(2, 2), strategy={})  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="semi or full"):
        auto.Strategy({"auto_mode": "half"})
