"""Programs with control flow over tensors, captured whole: equal to eager, gradients too."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import jit
from bireme.capture import tree
from bireme.core.errors import CaptureError
from bireme.host import config
from tests.jit import hard_programs, programs
from tests.jit.hard_programs import REFUSED

PROGRAMS = [*programs.PROGRAMS, *hard_programs.PROGRAMS]


def flat(result: Any) -> list[np.ndarray]:
    """Tensors and numbers of a result, as arrays: a captured loop gives a tensor for a number."""
    return _leaves(result, paddle.Tensor)


def _leaves(result: Any, tensor: type) -> list[np.ndarray]:
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, list | tuple):
        return [a for r in result for a in _leaves(r, tensor)]
    if result is None:
        return []
    return [result.numpy() if isinstance(result, tensor) else np.asarray(result)]


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


@pytest.mark.parametrize(
    ("function", "calls", "reason"), REFUSED, ids=[f.__name__ for f, _, _ in REFUSED]
)
def test_refused_functions_run_eagerly(function, calls, reason) -> None:
    with pytest.raises(CaptureError, match=reason):
        run(jit.to_static(function, full_graph=True), calls[0])
    static = jit.to_static(function)
    with pytest.warns(jit.CaptureWarning, match=f"runs eagerly: .*({reason})"):
        run(static, calls[0])
    for data in [*calls, *calls]:
        for got, wanted in zip(run(static, data), run(function, data), strict=True):
            for a, b in zip(got, wanted, strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("module", [programs, hard_programs], ids=["programs", "hard_programs"])
def test_equal_to_paddle(paddle, module) -> None:
    """The same source under the real wheel, eagerly, against our captured graphs."""
    source = pathlib.Path(module.__file__).read_text()
    source = source.replace("import bireme as paddle", "import paddle")
    source = source.replace("from bireme import nn", "from paddle import nn")
    scope: dict[str, Any] = {"__name__": "programs_of_paddle"}
    exec(compile(source, module.__file__, "exec"), scope)
    for (theirs, calls), (ours, _) in zip(scope["PROGRAMS"], module.PROGRAMS, strict=True):
        if "layer" in ours.__name__:  # weights are drawn in another way
            continue
        static = jit.to_static(ours, full_graph=True)
        for data in calls:
            given = [paddle.to_tensor(d) if isinstance(d, np.ndarray) else d for d in data]
            found = [np.asarray(x) for x in _leaves(theirs(*given), paddle.Tensor)]
            for a, b in zip(run(static, data)[0], found, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=ours.__name__)


def _kind(data: Any) -> Any:
    return (data.shape, data.dtype.name) if isinstance(data, np.ndarray) else data


def test_there_are_enough() -> None:
    assert len(PROGRAMS) >= 100
