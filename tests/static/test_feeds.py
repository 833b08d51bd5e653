"""What a program is fed need not be of the declared type to the letter."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import bireme as paddle
from bireme import static
from bireme.core.errors import InvalidArgument, ShapeMismatch


@pytest.fixture(autouse=True)
def programs() -> Iterator[None]:
    paddle.enable_static()
    try:
        with static.program_guard(static.Program(), static.Program()):
            yield
    finally:
        paddle.disable_static()


def _run(feed: dict[str, np.ndarray], fetched: list[paddle.Tensor]) -> list[np.ndarray]:
    return static.Executor().run(feed=feed, fetch_list=fetched)


def test_a_wider_dtype_is_converted_and_told_of() -> None:
    x = static.data("x", [2], "float32")
    with pytest.warns(UserWarning, match="must be float32. Received: float64") as told:
        (out,) = _run({"x": np.array([0.1, 0.2])}, [x * 2])
    assert told[0].filename == __file__
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, np.array([0.1, 0.2], "float32") * 2)


def test_another_kind_is_refused() -> None:
    x = static.data("x", [2], "int64")
    with pytest.raises(InvalidArgument, match=r"must be int64.*astype"):
        _run({"x": np.array([0.1, 0.2])}, [x * 2])


def test_bits_of_bfloat16() -> None:
    x = static.data("x", [2], "bfloat16")
    (out,) = _run({"x": np.array([0x3F80, 0x4000], np.uint16)}, [x.astype("float32")])
    np.testing.assert_array_equal(out, [1, 2])


def test_open_leading_sizes_may_be_left_out() -> None:
    x, w = static.data("x", [-1, 3, 3]), static.data("w", [-1, 3, 3])
    x.stop_gradient = False
    product = paddle.matmul(x, w)
    (grad,) = static.gradients(product.sum(), [x])
    a, b = np.arange(9, dtype="float32").reshape(3, 3), np.eye(3, dtype="float32")
    with pytest.warns(UserWarning, match="should have 3 dimensions"):
        out, slope = _run({"x": a, "w": b}, [product, grad])
    np.testing.assert_array_equal(out, a)
    np.testing.assert_array_equal(slope, np.ones((3, 3)))
    with pytest.raises(InvalidArgument, match=r"must have shape \[-1, 3, 3\]"):
        _run({"x": np.ones((2, 3), "float32"), "w": b}, [product])


@pytest.mark.filterwarnings("ignore:.*should have 2 dimensions")
def test_a_size_that_the_program_uses_is_not_left_out() -> None:
    x = static.data("x", [-1, 4])
    folded = paddle.reshape(x, [x.shape[0], 2, 2])
    with pytest.raises(InvalidArgument, match="size of dimension 'batch' is not known"):
        _run({"x": np.ones(4, "float32")}, [folded])


def test_open_sizes_broadcast_with_known_ones() -> None:
    x, y = static.data("x", [-1, 1]), static.data("y", [3, 5])
    x.stop_gradient = False
    z = x * y
    (grad,) = static.gradients(z.sum(), [x])
    assert z.shape == [3, 5]
    ones = np.ones((3, 5), "float32")
    for count in (3, 1):
        out, slope = _run({"x": np.ones((count, 1), "float32"), "y": ones}, [z, grad])
        np.testing.assert_array_equal(out, ones)
        np.testing.assert_array_equal(slope, np.full((count, 1), 15 / count))
    with pytest.raises(ShapeMismatch, match="do not broadcast"):
        _run({"x": np.ones((2, 1), "float32"), "y": ones}, [z])


def test_gradients_of_nothing() -> None:
    x = static.data("x", [2])
    assert static.gradients([], [x]) == [None]


def test_leaves_that_are_kept_have_gradients_in_append_backward() -> None:
    a = paddle.full([], -2.0)
    a.stop_gradient, a.persistable = False, True
    other = paddle.full([], 3.0)
    other.stop_gradient = False
    out = static.nn.cond(a >= 0, lambda: a * other, lambda: -a * other)
    ((leaf, grad),) = static.append_backward(out)
    assert leaf.is_same(a)
    assert not leaf.is_same(other)
    np.testing.assert_array_equal(_run({}, [out, grad]), [6, -3])


def test_an_unchecked_input_is_taken_as_it_comes() -> None:
    x = static.data("x", [3, 4], "float32")
    x.desc.set_need_check_feed(False)
    y = x * 2
    assert (x.desc.name(), x.desc.shape(), x.desc.need_check_feed()) == ("x", [3, 4], False)
    for array in (np.ones((5, 4), "float32"), np.ones(7, "float32"), np.ones((3, 4), "float64")):
        (out,) = _run({"x": array}, [y])
        assert out.dtype == array.dtype
        np.testing.assert_array_equal(out, array * 2)
    x.desc.set_need_check_feed(True)
    with pytest.raises(InvalidArgument, match="must have shape"):
        _run({"x": np.ones((5, 4), "float32")}, [y])


def test_only_variables_of_programs_have_a_description() -> None:
    assert not hasattr(paddle.to_tensor([1.0]), "desc")
