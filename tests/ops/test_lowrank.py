"""Products of 8-bit floats, which Paddle computes on GPUs only."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle


def test_fp8_product_is_summed_in_single_and_rounded_to_half(tier: str) -> None:
    rng = np.random.default_rng(0)
    x = paddle.to_tensor(rng.normal(size=(3, 5)).astype("float32")).astype("float8_e4m3fn")
    y = paddle.to_tensor(rng.normal(size=(4, 5)).astype("float32")).astype("float8_e4m3fn")
    bias = paddle.ones([4], "float16")
    out = paddle.linalg.fp8_fp8_half_gemm_fused(
        x, y, transpose_y=True, bias=bias, scale=0.5, act="relu"
    )
    wide = x.astype("float32").numpy() @ y.astype("float32").numpy().T
    assert out.dtype is paddle.float16
    np.testing.assert_allclose(out.numpy(), np.maximum(0.5 * wide + 1, 0), rtol=1e-3, atol=1e-3)


def test_fp8_product_refuses_wider_numbers() -> None:
    with pytest.raises(TypeError, match="float8"):
        paddle.linalg.fp8_fp8_half_gemm_fused(paddle.ones([2, 2]), paddle.ones([2, 2]))
