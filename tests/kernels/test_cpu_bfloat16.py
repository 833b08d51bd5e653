"""Linear layers in bfloat16 by native kernels against float64, values and gradients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bireme as paddle
import bireme.nn.functional as F
from bireme.core import executor, kernels
from bireme.host import thresholds
from bireme.kernels import native
from tests.kernels.kernel_oracle import compiled, many

__all__ = ["compiled"]  # a fixture
pytestmark = [
    pytest.mark.skipif(
        native.load() is None or not native.has_bfloat16(),
        reason="needs AVX512-BF16 and a compiler",
    ),
    pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning"),
]
NAME = "native_bfloat16"
ROUNDING = 2.0**-8  # of a bfloat16


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch):
    monkeypatch.setattr(thresholds, "CPU_BFLOAT16_WORK", 0)


def _rounded(rng, *shape):
    """Numbers that bfloat16 holds exactly, so that only results are rounded."""
    import ml_dtypes

    return rng.normal(size=shape).astype(ml_dtypes.bfloat16).astype(np.float64)


def _train(arrays, pull, dtype):
    tensors = [paddle.to_tensor(a, dtype=dtype, stop_gradient=False) for a in arrays]
    out = F.linear(*tensors)
    found = paddle.grad(out, tensors, paddle.to_tensor(pull, dtype=dtype))
    return [t.astype("float64").numpy() for t in (out, *found)]


def _compare(batch, n_in, n_out, bias):
    rng = np.random.default_rng(n_in)
    arrays = [_rounded(rng, *batch, n_in), _rounded(rng, n_in, n_out)]
    arrays += [_rounded(rng, n_out)] if bias else []
    pull = _rounded(rng, *batch, n_out)
    executor.clear_programs()
    before = kernels.uses[NAME]
    fast = _train(arrays, pull, "bfloat16")
    assert kernels.uses[NAME] == before + 2, "the kernel was not used"
    for a, b in zip(fast, _train(arrays, pull, "float64"), strict=True):
        slack = ROUNDING * max(1.0, np.abs(b).max(initial=0.0)) / 10
        np.testing.assert_allclose(a, b, rtol=ROUNDING, atol=slack)


@many(25)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=2), st.integers(1, 70), st.integers(1, 70),
    st.booleans(),
)  # fmt: skip
def test_random_shapes(batch, pairs_in, pairs_out, bias):
    _compare(batch, 2 * pairs_in, 2 * pairs_out, bias)


@pytest.mark.parametrize("rows", [1, 97, 2111])
def test_many_rows(rows):
    """More than one job's rows, and an odd count of them."""
    _compare([rows], 26, 130, True)


def test_odd_widths_and_float32_are_left_alone():
    before = kernels.uses[NAME]
    for x, w in (((8, 7), (7, 4)), ((8, 6), (6, 5))):
        a, b = (paddle.ones(s).astype("bfloat16") for s in (x, w))
        assert (F.linear(a, b).astype("float32").numpy() == x[1]).all()
    assert (F.linear(paddle.ones([8, 6]), paddle.ones([6, 4])).numpy() == 6).all()
    assert kernels.uses[NAME] == before


def test_autocast_keeps_the_weights_gradients_in_float32():
    rng = np.random.default_rng(0)
    layer = paddle.nn.Linear(34, 18)
    x = paddle.to_tensor(rng.normal(size=(9, 34)).astype("float32"))
    before = kernels.uses[NAME]
    with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
        y = layer(x)
    y.astype("float32").sum().backward()
    assert y.dtype == paddle.bfloat16
    assert layer.weight.grad.dtype == paddle.float32
    want = np.broadcast_to(x.numpy().sum(0)[:, None], (34, 18))
    np.testing.assert_allclose(layer.weight.grad.numpy(), want, rtol=0.02, atol=0.02)
    assert kernels.uses[NAME] == before + 2
