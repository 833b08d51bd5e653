"""Values in static programs that follow from constants."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import bireme as paddle
from bireme.core.errors import CaptureError


@pytest.fixture(autouse=True)
def program() -> Iterator[paddle.static.Program]:
    made = paddle.static.Program()
    paddle.enable_static()
    try:
        with paddle.static.program_guard(made, paddle.static.Program()):
            yield made
    finally:
        paddle.disable_static()


def test_sizes_conditions_and_indices(program: paddle.static.Program) -> None:
    three = paddle.full([1], 3, "int64")
    x = paddle.static.data("x", [-1, 4])
    wide = paddle.expand(x.sum(), [three, 2])
    drawn = paddle.uniform([three, paddle.full([1], 2, "int32")])
    less = paddle.less_than(paddle.full([1], 0.1), paddle.full([1], 0.2))
    chosen = paddle.static.nn.cond(
        less, lambda: paddle.full([4, 2], 1), lambda: paddle.full([4, 3], 2)
    )
    assert (wide.shape, drawn.shape, chosen.shape) == ([3, 2], [3, 2], [4, 2])
    array = paddle.tensor.create_array("float32")
    for i in range(3):
        paddle.tensor.array_write(x + i, paddle.zeros([1], "int64") + i, array)
    last = paddle.tensor.array_read(array, paddle.tensor.array_length(array) - 1)
    fed = np.ones((2, 4), "float32")
    got = paddle.static.Executor().run(program, {"x": fed}, [wide, chosen, last])
    np.testing.assert_array_equal(got[0], np.full((3, 2), 8.0))
    np.testing.assert_array_equal(got[1], np.full((4, 2), 1))
    np.testing.assert_array_equal(got[2], fed + 2)


def test_what_runs_may_change_is_not_folded() -> None:
    x = paddle.static.data("x", [-1, 4])
    w = paddle.create_parameter([1], "float32")
    for value in (x.sum(), paddle.rand([1]), paddle.shape(x)[0], w * 2):
        with pytest.raises(CaptureError, match="static program"):
            int(value)


def test_arrays_are_checked() -> None:
    with pytest.raises(TypeError, match="list"):
        paddle.tensor.create_array("float32", "text")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="length of the array, 0"):
        paddle.tensor.array_write(paddle.ones([1]), 1, [])
    with pytest.raises(TypeError, match="array must be a list"):
        paddle.tensor.array_length(np.ones(2))  # pyright: ignore[reportArgumentType]
