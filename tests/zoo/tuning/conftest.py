"""A tiny model with a vocabulary, for tests that train."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from bireme import zoo
from bireme.host import config
from tests.zoo.make_gguf import tiny_llama

Load = Callable[[], tuple[Any, Any]]


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps run in NumPy, here and in processes that the test starts: nothing is compiled."""
    monkeypatch.setattr(config, "compile_mode", "never")
    monkeypatch.setenv("BIREME_COMPILE", "never")


@pytest.fixture
def load(tmp_path: pathlib.Path) -> Load:
    """Loads the same model anew at each call."""
    path = tmp_path / "tiny.gguf"
    tiny_llama(path, **{"llama.context_length": 512})
    return lambda: zoo.load(path)
