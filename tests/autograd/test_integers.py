"""Gradients of integers: whole numbers, as in Paddle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import bireme

CASES: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda lib, x: x + 1,
    "subtract": lambda lib, x: 3 - x,
    "negative": lambda lib, x: -x,
    "sum": lambda lib, x: x.sum(),
    "mean": lambda lib, x: x.astype("float32").mean() * 4,
    "promoted": lambda lib, x: x * 1.5,
    "slice": lambda lib, x: x[0:1],
    "max": lambda lib, x: x.max(),
    "exp": lambda lib, x: lib.exp(x.astype("float32")),
    "tile": lambda lib, x: lib.tile(x, [2]),
    "power": lambda lib, x: x**2,
    "cumsum": lambda lib, x: x.cumsum(),
    "clip": lambda lib, x: x.clip(0, 1),
    "gather": lambda lib, x: lib.gather(x, lib.to_tensor([0])),
    "roll": lambda lib, x: lib.roll(x, 1),
    "floor_divide": lambda lib, x: x // 2,
}


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("case", list(CASES))
def test_as_in_paddle(paddle: Any, case: str, dtype: str) -> None:
    found = []
    for lib in (paddle, bireme):
        x = lib.to_tensor([1, 2], dtype=dtype)
        x.stop_gradient = False
        made = CASES[case](lib, x)
        if not made.stop_gradient:
            made.sum().backward()
        grad = None if x.grad is None else (x.grad.tolist(), str(x.grad.dtype))
        found.append((made.stop_gradient, grad))
    assert found[0] == found[1]


def test_integers_beside_floats() -> None:
    index, x = bireme.to_tensor([1, 0]), bireme.to_tensor([2.0, 3.0])
    index.stop_gradient = x.stop_gradient = False
    bireme.gather(x, index).sum().backward()
    assert x.grad.tolist() == [1, 1]
    values, places = bireme.topk(x, 1)
    assert places.stop_gradient
    assert not values.stop_gradient


def test_numbers_that_replace_others_pass_no_gradient(paddle: Any) -> None:
    for lib in (paddle, bireme):
        x = lib.ones([3])
        x.stop_gradient = False
        y = x * 2
        y.cauchy_()
        y.sum().backward()
        assert x.grad.tolist() == [0, 0, 0]
