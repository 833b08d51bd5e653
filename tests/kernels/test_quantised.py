"""Products with quantised blocks: the native kernel against the dequantised product."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme.core import kernels
from bireme.core.errors import ShapeMismatch
from bireme.kernels import native
from bireme.ops import quantised
from bireme.ops.block_formats import BLOCK_FORMATS
from tests.kernels.kernel_oracle import MARKS

pytestmark = MARKS
NAME = "quantised_linear"
FORMATS = list(BLOCK_FORMATS)
# Rows of activations, rows of weights, blocks in a row: odd ones, whole chunks of 256 columns and
# parts of them, and both ways to multiply (by rows, and by panels from 17 rows on).
SIZES = [(1, 1, 1), (1, 37, 3), (3, 5, 9), (16, 33, 2), (17, 31, 1), (40, 70, 10)]


@pytest.fixture(autouse=True)
def there() -> None:
    native.load()


def blocks_of(form: str, rows: int, count: int, seed: int = 0) -> np.ndarray:
    """Random blocks whose scales are small and finite."""
    f = BLOCK_FORMATS[form]
    made = np.random.default_rng(seed).integers(0, 256, (rows, count * f.size), dtype=np.uint8)
    scale = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
    for at in scale.get(form, (0, 2) if form.endswith("_1") else (0,)):
        made[:, at + 1 :: f.size] = made[:, at + 1 :: f.size] & 0x80 | 0x2C
    return made


def rounded(x: np.ndarray) -> np.ndarray:
    """The activations as the kernel sees them: 8 bits with a scale for each 32."""
    groups = x.astype(np.float64).reshape(*x.shape[:-1], -1, 32)
    scale = np.abs(groups).max(-1, keepdims=True) / 127
    return (np.rint(groups / np.where(scale, scale, 1)) * scale).reshape(x.shape)


def weight_of(blocks: np.ndarray, form: str) -> np.ndarray:
    return quantised.unpacked(np, blocks, form).astype(np.float64)


def close(found: np.ndarray, wanted: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(found, wanted, atol=tolerance * np.abs(wanted).max(), rtol=0)


@pytest.mark.parametrize("form", FORMATS)
def test_products(form: str, tier: str) -> None:
    for m, n, count in SIZES:
        blocks = blocks_of(form, n, count, m)
        rng = np.random.default_rng(n)
        x = rng.standard_normal((m, count * BLOCK_FORMATS[form].count)).astype(np.float32)
        x[0, :32] = 0
        bias = rng.standard_normal(n).astype(np.float32)
        given = [paddle.to_tensor(a) for a in (x, blocks, bias)]
        found = quantised.quantised_linear(*given, form).numpy()
        weight = weight_of(blocks, form).T
        # An activation on the border between two integers may be rounded either way.
        close(found, rounded(x) @ weight + bias, 2e-3)
        close(found, x @ weight + bias, 0.05)


def test_the_kernel_runs_in_both_tiers(tier: str) -> None:
    before = kernels.uses[NAME]
    x = paddle.ones([2, 3, 64])
    blocks = paddle.to_tensor(blocks_of("Q4_0", 5, 2))
    found = quantised.quantised_linear(x, blocks, None, "Q4_0")
    wanted = np.ones((2, 3, 64)) @ weight_of(blocks.numpy(), "Q4_0").T
    close(found.numpy(), wanted, 1e-5)
    assert (kernels.uses[NAME] > before) == (tier == "xla")


@pytest.mark.parametrize("form", FORMATS)
def test_gradients_are_those_of_the_dequantised_product(form: str, tier: str) -> None:
    count = 2
    blocks = blocks_of(form, 7, count)
    x = np.random.default_rng(1).standard_normal((2, 3, count * BLOCK_FORMATS[form].count))
    given = paddle.to_tensor(x.astype(np.float32), stop_gradient=False)
    bias = paddle.zeros([7])
    bias.stop_gradient = False
    grad = np.random.default_rng(2).standard_normal((2, 3, 7)).astype(np.float32)
    found = quantised.quantised_linear(given, paddle.to_tensor(blocks), bias, form)
    found.backward(paddle.to_tensor(grad))
    assert given.grad is not None
    assert bias.grad is not None
    close(given.grad.numpy(), grad.astype(np.float64) @ weight_of(blocks, form), 1e-5)
    close(bias.grad.numpy(), grad.sum((0, 1)), 1e-5)


@pytest.mark.parametrize("form", FORMATS)
def test_rows_of_a_table(form: str, tier: str) -> None:
    blocks = blocks_of(form, 9, 2)
    ids = np.array([[3, 0, 8], [3, 3, 1]])
    found = quantised.quantised_rows(paddle.to_tensor(ids), paddle.to_tensor(blocks), form)
    close(found.numpy(), weight_of(blocks, form)[ids], 1e-6)


def test_what_is_no_number_stays_visible(tier: str) -> None:
    x = np.ones((20, 64), np.float32)
    x[0, 3], x[1, 40] = np.inf, np.nan
    blocks = paddle.to_tensor(blocks_of("Q4_1", 4, 2))
    found = quantised.quantised_linear(paddle.to_tensor(x), blocks, None, "Q4_1").numpy()
    assert not np.isfinite(found[:2]).any()
    assert np.isfinite(found[2:]).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_keeps_its_type(dtype: str, tier: str) -> None:
    blocks = blocks_of("Q8_0", 6, 2)
    x = paddle.ones([3, 64], dtype)
    found = quantised.quantised_linear(x, paddle.to_tensor(blocks), None, "Q8_0")
    assert found.dtype == x.dtype
    close(found.astype("float32").numpy(), np.ones((3, 64)) @ weight_of(blocks, "Q8_0").T, 0.02)


def test_wrong_sizes_say_what_is_wrong() -> None:
    blocks = paddle.to_tensor(blocks_of("Q4_0", 5, 2))
    with pytest.raises(ShapeMismatch, match="64 numbers"):
        quantised.quantised_linear(paddle.ones([2, 32]), blocks, None, "Q4_0")
    with pytest.raises(ShapeMismatch, match="144 bytes"):
        quantised.quantised_linear(paddle.ones([2, 64]), blocks, None, "Q4_K")
