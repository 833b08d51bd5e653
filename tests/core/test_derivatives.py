"""Derivatives of any order, and where in-place, hooks and PyLayer raise or work as in Paddle."""

from __future__ import annotations

import math

import numpy as np
import pytest

import bireme as paddle
import bireme.nn.functional as F
from bireme.autograd import PyLayer


def nested(function, at: float, depth: int) -> list[float]:
    """f(x) and its first `depth` derivatives at a point, each by `grad` of the one before."""
    x = paddle.to_tensor(at, dtype="float64", stop_gradient=False)
    values = [function(x)]
    for _ in range(depth):
        values.append(paddle.grad(values[-1], x, create_graph=True)[0])
    return [v.item() for v in values]


COMPOSITIONS = {
    "sin": (
        paddle.sin,
        lambda x: [math.sin(x), math.cos(x), -math.sin(x), -math.cos(x), math.sin(x), math.cos(x)],
    ),
    "exp(2x)": (lambda x: paddle.exp(2 * x), lambda x: [2**k * math.exp(2 * x) for k in range(6)]),
    "x^5": (lambda x: x**5, lambda x: [x**5, 5 * x**4, 20 * x**3, 60 * x**2, 120 * x, 120.0]),
    "1/x": (
        lambda x: 1 / x,
        lambda x: [(-1) ** k * math.factorial(k) / x ** (k + 1) for k in range(6)],
    ),
    "log": (paddle.log, lambda x: [math.log(x), 1 / x, -1 / x**2, 2 / x**3, -6 / x**4, 24 / x**5]),
    "x e^x": (lambda x: x * paddle.exp(x), lambda x: [(x + k) * math.exp(x) for k in range(6)]),
    "sqrt": (
        paddle.sqrt,
        lambda x: [
            x**0.5,
            0.5 * x**-0.5,
            -0.25 * x**-1.5,
            0.375 * x**-2.5,
            -0.9375 * x**-3.5,
            3.28125 * x**-4.5,
        ],
    ),
    "softplus' = sigmoid": (
        lambda x: F.softplus(x),
        lambda x: _softplus_derivatives(x),
    ),
    "tanh": (paddle.tanh, lambda x: _tanh_derivatives(x)),
    "matmul and sum": (
        lambda x: paddle.matmul(x.reshape([1, 1]), (x * x).reshape([1, 1])).sum(),
        lambda x: [x**3, 3 * x**2, 6 * x, 6.0, 0.0, 0.0],
    ),
    "logsumexp": (
        lambda x: paddle.logsumexp(paddle.stack([x, paddle.zeros_like(x)])),
        lambda x: _softplus_derivatives(x),
    ),
}


def _tanh_derivatives(x: float) -> list[float]:
    poly = np.polynomial.Polynomial([0, 1])
    t, one_minus = math.tanh(x), np.polynomial.Polynomial([1, 0, -1])
    values = []
    for _ in range(6):
        values.append(float(poly(t)))
        poly = poly.deriv() * one_minus
    return values


def _softplus_derivatives(x: float) -> list[float]:
    poly = np.polynomial.Polynomial([0, 1])
    s, inner = 1 / (1 + math.exp(-x)), np.polynomial.Polynomial([0, 1, -1])
    values = [math.log1p(math.exp(x))]
    for _ in range(5):
        values.append(float(poly(s)))
        poly = poly.deriv() * inner
    return values


@pytest.mark.parametrize("name", COMPOSITIONS)
@pytest.mark.parametrize("at", [0.7, 1.9])
def test_five_nested_gradients_equal_the_analytic_ones(name, at):
    function, analytic = COMPOSITIONS[name]
    np.testing.assert_allclose(nested(function, at, 5), analytic(at), rtol=1e-9, atol=1e-11)


def test_hessian_vector_product_of_a_network():
    rng = np.random.default_rng(0)
    w = paddle.to_tensor(rng.normal(size=(4, 4)), stop_gradient=False)
    x = paddle.to_tensor(rng.normal(size=(3, 4)))
    v = paddle.to_tensor(rng.normal(size=(4, 4)))

    def gradient(weight):
        loss = F.softmax(paddle.tanh(x @ weight)).square().sum()
        return paddle.grad(loss, weight, create_graph=True)[0]

    product = paddle.grad((gradient(w) * v).sum(), w)[0].numpy()
    step = 1e-6
    with_step = [
        gradient(paddle.to_tensor(w.numpy() + s * step * v.numpy(), stop_gradient=False)).numpy()
        for s in (1, -1)
    ]
    np.testing.assert_allclose(
        product, (with_step[0] - with_step[1]) / (2 * step), rtol=1e-6, atol=1e-8
    )


def test_complex_gradients_use_paddles_convention():
    z = paddle.to_tensor([1 + 2j, -0.5 + 1j], dtype="complex128", stop_gradient=False)
    (z * paddle.conj(z)).real().sum().backward()
    np.testing.assert_allclose(z.grad.numpy(), 2 * z.numpy())


