"""Ops that users define in Python: both tiers, any derivative, captured and saved."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme.core import kernels
from bireme.core.errors import BiremeError, InvalidArgument
from bireme.host import config
from bireme.utils import custom_kernel, custom_op


def cube_backward(xp, grad, x, scale):
    return 3 * scale * grad * x * x


@custom_op(backward=cube_backward)
def my_cube(xp, x, scale=1.0):
    return scale * x * x * x


@custom_op(name="test_mixed", inputs=("*xs", "shift"))
def mixed(xp, xs, shift=None, power=2):
    total = sum(x**power for x in xs)
    return (total if shift is None else total + shift), xp.sum(xs[0])


@custom_op(name="test_sorted", host=True, infer=lambda x, descending: x)
def host_sorted(xp, x, descending=False):
    assert xp is np
    assert isinstance(x, np.ndarray)
    return np.sort(x)[::-1] if descending else np.sort(x)


def host_square_backward(xp, grad, x, power):
    assert isinstance(grad, np.ndarray)
    return (power * grad * x ** (power - 1),)


@custom_op(name="test_power", host=True, backward=host_square_backward,
           infer=lambda x, power: (x.shape, x.dtype))  # fmt: skip
def host_power(xp, x, power=2):
    return x**power


def test_any_order_of_derivative(tier):
    x = paddle.to_tensor(np.linspace(-1, 1, 5), stop_gradient=False)
    y = my_cube(x, 2.0)
    np.testing.assert_allclose(y.numpy(), 2 * x.numpy() ** 3)
    (first,) = paddle.grad(y.sum(), x, create_graph=True)
    (second,) = paddle.grad(first.sum(), x, create_graph=True)
    (third,) = paddle.grad(second.sum(), x)
    np.testing.assert_allclose(first.numpy(), 6 * x.numpy() ** 2)
    np.testing.assert_allclose(second.numpy(), 12 * x.numpy(), atol=1e-12)
    np.testing.assert_allclose(third.numpy(), np.full(5, 12.0))


def test_lists_optional_inputs_and_several_results(tier):
    a, b = paddle.ones([3]), paddle.full([3], 2.0)
    a.stop_gradient = b.stop_gradient = False
    total, first = mixed([a, b], None, 3)
    assert total.tolist() == [9, 9, 9]
    assert first.item() == 3
    shifted, _ = mixed([a, b], paddle.to_tensor(1.0))
    assert shifted.tolist() == [6, 6, 6]
    (total.sum() + first).backward()  # derived
    assert a.grad.tolist() == [4, 4, 4]
    assert b.grad.tolist() == [12, 12, 12]


def test_host_functions(tier):
    x = paddle.to_tensor(np.random.default_rng(0).normal(size=200_000))
    np.testing.assert_array_equal(host_sorted(x).numpy(), np.sort(x.numpy()))
    np.testing.assert_array_equal(host_sorted(x, True).numpy(), np.sort(x.numpy())[::-1])
    y = paddle.to_tensor([1.0, 2.0, 3.0], stop_gradient=False)
    assert host_sorted(y).stop_gradient
    (host_power(y, 3) * 2).sum().backward()
    assert y.grad.tolist() == [6, 24, 54]


def test_captured_and_saved(tmp_path):
    class Net(paddle.nn.Layer):
        def forward(self, x):
            return my_cube(x, 0.5) + host_power(x, 2)

    net = paddle.jit.to_static(Net(), input_spec=[paddle.static.InputSpec([None, 3], "float32")])
    x = paddle.rand([4, 3])
    expected = 0.5 * x.numpy() ** 3 + x.numpy() ** 2
    np.testing.assert_allclose(net(x).numpy(), expected, rtol=1e-5)
    paddle.jit.save(net, str(tmp_path / "net"))
    again = paddle.jit.load(str(tmp_path / "net"))
    np.testing.assert_allclose(again(x).numpy(), expected, rtol=1e-5)


def test_kernels(monkeypatch):
    @custom_kernel(my_cube, platform="cpu", name="odd_cube", accepts=lambda x, scale: x.ndim == 1)
    def _(xp, x, scale=1.0):
        return xp.zeros_like(x)

    monkeypatch.setattr(config, "compile_mode", "always")
    assert my_cube(paddle.ones([2])).tolist() == [0, 0]
    assert my_cube(paddle.ones([2, 1])).tolist() == [[1], [1]]
    with kernels.disabled("odd_cube"):
        assert my_cube(paddle.ones([2])).tolist() == [1, 1]
    kernels.disable("odd_cube")
    with pytest.raises(InvalidArgument, match="no op named"):
        custom_kernel("unknown_op", platform="cpu")


def test_redefinition():
    @custom_op(name="test_again")
    def one(xp, x):
        return x + 1

    @custom_op(name="test_again")
    def two(xp, x):
        return x + 2

    x = paddle.zeros([1])
    assert [one(x).item(), two(x).item()] == [1, 2]


def test_errors():
    with pytest.raises(InvalidArgument, match="Bireme's own"):
        custom_op(lambda xp, x: x, name="matmul")
    with pytest.raises(InvalidArgument, match="give infer"):
        custom_op(lambda xp, x: x, name="test_host", host=True)
    with pytest.raises(TypeError, match="unknown names"):
        custom_op(lambda xp, x: x, lambda xp, grad, y: grad, name="test_names")
    wrong = custom_op(lambda xp, x: x, infer=lambda x: x.shape, name="test_wrong")
    with pytest.raises(InvalidArgument, match="infer must return"):
        wrong(paddle.ones([2, 3, 4]))
    adds = custom_op(lambda xp, x, y: x + y, name="test_adds")
    with pytest.raises(BiremeError, match=r"\[test_adds\].*shapes"):
        adds(paddle.ones([2]), paddle.ones([3]))
