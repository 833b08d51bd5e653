"""Entry points are read once: programs ask for CUDA in each step."""

from __future__ import annotations

import sys
from importlib import metadata

import bireme as paddle
from bireme.host import plugins


def test_the_metadata_of_packages_is_read_once(monkeypatch):
    reads = []
    real = metadata.entry_points
    monkeypatch.setattr(metadata, "entry_points", lambda **g: (reads.append(g), real(**g))[1])
    plugins._read.cache_clear()
    answers = {paddle.is_compiled_with_cuda() for _ in range(20)}
    answers |= {paddle.is_compiled_with_rocm() for _ in range(20)}
    assert reads == [{"group": "jax_plugins"}]
    assert len(answers) <= 2
    monkeypatch.setattr(sys, "path", [*sys.path, "/another/folder"])
    plugins.entry_points("jax_plugins")
    assert len(reads) == 2
