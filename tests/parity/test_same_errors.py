"""A row of bad input raises the same class of error however it is run."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import bireme
from bireme import jit, static
from bireme.core import trace
from bireme.core.errors import BiremeError
from bireme.host import config
from tests.parity.harness import Run, numbers
from tests.parity.table import CASES, Case, Spec

RAISES = [c for c in CASES if c.must_raise]


# In a captured function Paddle converts several elements one by one, and so do we.
# In-place forms, which leave the variables of a program as they are: no shape and no leaf to keep.
COPIES_IN_PROGRAMS = (
    "raises-F.elu_(3,-0.5)", "raises-fn.in-place-broadcast(3,2x3)", "raises-fn.in-place-leaf(3)",
    "raises-fn.backward-through-overwritten(3)", "raises-fn.resize_-leaf(2)",
)  # fmt: skip
CONVERTED = ("raises-fn.bool-of-many(3)", "raises-fn.float-of-many(3)")


class Given(Run):
    """A row whose input tensors are handed over instead of made, with a layer's first weights."""

    def __init__(self, case: Case, tensors: list[Any]):
        super().__init__(bireme, case)
        self._given = iter(tensors)

    def build(self, x: Any) -> Any:
        return next(self._given) if isinstance(x, Spec) else super().build(x)

    def _layer_outputs(self, weights: Any) -> Any:
        layer = self._made_layer()
        return layer(*[self.build(i) for i in self.case.inputs])


def _inputs(case: Case) -> tuple[list[Spec], list[Any]]:
    """What the row takes, in the order in which it asks for it: declared, and as tensors."""
    run = Run(bireme, case)
    given = case.inputs if case.kind == "layer" else (*case.args, *case.kwargs.values())
    for x in given:
        run.build(x)
    return [s for s, _ in run.tensors], [t for _, t in run.tensors]


def _eagerly(case: Case) -> None:
    Given(case, _inputs(case)[1]).outcome()


def _captured(case: Case) -> None:
    def step(*tensors: Any) -> Any:
        return Given(case, list(tensors)).outputs()

    for result in jit.to_static(step)(*_inputs(case)[1]):
        numbers(result)


def _in_a_program(case: Case) -> None:
    specs, tensors = _inputs(case)
    feed = {f"x{i}": t.numpy() for i, t in enumerate(tensors)}
    bireme.enable_static()
    try:
        main, startup = static.Program(), static.Program()
        with static.program_guard(main, startup):
            data = [static.data(f"x{i}", s.shape, s.dtype) for i, s in enumerate(specs)]
            for d, s in zip(data, specs, strict=True):
                d.stop_gradient = not s.differentiable
            results = Given(case, data).outputs()
        executor = static.Executor()
        executor.run(startup)
        executor.run(main, feed, results)
    finally:
        bireme.disable_static()


WAYS: dict[str, tuple[str, Callable[[Case], None]]] = {
    "cold": ("never", _eagerly),
    "compiled": ("always", _eagerly),
    "to_static": ("always", _captured),
    "static": ("always", _in_a_program),
}


def raised(case: Case, way: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The class of the error, by name; empty where there is none."""
    mode, run = WAYS[way]
    trace.flush()
    monkeypatch.setattr(config, "compile_mode", mode)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a capture that fails says that it runs eagerly
        try:
            run(case)
        except BiremeError as error:
            return type(error).__name__
        except Exception as error:
            return f"not ours: {type(error).__name__}: {error}"
        return ""


@pytest.mark.parametrize("case", RAISES, ids=lambda c: c.id)
def test_every_way_to_run_raises_the_same(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {way: raised(case, way, monkeypatch) for way in WAYS}
    assert found["cold"]
    assert not found["cold"].startswith("not ours")
    if case.id in CONVERTED:
        assert found.pop("to_static") == ""
    if case.id in COPIES_IN_PROGRAMS:
        assert found.pop("static") == ""
    assert set(found.values()) == {found["cold"]}, found
