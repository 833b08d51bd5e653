"""Hooks on what ops keep for their gradients."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme.autograd import saved_tensors_hooks
from bireme.autograd.saved_tensors import _active


def _gradients(hooks: Any = None) -> list[np.ndarray]:
    x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]], stop_gradient=False)
    w = paddle.to_tensor([[0.5, -1.0], [1.0, 0.25]], stop_gradient=False)
    if hooks is None:
        loss = (paddle.tanh(x @ w) * x).exp().sum()
    else:
        with hooks:
            loss = (paddle.tanh(x @ w) * x).exp().sum()
    loss.backward()
    return [x.grad.numpy(), w.grad.numpy()]


def test_gradients_are_the_same_and_each_packed_tensor_is_unpacked(tier: str) -> None:
    packed, unpacked = [], []

    def pack(x: Any) -> Any:
        packed.append(x.shape)
        return x.numpy()

    def unpack(array: Any) -> Any:
        unpacked.append(list(array.shape))
        return paddle.to_tensor(array)

    for a, b in zip(_gradients(saved_tensors_hooks(pack, unpack)), _gradients(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert len(packed) == len(unpacked) > 0
    assert _active.hooks == []  # nothing stays behind


def test_offloading_to_disk(tmp_path: pathlib.Path) -> None:
    def pack(x: Any) -> str:
        path = str(tmp_path / f"{len(list(tmp_path.iterdir()))}.npy")
        np.save(path, x.numpy())
        return path

    hooks = saved_tensors_hooks(pack, lambda path: paddle.to_tensor(np.load(path)))
    for a, b in zip(_gradients(hooks), _gradients(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert list(tmp_path.iterdir())


def test_what_was_packed_can_be_changed() -> None:
    x = paddle.to_tensor([3.0], stop_gradient=False)
    with saved_tensors_hooks(lambda t: t, lambda t: t * 2):
        y = x * x
    (slope,) = paddle.grad(y, x, retain_graph=True)
    assert slope.item() == 12.0
    (again,) = paddle.grad(y, x)
    assert again.item() == 12.0


def test_the_innermost_hooks_count() -> None:
    seen: list[str] = []

    def named(name: str) -> saved_tensors_hooks:
        return saved_tensors_hooks(lambda t: (seen.append(name), t)[1], lambda t: t)

    x = paddle.to_tensor([3.0], stop_gradient=False)
    with named("outer"):
        x.exp()
        with named("inner"):
            x.exp()
        x.exp()
    x.exp()
    assert seen == ["outer", "inner", "outer"]


def test_second_derivatives() -> None:
    x = paddle.to_tensor([3.0], stop_gradient=False)
    with saved_tensors_hooks(lambda t: t, lambda t: t):
        y = x**3
        (first,) = paddle.grad(y, x, create_graph=True)
        (second,) = paddle.grad(first, x)
    assert second.item() == pytest.approx(18.0)


@pytest.mark.parametrize(("bad", "error"), [(7, TypeError), (paddle.ones([5]), ValueError)])
def test_unpack_must_give_the_tensor_back(bad: Any, error: type[Exception]) -> None:
    x = paddle.to_tensor([3.0], stop_gradient=False)
    with saved_tensors_hooks(lambda t: t, lambda t: bad):
        y = x * x
    with pytest.raises(error, match="unpack_hook must return"):
        y.backward()


def test_packed_tensors_say_whether_they_want_a_gradient() -> None:
    seen: list[bool] = []

    def pack(x: Any) -> Any:
        seen.append(x.stop_gradient)
        return x.numpy()

    x = paddle.to_tensor([1.0, 2.0], stop_gradient=False)
    with saved_tensors_hooks(pack, paddle.to_tensor):
        loss = (paddle.exp(x) * paddle.to_tensor([3.0, 4.0])).sum()
    assert seen == [False, True]  # a result, and an input that is a constant
    loss.backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp([1, 2]) * [3, 4], rtol=1e-6)


def test_what_a_py_layer_saves() -> None:
    class Product(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            x, y = ctx.saved_tensor()
            return grad * y, grad * x

    seen: list[str] = []
    x = paddle.to_tensor([3.0], stop_gradient=False)
    y = paddle.to_tensor([4.0], stop_gradient=False)
    with saved_tensors_hooks(
        lambda t: (seen.append("pack"), t.numpy())[1],
        lambda a: (seen.append("unpack"), paddle.to_tensor(a))[1],
    ):
        z = Product.apply(x, y)
    z.backward()
    assert seen == ["pack", "pack", "unpack", "unpack"]
    assert (x.grad.item(), y.grad.item()) == (4.0, 3.0)


def test_hooks_are_open_while_a_function_is_captured():
    layer = paddle.nn.Linear(3, 2)
    x = paddle.ones([2, 3])

    @paddle.jit.to_static
    def loss(x):
        return (layer(x) ** 2).sum()

    with paddle.autograd.saved_tensors_hooks(lambda t: t * 1.0, lambda t: t):
        loss(x).backward()
    got = layer.weight.grad.numpy()
    layer.clear_gradients()
    (layer(x) ** 2).sum().backward()
    np.testing.assert_allclose(got, layer.weight.grad.numpy(), rtol=1e-6)
