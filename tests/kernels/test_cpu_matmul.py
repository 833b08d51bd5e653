"""Bfloat16 products on the CPU against float64, values and gradients, on random shapes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bireme as paddle
import bireme.nn.functional as F
from bireme.core import executor, kernels
from bireme.kernels import cpu_matmul, native
from tests.kernels.kernel_oracle import compiled, many

__all__ = ["compiled"]  # a fixture
pytestmark = [
    pytest.mark.skipif(not cpu_matmul.has_instructions(), reason="needs AVX512-BF16"),
    pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning"),
]
NAME = "bfloat16_products"
NATIVE = "native_bfloat16_linear"
ROUNDING = 2.0**-8  # of a bfloat16
BATCHES = [((), ()), ((3,), ()), ((2, 3), (3,)), ((2, 1), (1, 3)), ((0,), (0,)), ((0,), ())]


def _rounded(rng, *shape):
    """Numbers that bfloat16 holds exactly, so that only results are rounded."""
    import ml_dtypes

    return rng.normal(size=shape).astype(ml_dtypes.bfloat16).astype(np.float64)


def _train(function, arrays, pull, dtype):
    tensors = [paddle.to_tensor(a, dtype=dtype, stop_gradient=False) for a in arrays]
    out = function(*tensors)
    found = paddle.grad(out, tensors, paddle.to_tensor(pull, dtype=dtype))
    return [t.astype("float64").numpy() for t in (out, *found)]


def _compare(function, arrays, shape, rng, grad_name=NAME):
    pull = _rounded(rng, *shape)
    executor.clear_programs()
    before = kernels.uses[NAME] + kernels.uses[grad_name]
    fast = _train(function, arrays, pull, "bfloat16")
    assert kernels.uses[NAME] + kernels.uses[grad_name] >= before + 2, "a kernel was not used"
    for a, b in zip(fast, _train(function, arrays, pull, "float64"), strict=True):
        # Sums are made in float32 and rounded once (with batch dimensions by XLA, maybe twice).
        slack = ROUNDING * max(1.0, np.abs(b).max(initial=0.0)) / 10
        np.testing.assert_allclose(a, b, rtol=ROUNDING, atol=slack)


@many(20)
@given(
    st.lists(st.integers(0, 5), min_size=0, max_size=2), st.integers(1, 70), st.integers(1, 70),
    st.booleans(),
)  # fmt: skip
def test_linear(batch, n_in, n_out, bias):
    rng = np.random.default_rng(n_in)
    arrays = [_rounded(rng, *batch, n_in), _rounded(rng, n_in, n_out)]
    arrays += [_rounded(rng, n_out)] if bias else []
    empty = 0 in batch or not native.has_bfloat16()
    _compare(F.linear, arrays, (*batch, n_out), rng, NAME if empty else NATIVE)
    with kernels.disabled(NATIVE):
        _compare(F.linear, arrays, (*batch, n_out), rng)


@pytest.mark.skipif(not native.has_bfloat16(), reason="needs a C++ compiler")
def test_weight_gradients_over_many_rows():
    """More rows than one panel of the native kernel, and an odd count of them."""
    rng = np.random.default_rng(0)
    arrays = [_rounded(rng, 2111, 13), _rounded(rng, 13, 70), _rounded(rng, 70)]
    _compare(F.linear, arrays, (2111, 70), rng, NATIVE)


@many(20)
@given(
    st.sampled_from(BATCHES),
    st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.booleans(), st.booleans(),
)  # fmt: skip
def test_matmul(batches, m, k, n, transpose_x, transpose_y):
    rng = np.random.default_rng(m * 100 + n)
    x = _rounded(rng, *batches[0], *((k, m) if transpose_x else (m, k)))
    y = _rounded(rng, *batches[1], *((n, k) if transpose_y else (k, n)))

    def run(x, y):
        return paddle.matmul(x, y, transpose_x, transpose_y)

    batch = np.broadcast_shapes(*batches)
    _compare(run, [x, y], (*batch, m, n), rng)


def test_vectors():
    rng = np.random.default_rng(0)
    _compare(paddle.matmul, [_rounded(rng, 7), _rounded(rng, 7, 3)], (3,), rng)
    _compare(paddle.matmul, [_rounded(rng, 2, 3, 7), _rounded(rng, 7)], (2, 3), rng)


def test_the_trial_runs_while_a_program_is_traced():
    cpu_matmul.has_instructions.cache_clear()
    executor.clear_programs()
    before = kernels.uses[NAME]
    x = paddle.ones([3, 5]).astype("bfloat16")
    assert (x @ x.T).astype("float32").numpy().tolist() == [[5.0] * 3] * 3
    assert kernels.uses[NAME] == before + 1


def test_autocast_keeps_the_weights_gradients_in_float32():
    rng = np.random.default_rng(0)
    layer = paddle.nn.Linear(33, 17)
    x = paddle.to_tensor(rng.normal(size=(9, 33)).astype("float32"))
    before = kernels.uses[NAME] + kernels.uses[NATIVE]
    with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
        y = layer(x)
    y.astype("float32").sum().backward()
    assert y.dtype == paddle.bfloat16
    assert layer.weight.grad.dtype == paddle.float32
    assert layer.weight.grad.numpy().std() > 0
    assert kernels.uses[NAME] + kernels.uses[NATIVE] == before + 2


def test_without_the_instructions_the_plain_lowering_is_used(monkeypatch):
    never = [
        replace(k, ready=lambda: False) if k.name == NAME else k for k in kernels._by_op["matmul"]
    ]
    monkeypatch.setitem(kernels._by_op, "matmul", never)
    before = kernels.uses[NAME]
    x = paddle.ones([3, 4]).astype("bfloat16")
    assert (x @ x.T).astype("float32").numpy().tolist() == [[4.0] * 3] * 3
    assert kernels.uses[NAME] == before
