"""stop_gradient set after a tensor was used: gradients follow the setting of the moment at which
they are asked for, as in the wheel."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bireme
from bireme import static
from bireme.core.errors import AutogradError

FED = np.array([1.0, 2.0, 3.0], "float32")


def _late_input(p: Any, x: Any) -> Any:
    w = p.static.create_parameter([3], "float32", default_initializer=p.nn.initializer.Constant(2))
    h = x * w
    x.stop_gradient = False
    return [h * x], [x, w]


def _all_late(p: Any, x: Any) -> Any:
    h = p.tanh(x)
    y = h * h
    for t in (x, h, y):
        t.stop_gradient = False
    return [y], [x, h]


def _a_result_stays_stopped(p: Any, x: Any) -> Any:
    h = p.tanh(x)
    y = h * x
    x.stop_gradient = y.stop_gradient = False
    return [y], [x]


def _stopped_after_use(p: Any, x: Any) -> Any:
    x.stop_gradient = False
    h = x * x
    y = h * x
    h.stop_gradient = True
    return [y], [x]


def _stopped_before_use(p: Any, x: Any) -> Any:
    h = x * x
    h.stop_gradient = True
    y = h * x
    x.stop_gradient = y.stop_gradient = False
    return [y], [x]


def _detached(p: Any, x: Any) -> Any:
    y = x.detach() * x
    x.stop_gradient = y.stop_gradient = False
    return [y], [x]


def _second_order(p: Any, x: Any) -> Any:
    y = p.tanh(x)
    x.stop_gradient = y.stop_gradient = False
    (dx,) = p.static.gradients([y], [x])
    return [dx], [x]


CASES = [
    _late_input, _all_late, _a_result_stays_stopped, _stopped_after_use,
    _stopped_before_use, _detached, _second_order,
]  # fmt: skip


def _gradients(p: Any, build: Callable[[Any, Any], Any], copied: bool = False) -> list[Any]:
    p.enable_static()
    try:
        main, startup = p.static.Program(), p.static.Program()
        with p.static.program_guard(main, startup):
            x = p.static.data("x", [3])
            targets, inputs = build(p, x)
            if copied:
                main = main.clone()
                targets, inputs = ([main.find_copy(t) for t in ts] for ts in (targets, inputs))
            with p.static.program_guard(main, startup):
                found = p.static.gradients(targets, inputs)
        exe = p.static.Executor()
        exe.run(startup)
        return exe.run(main, feed={"x": FED}, fetch_list=[g for g in found if g is not None])
    finally:
        p.disable_static()


@pytest.mark.parametrize("build", CASES, ids=lambda f: f.__name__.strip("_"))
def test_as_in_the_wheel(build: Callable[[Any, Any], Any], paddle: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wheel's own
        want = _gradients(paddle, build)
    got = _gradients(bireme, build)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)


def test_a_copy_knows_where_gradients_stop() -> None:
    (got,) = _gradients(bireme, _stopped_before_use, copied=True)
    np.testing.assert_allclose(got, FED**2)


def test_random_numbers_are_the_same_in_both_recordings() -> None:
    def build(p: Any, x: Any) -> Any:
        y = bireme.nn.functional.dropout(x, 0.5)
        x.stop_gradient = y.stop_gradient = False
        return [y], [x]

    bireme.enable_static()
    try:
        main = static.Program()
        with static.program_guard(main):
            x = static.data("x", [1000])
            targets, inputs = build(bireme, x)
            (dx,) = static.gradients(targets, inputs)
        ones = np.ones(1000, "float32")
        out, slope = static.Executor().run(main, feed={"x": ones}, fetch_list=[*targets, dx])  # pyright: ignore[reportArgumentType]
        np.testing.assert_array_equal(out, slope)
    finally:
        bireme.disable_static()


def test_rules_of_ones_own_cannot_be_recorded_again() -> None:
    def build(p: Any, x: Any) -> Any:
        x.stop_gradient = False
        y = static.nn.static_pylayer(lambda a: a * 2, [x], lambda g: g * 3)
        late = y * y
        y.stop_gradient = True
        return [late * x], [x]

    with pytest.raises(AutogradError, match="Set stop_gradient before"):
        _gradients(bireme, build)


def test_a_rule_of_ones_own_may_have_no_result() -> None:
    bireme.enable_static()
    try:
        with static.program_guard(static.Program()):
            x = static.data("x", [3])
            x.stop_gradient = False
            assert static.nn.static_pylayer(lambda a: None, [x], lambda g: g) is None
    finally:
        bireme.disable_static()
