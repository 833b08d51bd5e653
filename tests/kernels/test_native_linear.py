"""The native gradients of a linear layer against the plain ones in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bireme as paddle
import bireme.nn.functional as F
from bireme.core import kernels
from bireme.host import thresholds
from tests.kernels.kernel_oracle import MARKS, compiled, gradients, many

__all__ = ["compiled"]  # a fixture
pytestmark = MARKS
NAME = "native_linear"


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    monkeypatch.setattr(thresholds, "CPU_LINEAR_WORK", 1)


def _check(function, arrays):
    before = kernels.uses[NAME]
    found = gradients(function, arrays)
    assert kernels.uses[NAME] == before + 1
    with kernels.disabled(NAME):
        plain = gradients(function, [a.astype(np.float64) for a in arrays])
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5 * max(1.0, np.abs(b).max()))


@many(25)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(1, 150), st.integers(1, 150),
    st.booleans(),
)  # fmt: skip
def test_gradients(rows, n_in, n_out, bias):
    rng = np.random.default_rng(n_in * 151 + n_out)
    shapes = [(*rows, n_in), (n_in, n_out), (n_out,)][: 2 + bias]
    _check(F.linear, [rng.normal(size=s).astype(np.float32) for s in shapes])


@pytest.mark.parametrize(("rows", "n_in", "n_out"), [(2100, 7, 33), (5, 40, 1100), (97, 1030, 65)])
def test_sums_longer_than_a_panel(rows, n_in, n_out):
    rng = np.random.default_rng(rows)
    shapes = [(rows, n_in), (n_in, n_out), (n_out,)]
    _check(F.linear, [rng.normal(size=s).astype(np.float32) / 9 for s in shapes])


def test_only_the_weight():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 20)).astype(np.float32)
    weight = rng.normal(size=(20, 70)).astype(np.float32)
    _check(lambda w: F.linear(paddle.to_tensor(x).astype(w.dtype), w), [weight])


def test_a_gradient_of_the_input_alone_and_an_empty_batch_use_the_plain_rule():
    before = kernels.uses[NAME]
    x = paddle.ones([3, 4])
    x.stop_gradient = False
    F.linear(x, paddle.ones([4, 5])).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 5.0)
    weight = paddle.ones([4, 5])
    weight.stop_gradient = False
    F.linear(paddle.ones([0, 4]), weight).sum().backward()
    np.testing.assert_allclose(weight.grad.numpy(), 0.0)
    assert kernels.uses[NAME] == before


@pytest.mark.parametrize(("rows", "used"), [(1, 1), (16, 1), (17, 0), (255, 0), (256, 1)])
def test_small_and_large_layers_take_it(rows, used, monkeypatch):
    monkeypatch.setattr(thresholds, "CPU_LINEAR_SMALL_WORK", 16 * 9 * 7)
    monkeypatch.setattr(thresholds, "CPU_LINEAR_WORK", 256 * 9 * 7)
    before = kernels.uses[NAME]
    weight = np.ones((9, 7), np.float32)
    found = gradients(lambda w: F.linear(paddle.ones([rows, 9]), w), [weight])[-1]
    assert kernels.uses[NAME] == before + used
    assert found.shape == weight.shape


def test_second_derivatives():
    def second():
        w = paddle.full([6, 40], 0.3)
        w.stop_gradient = False
        x = paddle.to_tensor(np.linspace(0, 1, 30, dtype="float32").reshape(5, 6))
        (first,) = paddle.grad((F.linear(x, w) ** 3).sum(), w, create_graph=True)
        return paddle.grad((first**2).sum(), w)[0].numpy()

    found = second()
    with kernels.disabled():
        plain = second()
    np.testing.assert_allclose(found, plain, rtol=1e-3)
