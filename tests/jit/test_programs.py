"""Programs with control flow over tensors, captured whole: equal to eager, gradients too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import jit
from bireme.core import config, tree
from tests.jit.programs import PROGRAMS


def flat(result: Any) -> list[np.ndarray]:
    """Tensors and numbers of a result, as arrays: a captured loop gives a tensor for a number."""
    found: list[np.ndarray] = []

    def visit(x: Any) -> None:
        if isinstance(x, list | tuple):
            for i in x:
                visit(i)
        elif isinstance(x, dict):
            for i in x.values():
                visit(i)
        elif x is not None:
            found.append(x.numpy() if isinstance(x, paddle.Tensor) else np.asarray(x))

    visit(result)
    return found


def run(function: Any, data: tuple[Any, ...]) -> tuple[list[np.ndarray], list[Any]]:
    """(results, gradients of the inputs)."""
    arguments = [
        paddle.to_tensor(d, stop_gradient=False) if isinstance(d, np.ndarray) else d for d in data
    ]
    result = function(*arguments)
    tensors = [t for t in tree.flatten(result)[0] if not t.stop_gradient]
    if tensors:
        weighted = [(t * t).sum() + t.sum() for t in tensors]
        paddle.add_n(weighted).backward()
    grads = [a.grad for a in arguments if isinstance(a, paddle.Tensor)]
    return flat(result), [None if g is None else g.numpy() for g in grads]


def ids() -> list[str]:
    return [f.__name__ for f, _ in PROGRAMS]


@pytest.fixture(autouse=True)
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are compared in the NumPy tier; compiled programs have a test of their own."""
    monkeypatch.setattr(config, "compile_mode", "never")


@pytest.mark.parametrize(("function", "calls"), PROGRAMS, ids=ids())
def test_equal_to_eager(function, calls) -> None:
    static = jit.to_static(function, full_graph=True)
    for data in calls:
        wanted, wanted_grads = run(function, data)
        for _ in range(2):
            got, grads = run(static, data)
            assert len(got) == len(wanted)
            for a, b in zip(got, wanted, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
                assert a.shape == b.shape
            for a, b in zip(grads, wanted_grads, strict=True):
                if b is None:
                    b = np.zeros_like(a) if a is not None else None
                if b is not None:
                    a = np.zeros_like(b) if a is None else a
                    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    # One graph for each kind of argument, whatever path their values take.
    kinds = {tuple(_kind(d) for d in data) for data in calls}
    assert len(static._entries) == len(kinds)


def _kind(data: Any) -> Any:
    return (data.shape, data.dtype.name) if isinstance(data, np.ndarray) else data


def test_there_are_enough() -> None:
    assert len(PROGRAMS) >= 60
