"""Second and third derivatives in the cold tier: as in compiled programs, and without JAX."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme.backends import numpy_backend, numpy_gradient, traced_numpy
from bireme.host import config

F = paddle.nn.functional


def _written(x: paddle.Tensor, row: paddle.Tensor) -> paddle.Tensor:
    x[1] = row
    return x


FUNCTIONS = {
    "exp": lambda x, w: paddle.exp(x * 0.3),
    "expm1": lambda x, w: paddle.expm1(x),
    "log": lambda x, w: paddle.log(x * x + 1),
    "log1p": lambda x, w: paddle.log1p(x * x),
    "sqrt": lambda x, w: paddle.sqrt(x * x + 0.5),
    "rsqrt": lambda x, w: paddle.rsqrt(x * x + 0.5),
    "sin": lambda x, w: paddle.sin(x),
    "cos": lambda x, w: paddle.cos(x),
    "sinh": lambda x, w: paddle.sinh(x),
    "cosh": lambda x, w: paddle.cosh(x),
    "tanh": lambda x, w: paddle.tanh(x),
    "sigmoid": lambda x, w: F.sigmoid(x),
    "silu": lambda x, w: F.silu(x),
    "softplus": lambda x, w: F.softplus(x),
    "power": lambda x, w: x**3 + (x * x + 1) ** 1.5,
    "divide": lambda x, w: w[:, 0] / (x * x + 1),
    "square": lambda x, w: paddle.square(x) * x,
    "abs": lambda x, w: paddle.abs(x) * x,
    "where": lambda x, w: paddle.where(x > 0, x**3, x * x),
    "maximum": lambda x, w: paddle.maximum(x * x, paddle.tanh(x)) * x,
    "relu": lambda x, w: F.relu(x) ** 2,
    "matmul": lambda x, w: paddle.matmul(x * x, w) * paddle.matmul(x, w),
    "batched": lambda x, w: paddle.matmul(paddle.stack([x, x * x]), w) ** 2,
    "turned": lambda x, w: paddle.matmul(w, x * x, transpose_x=True, transpose_y=True) ** 2,
    "linear": lambda x, w: paddle.tanh(F.linear(x, w, w[0])),
    "softmax": lambda x, w: F.softmax(x, axis=-1) * x,
    "mean": lambda x, w: (x - x.mean(-1, keepdim=True)) ** 3,
    "sum": lambda x, w: x.sum(0) ** 3,
    "slices": lambda x, w: x[:, 1:] ** 2 * x[:, :-1],
    "writes": lambda x, w: _written(x * x, x[0] * x[1]) * x,
    "concat": lambda x, w: paddle.concat([x, x * x], axis=1) ** 2,
    "stack": lambda x, w: paddle.stack([x, x * x], axis=-1) ** 2,
    "reshape": lambda x, w: x.reshape([-1]) ** 2 * x.transpose([1, 0]).reshape([-1]),
    "broadcast": lambda x, w: x[:, :1] * x[:1] * x,
    "cumprod": lambda x, w: paddle.cumprod(x, dim=1),
    "mse_loss": lambda x, w: F.mse_loss(paddle.tanh(x), w[:, 0].expand([3, 4])),
    "layer_norm": lambda x, w: F.layer_norm(x, [4], weight=w[0, :4] + 1, bias=w[1, :4]) ** 2,
}


def _leaf(shape: list[int], seed: int) -> paddle.Tensor:
    values = np.random.RandomState(seed).randn(*shape)
    return paddle.to_tensor(values, dtype="float64", stop_gradient=False)


def _orders(name: str, x: paddle.Tensor) -> list[paddle.Tensor]:
    """Scalars, each computed with a derivative of one order more, and the last one's gradient."""
    y = FUNCTIONS[name](x, _leaf([4, 4], 2))
    found = [(y * y).sum() * 0.5]
    for order in range(3):
        (slope,) = paddle.grad(found[-1], [x], create_graph=order < 2)
        found.append((slope * slope).sum() if order < 2 else slope)
    return found


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Only the cold tier; the ops that JAX computed there."""
    compiled: list[str] = []
    one_op = numpy_backend._one_op
    monkeypatch.setattr(config, "compile_mode", "never")
    monkeypatch.setattr(
        numpy_backend, "_one_op", lambda c: (compiled.append(c.op.name), one_op(c))[1]
    )
    return compiled


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_of_three_orders_are_slopes(name, cold):
    x, step = _leaf([3, 4], 1), 1e-5
    third = _orders(name, x)[-1]
    way = np.random.RandomState(3).randn(3, 4)
    ends = [_orders(name, paddle.to_tensor(x.numpy() + s * way, stop_gradient=False))
            for s in (step, -step)]  # fmt: skip
    slope = (ends[0][2].item() - ends[1][2].item()) / (2 * step)
    np.testing.assert_allclose((third.numpy() * way).sum(), slope, rtol=1e-5, atol=1e-5)
    assert cold == []


@pytest.mark.parametrize("name", ["linear", "softmax"])
def test_both_tiers_agree(name, both_tiers):
    both_tiers(lambda: _orders(name, _leaf([3, 4], 1)), rtol=1e-9)


def test_a_product_with_zeros_has_an_exact_gradient(both_tiers):
    def gradient():
        x = paddle.to_tensor([[2.0, 0.0, 3.0, 0.0, 4.0]], stop_gradient=False)
        (paddle.cumprod(x, dim=1) * paddle.arange(1.0, 6.0)).sum().backward()
        return x.grad

    np.testing.assert_allclose(both_tiers(gradient), [[1, 22, 0, 0, 0]])


def test_equal_elements_share_a_gradient_as_in_compiled_programs(both_tiers):
    def gradient():
        x = paddle.to_tensor([1.0, -1.0, 0.0], stop_gradient=False)
        y = paddle.maximum(x, x * x) + paddle.minimum(x, -x) + paddle.abs(x)
        (first,) = paddle.grad((y * y).sum(), [x], create_graph=True)
        return [first, paddle.grad((first * x).sum(), [x])[0]]

    both_tiers(gradient)


def test_what_is_not_traced_is_left_to_jax(both_tiers):
    def gradient():
        x = _leaf([3, 3], 3)
        (first,) = paddle.grad(F.gelu(x).sum() + paddle.linalg.det(x), [x], create_graph=True)
        return paddle.grad((first * first).sum(), [x])[0]

    both_tiers(gradient, rtol=1e-4, atol=1e-4)


def test_a_traced_array_is_read_by_nobody():
    with pytest.raises(numpy_gradient.NotTraced):
        numpy_gradient.pull_back(
            lambda xs: [traced_numpy.namespace.sort(xs[0])], [np.ones(3)], [np.ones(3)], []
        )
    for use in (np.asarray, bool, list, np.sort):
        with pytest.raises(numpy_gradient.NotTraced):
            numpy_gradient.pull_back(
                lambda xs, use=use: [use(xs[0])], [np.ones(1)], [np.ones(1)], []
            )
