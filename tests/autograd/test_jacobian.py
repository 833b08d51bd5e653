"""Jacobians and Hessians against Paddle: every way to index them, with and without a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bireme

VECTOR = np.arange(1, 4, dtype="float32")
BATCH = np.arange(12, dtype="float32").reshape(4, 3) / 5


def leaf(p: Any, value: Any) -> Any:
    return p.to_tensor(np.asarray(value, "float32"), stop_gradient=False)


def mixed(x: Any) -> Any:
    return x**2 * x.sum()


def mixed_batch(x: Any) -> Any:
    return x**2 * x.sum(1, keepdim=True)


INDICES = [
    (slice(None),), (1,), (slice(None), 0), (-1, -2), (slice(0, 2), slice(1, None)),
    (0, slice(None, None, 2)),
]  # fmt: skip


def tensors(found: Any) -> list[Any]:
    if isinstance(found, list | tuple):
        return [t for one in found for t in tensors(one)]
    return [found]


def check(run: Callable[[Any], Any], paddle: Any) -> None:
    theirs, ours = tensors(run(paddle)), tensors(run(bireme))
    assert len(theirs) == len(ours)
    for a, b in zip(ours, theirs, strict=True):
        assert list(a.shape) == list(b.shape)
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_parts_of_a_jacobian(index: Any, paddle: Any) -> None:
    def run(p: Any) -> Any:
        x = leaf(p, VECTOR)
        return p.autograd.jacobian(mixed(x), x)[index]

    check(run, paddle)


@pytest.mark.parametrize("index", [(slice(None),), (1, 2), (slice(None), 0), (0, 1, 2)], ids=str)
def test_parts_of_a_batched_jacobian(index: Any, paddle: Any) -> None:
    def run(p: Any) -> Any:
        x = leaf(p, BATCH)
        return p.autograd.jacobian(mixed_batch(x), x, batch_axis=0)[index]

    check(run, paddle)


def _number_by_vector(p: Any) -> Any:
    x = leaf(p, VECTOR)
    found = p.autograd.jacobian(x.sum() ** 2, x)
    return found[:], found[1], found * 2 - 1


def _vector_by_number(p: Any) -> Any:
    x = leaf(p, 2.0)
    return p.autograd.jacobian(x * p.ones([3]), x)[:]


def _number_by_number(p: Any) -> Any:
    x = leaf(p, 2.0)
    return p.autograd.jacobian(x * x, x) + 0


def _several(p: Any) -> Any:
    x, y = leaf(p, VECTOR), leaf(p, 2 * VECTOR)
    return [j[:] for row in p.autograd.jacobian([x**2 * y, x + y], [x, y]) for j in row]


def _unrelated(p: Any) -> Any:
    return p.autograd.jacobian(leaf(p, VECTOR) ** 2, leaf(p, VECTOR))[:]


def _computed_with(p: Any) -> Any:
    x = leaf(p, VECTOR)
    found = p.autograd.jacobian(x**3, x)
    return found @ found, found > 1, found.sum(), found.numpy() is not None and found[:]


def _second(p: Any) -> Any:
    x = leaf(p, VECTOR)
    found = p.autograd.hessian((x**3).sum() * x[0], x)
    return found[:], found[0, 1], found[2]


def _second_of_a_batch(p: Any) -> Any:
    x = leaf(p, BATCH)
    return p.autograd.hessian((x**3).sum(1) * x[:, 0], x, batch_axis=0)[:]


CASES = [_number_by_vector, _vector_by_number, _number_by_number, _several, _unrelated,
         _computed_with, _second, _second_of_a_batch]  # fmt: skip


@pytest.mark.parametrize("run", CASES, ids=lambda f: f.__name__)
def test_equals_paddle(run: Callable[[Any], Any], paddle: Any) -> None:
    check(run, paddle)


def test_a_hessian_in_blocks() -> None:
    x, y = leaf(bireme, VECTOR), leaf(bireme, 2 * VECTOR)
    blocks = bireme.autograd.hessian((x**2 * y).sum(), (x, y))
    assert type(blocks[0][1]).__name__ == "Hessian"
    np.testing.assert_allclose(blocks[0][0][:].numpy(), np.diag(4 * VECTOR))
    np.testing.assert_allclose(blocks[0][1][:].numpy(), np.diag(2 * VECTOR))
    np.testing.assert_allclose(blocks[1][1][:].numpy(), np.zeros((3, 3)))


def test_second_derivatives_that_are_zero_need_a_gradient_too() -> None:
    x, y = (bireme.to_tensor([1.0, 2.0], stop_gradient=False) for _ in range(2))
    for row in bireme.autograd.hessian(x.sum() + y.sum(), (x, y)):
        for block in row:
            np.testing.assert_array_equal(block[:].numpy(), np.zeros((2, 2)))
            assert not block[:].stop_gradient


def test_a_jacobian_can_be_differentiated() -> None:
    x = leaf(bireme, VECTOR)
    found = bireme.autograd.jacobian(x**3, x)
    (slope,) = bireme.grad((found[:] ** 2).sum(), x)
    np.testing.assert_allclose(slope.numpy(), 36 * VECTOR**3, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: bireme.autograd.jacobian(x, x, batch_axis=1), ValueError),
        (lambda x: bireme.autograd.jacobian(x.reshape([1, 3, 1]), x), ValueError),
        (lambda x: bireme.autograd.hessian(x * x, x), ValueError),
        (lambda x: bireme.autograd.jacobian(x * x, x)[...], IndexError),
        (lambda x: bireme.autograd.jacobian(x * x, x)[3], IndexError),
        (lambda x: bireme.autograd.jacobian(x * x, x)[0, 0, 0], IndexError),
        (lambda x: bireme.autograd.jacobian(x * x, x)["a"], TypeError),
    ],
)
def test_what_is_refused(call: Callable[[Any], Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="Received"):
        call(leaf(bireme, VECTOR))
