"""Derivatives of functions, forwards and backwards, against Paddle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bireme
from bireme.incubate import autograd as ours

A = np.arange(1, 7, dtype="float32").reshape(2, 3) / 4
B = np.arange(6, 0, -1).astype("float32").reshape(2, 3) / 3


def square_product(x: Any, y: Any) -> Any:
    return x * x @ y.transpose([1, 0])


def two(x: Any) -> Any:
    return x.sin(), (x * x).sum()


def flat(found: Any) -> list[Any]:
    if isinstance(found, list | tuple):
        return [t for one in found for t in flat(one)]
    return [found]


def _vjp(p: Any) -> Any:
    auto, a, b = p.incubate.autograd, p.to_tensor(A), p.to_tensor(B)
    return [
        auto.vjp(p.sin, a),
        auto.vjp(p.sin, a, b),
        auto.vjp(square_product, [a, b]),
        auto.vjp(two, a, [b, p.to_tensor(3.0)]),
    ]


def _jvp(p: Any) -> Any:
    auto, a, b = p.incubate.autograd, p.to_tensor(A), p.to_tensor(B)
    return [
        auto.jvp(p.sin, a),
        auto.jvp(p.exp, a, b),
        auto.jvp(square_product, [a, b], [b, a]),
        auto.jvp(square_product, [a, b]),
    ]


def _jacobian(p: Any) -> Any:
    auto, a, b = p.incubate.autograd, p.to_tensor(A), p.to_tensor(B)
    both = auto.Jacobian(square_product, [a, b])
    batch = auto.Jacobian(lambda x: x**2 * x.sum(1, keepdim=True), a, is_batched=True)
    return [both[:], both[1], both[:, 2], both[0:2, 1:3], batch[:], batch[:, 1], batch[0, :, 2]]


def _hessian(p: Any) -> Any:
    auto, a = p.incubate.autograd, p.to_tensor(A)
    plain = auto.Hessian(lambda x: (x**3).sum(), a)
    batch = auto.Hessian(lambda x: (x**3).sum(1, keepdim=True), a, is_batched=True)
    return [plain[:], plain[1], batch[:]]


@pytest.mark.parametrize("run", [_vjp, _jvp, _jacobian, _hessian], ids=lambda f: f.__name__)
def test_equals_paddle(run: Callable[[Any], Any], paddle: Any) -> None:
    for a, b in zip(flat(run(bireme)), flat(run(paddle)), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)


def test_forward_grad_needs_the_switch() -> None:
    x = bireme.to_tensor(A, stop_gradient=False)
    y = (x * x).sum(1)
    with pytest.raises(RuntimeError, match="enable_prim"):
        ours.forward_grad(y, x)
    ours.enable_prim()
    try:
        found = ours.forward_grad(y, x, bireme.to_tensor(B))
        np.testing.assert_allclose(found.numpy(), (2 * A * B).sum(1), rtol=1e-6)
        (ones,) = ours.forward_grad([y], [x])
        np.testing.assert_allclose(ones.numpy(), (2 * A).sum(1), rtol=1e-6)
    finally:
        ours.disable_prim()


def test_grad_of_grad() -> None:
    x = bireme.to_tensor(A, stop_gradient=False)
    first = ours.grad((x**3).sum(), x)
    second = ours.grad(first, x, bireme.to_tensor(B))
    np.testing.assert_allclose(second.numpy(), 6 * A * B, rtol=1e-6)


def test_shapes() -> None:
    x = bireme.to_tensor(A)
    assert ours.Jacobian(square_product, [x, x]).shape == (4, 12)
    assert ours.Hessian(lambda x: x.sum(1), x, is_batched=True).shape == (2, 3, 3)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: ours.vjp(3, x), TypeError),
        (lambda x: ours.vjp(bireme.sin, "x"), TypeError),
        (lambda x: ours.vjp(bireme.sin, x, bireme.ones([2])), RuntimeError),
        (lambda x: ours.jvp(bireme.sin, x, [x, x]), RuntimeError),
        (lambda x: ours.Hessian(lambda x: x, x), RuntimeError),
    ],
)
def test_what_is_refused(call: Callable[[Any], Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="Received"):
        call(bireme.to_tensor(A))
