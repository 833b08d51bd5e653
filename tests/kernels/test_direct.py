"""Native kernels op by op: the cold tier calls them on NumPy arrays, without JAX."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bireme as paddle
import bireme.nn.functional as F
from bireme import nn
from bireme.core import kernels
from bireme.core.errors import ExecutionError
from bireme.host import config
from bireme.kernels import cpu_products, native
from bireme.kernels.native import calling
from tests.kernels.kernel_oracle import MARKS

pytestmark = MARKS


@pytest.fixture(autouse=True)
def cold(monkeypatch):
    monkeypatch.setattr(config, "compile_mode", "never")
    native.load()


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def values(f: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    """The result of `f` and its gradients."""
    inputs = [paddle.to_tensor(a, stop_gradient=False) for a in arrays]
    out = f(*inputs)
    (out * out * 0.5).sum().backward()
    return [out.numpy(), *(i.grad.numpy() for i in inputs if i.grad is not None)]


def assert_same(name: str, f: Callable[..., Any], *arrays: np.ndarray) -> None:
    ran = []
    real = calling._run

    def counted(handler: str, *rest: Any) -> Any:
        ran.append(handler)
        return real(handler, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calling, "_run", counted)
        direct = values(f, *arrays)
        assert any(name in h for h in ran), ran
        ran.clear()
        with kernels.disabled():
            plain = values(f, *arrays)
        assert not ran
    assert len(direct) == len(plain) == 1 + len(arrays)
    for a, b in zip(direct, plain, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4 * float(np.abs(b).max()))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("weight", "options"),
    [
        ((6, 5, 3, 3), {"padding": 1}),
        ((20, 5, 3, 2), {"stride": [2, 1], "padding": [0, 1], "dilation": [1, 2]}),
        ((5, 1, 3, 3), {"groups": 5, "padding": 1}),
        ((4, 5, 1, 1), {}),
    ],
)
def test_convolutions(weight, options, last):
    layout = "NHWC" if last else "NCHW"
    image = numbers(2, 9, 8, 5) if last else numbers(2, 5, 9, 8)
    arrays = image, numbers(*weight, seed=1), numbers(weight[0], seed=2)

    def run(x: Any, w: Any, b: Any) -> Any:
        return F.conv2d(x, w, b, data_format=layout, **options)

    assert_same("conv" if weight[1] > 1 else "depthwise", run, *arrays)


@pytest.mark.parametrize("stride", [1, 2])
def test_transposed_convolutions(stride):
    def run(x: Any, w: Any) -> Any:
        return F.conv2d_transpose(x, w, stride=stride, padding=1)

    assert_same("conv", run, numbers(2, 5, 6, 7), numbers(5, 4, 3, 3, seed=1))


def test_attention():
    def run(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    assert_same("attention", run, *(numbers(2, 21, 3, 8, seed=i) for i in range(3)))


def test_batch_norm_and_pooling():
    layer = nn.BatchNorm2D(5)
    assert_same("channel", lambda x: F.max_pool2d(layer(x) * 2, 2), numbers(3, 5, 8, 6))
    assert_same("max_pool", lambda x: F.max_pool2d(x, 3, 2, 1), numbers(3, 5, 8, 6))


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.SimpleRNN])
def test_recurrences(cell):
    layer = cell(6, 16)
    assert_same(cell.__name__.lower().replace("simple", "simple_"), lambda x: layer(x)[0],
                numbers(3, 7, 6))  # fmt: skip


def test_linear_gradients():
    def run(x: Any, w: Any, b: Any) -> Any:
        return F.linear(x, w, b)

    assert_same("linear", run, numbers(3, 4, 6), numbers(6, 5, seed=1), numbers(5, seed=2))


@pytest.mark.parametrize("turned", [False, True])
def test_large_products(turned, monkeypatch):
    """Shared among threads in blocks that do not divide the sizes."""
    monkeypatch.setattr(calling, "threads", lambda: 3)
    monkeypatch.setattr(cpu_products, "threads", lambda: 3)
    shared: list[tuple[int, ...]] = []
    real = cpu_products.product
    monkeypatch.setattr(
        cpu_products, "product", lambda x, y: (shared.append(x.shape), real(x, y))[1]
    )
    y = numbers(190, 260, seed=1) if turned else numbers(260, 190, seed=1)
    for x in (numbers(2, 101, 260), numbers(170, 260)):
        arrays = x, y
        direct = values(lambda x, y: paddle.matmul(x, y, transpose_y=turned), *arrays)
        assert len(shared) == 3
        with kernels.disabled():
            plain = values(lambda x, y: paddle.matmul(x, y, transpose_y=turned), *arrays)
        assert len(shared) == 3
        shared.clear()
        for a, b in zip(direct, plain, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)
    out = F.linear(paddle.to_tensor(numbers(170, 260)), paddle.to_tensor(numbers(260, 190)))
    expected = numbers(170, 260) @ numbers(260, 190)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-4, atol=1e-3)
    assert len(shared) == 1


def test_whatever_a_kernel_does_not_take_goes_to_another_body():
    """A double, an empty image, a size that no register has: each has its result."""
    x = paddle.ones([1, 2, 5, 5], "float64")
    assert F.conv2d(x, paddle.ones([3, 2, 3, 3], "float64")).numpy().sum() == 3 * 9 * 18
    assert F.conv2d(paddle.ones([0, 2, 5, 5]), paddle.ones([3, 2, 3, 3])).shape == [0, 3, 3, 3]
    y, _ = nn.GRU(3, 5)(paddle.ones([2, 4, 3]))
    assert np.isfinite(y.numpy()).all()


def test_until_the_library_is_there_bodies_in_numpy_are_used(monkeypatch):
    monkeypatch.setattr(native, "_library", None)
    monkeypatch.setattr(native, "_failed", False)
    monkeypatch.setattr(native, "_waiting", object())  # somebody builds it
    monkeypatch.setattr(calling, "_run", None)
    x = F.conv2d(paddle.ones([1, 2, 5, 5]), paddle.ones([3, 2, 3, 3]))
    assert x.numpy().sum() == 3 * 9 * 18
    with pytest.raises(ExecutionError, match="not there yet"):
        calling._Plan("bireme_conv_forward", (), (), ())


def test_a_kernel_that_fails_says_why():
    x = numbers(2, 3)
    run = calling.ffi_call("bireme_layer_norm", calling.Result((2, 3)))
    with pytest.raises(ExecutionError, match=r"\[bireme_layer_norm\] .*Wrong number of arguments"):
        run(x, epsilon=np.float32(0.1))


ALONE = """
import sys
import bireme as paddle
from bireme.kernels import cpu_products, native
native.load()
x = paddle.nn.Conv2D(3, 4, 3)(paddle.ones([1, 3, 8, 8]))
print(x.numpy().shape, "jax" in sys.modules)
"""


def test_a_first_convolution_imports_no_jax():
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("(1, 4, 6, 6) False\n", "")