class Cube(PyLayer):
    @staticmethod
    def forward(ctx, x, power=3):
        ctx.save_for_backward(x)
        ctx.power = power
        return x**power

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensor()
        return grad * ctx.power * x ** (ctx.power - 1)


def test_py_layer_first_and_second_order():
    x = paddle.to_tensor(2.0, stop_gradient=False)
    y = Cube.apply(x)
    (first,) = paddle.grad(y, x, create_graph=True)
    (second,) = paddle.grad(first, x)
    assert (y.item(), first.item(), second.item()) == (8.0, 12.0, 12.0)


def test_py_layer_with_several_results_and_an_unused_one():
    class Split(PyLayer):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            return a * 2 + b * 3

    x = paddle.to_tensor([1.0, 2.0], stop_gradient=False)
    first, _ = Split.apply(x)
    first.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2, 2])


def test_py_layer_with_a_wrong_number_of_gradients_says_so():
    class Wrong(PyLayer):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, grad):
            return grad

    x = paddle.to_tensor([1.0], stop_gradient=False)
    with pytest.raises(ValueError, match="one gradient per tensor input"):
        Wrong.apply(x, x).backward()


@pytest.mark.parametrize(("consistent", "seen"), [(True, paddle.float32), (False, paddle.float16)])
def test_py_layers_get_gradients_in_the_dtype_of_their_results(consistent, seen):
    arrived = []

    class Front(PyLayer):
        @staticmethod
        def forward(ctx, x):
            ctx.set_grad_in_dtype_consistent(consistent)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            arrived.append(grad.dtype)
            return grad * 2

    class Half(PyLayer):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return (grad * 2).astype("float16")

    x = paddle.to_tensor([1.0], stop_gradient=False)
    Half.apply(Front.apply(x)).backward()
    assert arrived == [seen]
    assert x.grad.dtype == paddle.float32
    assert x.grad.item() == 4
    x.clear_grad()
    Half.apply(x).backward()
    assert x.grad.dtype == paddle.float32


def test_a_gradient_with_a_graph_needs_a_gradient_even_if_it_is_constant():
    x = paddle.to_tensor([1.0, 2.0], stop_gradient=False)
    given = paddle.to_tensor([3.0, 4.0])
    (first,) = paddle.grad(x * 2, x, given, create_graph=True)
    assert not first.stop_gradient
    assert paddle.grad(first.sum(), x, allow_unused=True) == [None]
    (same,) = paddle.grad(x, x, given, create_graph=True)
    assert not same.stop_gradient
    assert given.stop_gradient  # the caller's own tensor


def test_hooks_change_gradients_and_can_be_removed():
    x = paddle.to_tensor([1.0], stop_gradient=False)
    handle = x.register_hook(lambda g: g * 10)
    (x * 2).backward()
    assert x.grad.item() == 20
    assert handle.remove()
    x.clear_grad()
    (x * 2).backward()
    assert x.grad.item() == 2


def test_gradients_accumulate_until_cleared():
    x = paddle.to_tensor([3.0], stop_gradient=False)
    for _ in range(2):
        (x * x).backward()
    assert x.grad.item() == 12
    x.clear_grad()
    assert x.grad is None or x.grad.item() == 0


def test_grad_of_unused_input():
    x = paddle.to_tensor([1.0], stop_gradient=False)
    unused = paddle.to_tensor([1.0], stop_gradient=False)
    with pytest.raises(ValueError, match="allow_unused"):
        paddle.grad(x * 2, unused)
    assert paddle.grad(x * 2, [x, unused], allow_unused=True)[1] is None


def test_grad_does_not_touch_leaf_grads():
    x = paddle.to_tensor([2.0], stop_gradient=False)
    w = paddle.to_tensor([5.0], stop_gradient=False)
    assert paddle.grad(x * w, x)[0].item() == 5
    assert x.grad is None
    assert w.grad is None


def test_grad_by_an_intermediate_result():
    x = paddle.to_tensor([2.0], stop_gradient=False)
    h = x * 3
    y = h * h
    assert paddle.grad(y, h)[0].item() == 12


def test_no_grad_vars_stop_the_flow():
    x = paddle.to_tensor([2.0], stop_gradient=False)
    h = x * 3
    y = h * x
    assert paddle.grad(y, x, no_grad_vars=[h])[0].item() == 6


def test_stop_gradient_on_an_intermediate_cuts_it():
    x = paddle.to_tensor([2.0], stop_gradient=False)
    h = x * 3
    h.stop_gradient = True
    y = h * x
    y.backward()
    assert x.grad.item() == 6


def test_writing_to_a_slice_under_autograd():
    x = paddle.to_tensor([1.0, 2.0, 3.0], stop_gradient=False)
    v = paddle.to_tensor(7.0, stop_gradient=False)
    h = x * 2
    h[1] = v * 3
    h.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2, 0, 2])
    assert v.grad.item() == 3
