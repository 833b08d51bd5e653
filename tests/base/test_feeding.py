"""Samples to what a program is fed with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import bireme as paddle
from bireme import base, static
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch


@pytest.fixture(autouse=True)
def _programs() -> Iterator[None]:
    paddle.enable_static()
    with static.program_guard(static.Program()):
        yield
    paddle.disable_static()


def test_samples_become_arrays_by_name() -> None:
    x, y = static.data("x", [None, 2]), static.data("y", [None, 1], "int64")
    total = x.sum() + y.sum().astype("float32")
    feeder = base.DataFeeder([x, "y"], base.CPUPlace())
    feed = feeder.feed([([1, 2], 3), (np.array([4, 5]), 6)])
    assert {n: (a.shape, a.dtype.name) for n, a in feed.items()} == {
        "x": ((2, 2), "float32"),
        "y": ((2, 1), "int64"),
    }
    assert static.Executor().run(feed=feed, fetch_list=[total])[0] == 21


def test_samples_that_do_not_fit() -> None:
    x = static.data("x", [None, None])
    with pytest.raises(TypeMismatch, match="variables of a program"):
        base.DataFeeder([3])  # type: ignore[list-item]
    feeder = base.DataFeeder([x])
    with pytest.raises(InvalidArgument, match="must have 1 parts"):
        feeder.feed([([1.0], 2)])
    with pytest.raises(ShapeMismatch, match="one shape"):
        feeder.feed([([1.0],), ([1.0, 2.0],)])


def test_programs_change_leaves_and_refuse_what_paddle_refuses() -> None:
    x = static.data("x", [1])
    x.stop_gradient = False
    paddle.increment(x)
    assert static.Executor().run(feed={"x": np.ones(1, "float32")}, fetch_list=[x])[0] == 2
    with pytest.raises(TypeError, match="branch_index must be an integer"):
        static.nn.switch_case(x, [(1, lambda: x)])
    with pytest.raises(ValueError, match="at least two"):
        paddle.multiplex([static.data("m", [None, 2])], static.data("i", [None, 1], "int32"))
