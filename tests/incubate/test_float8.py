"""float8 in blocks, against NumPy: Paddle has these functions for GPUs only."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import bireme as paddle
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.incubate.nn import functional as F

# One line reads the results of all these programs.
pytestmark = pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")
RNG = np.random.RandomState(0)


def blocks(x: np.ndarray, rows: int, pow2: bool, epsilon: float = 0.0):
    """(numbers, decoding scales) one block at a time."""
    height, width = x.shape
    numbers = np.zeros(x.shape, ml_dtypes.float8_e4m3fn)
    scales = np.zeros((-(-height // rows), -(-width // 128)), np.float32)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            part = np.s_[i * rows : (i + 1) * rows, j * 128 : (j + 1) * 128]
            largest = max(float(np.abs(x[part]).max()), epsilon)
            factor = np.float32(448) / np.float32(largest) if largest else np.float32(1)
            if pow2:
                factor = np.float32(2.0 ** np.floor(np.log2(np.float64(factor))))
            numbers[part] = (x[part].astype(np.float32) * factor).astype(numbers.dtype)
            scales[i, j] = np.float32(1) / factor
    return numbers, scales


def same(got, want) -> None:
    numbers, scale = got
    assert numbers.dtype is paddle.float8_e4m3fn
    assert scale.dtype is paddle.float32
    np.testing.assert_array_equal(numbers.astype("float32").numpy(), want[0].astype(np.float32))
    np.testing.assert_array_equal(scale.numpy(), want[1])


def matrix(*shape: int) -> np.ndarray:
    x = RNG.randn(*shape).astype("float32") * np.exp(3 * RNG.randn(*shape[:-1], 1))
    return x.astype("float32")


@pytest.mark.parametrize("pow2", [True, False])
@pytest.mark.parametrize(("method", "rows"), [("1x128", 1), ("128x128", 128)])
def test_quantised_in_blocks(tier, method, rows, pow2):
    x = matrix(200, 300)
    x[0] = 0  # a block of nothing keeps its zeros
    t = paddle.to_tensor(x)
    options = {"quant_method": method, "using_pow2_scale": pow2, "output_scale_transpose": False}
    same(F.fp8_quant_blockwise(t, **options), blocks(x, rows, pow2))
    same(F.fp8_quant_blockwise(t, epsilon=5.0, **options), blocks(x, rows, pow2, 5.0))
    both = F.fp8_quant_blockwise(t, input_transpose=True, **options)
    same(both[:2], blocks(x, rows, pow2))
    same(both[2:], blocks(x.T.copy(), rows, pow2))
    only = F.fp8_quant_blockwise(t, input_transpose=True, return_transpose_only=True, **options)
    same(only, blocks(x.T.copy(), rows, pow2))
    turned = F.fp8_quant_blockwise(t, quant_method=method, using_pow2_scale=pow2)
    numbers, scale = blocks(x, rows, pow2)
    same(turned, (numbers, scale.T))


def test_exponents_four_to_an_integer(tier):
    x = matrix(4, 700)
    _, scale = F.fp8_quant_blockwise(
        paddle.to_tensor(x), using_ue8m0_scale=True, output_scale_transpose=False
    )
    assert scale.shape == [4, 2]
    assert scale.dtype is paddle.int32
    exponents = scale.numpy().view(np.uint8).reshape(4, 8)[:, :6]
    want = blocks(x, 1, True)[1]
    np.testing.assert_array_equal(2.0 ** (exponents.astype(float) - 127), want)
    with pytest.raises(InvalidArgument, match="powers of two"):
        F.fp8_quant_blockwise(paddle.to_tensor(x), using_pow2_scale=False, using_ue8m0_scale=True)


def test_products(tier):
    a, b = matrix(64, 256), matrix(130, 256)
    quant_a = F.fp8_quant_blockwise(paddle.to_tensor(a))
    quant_b = F.fp8_quant_blockwise(
        paddle.to_tensor(b), quant_method="128x128", output_scale_transpose=False
    )
    (na, sa), (nb, sb) = blocks(a, 1, True), blocks(b, 128, True)
    full_a = na.astype("float32") * np.repeat(sa, 128, 1)
    full_b = nb.astype("float32") * np.repeat(np.repeat(sb, 128, 0)[:130], 128, 1)
    want = full_a @ full_b.T
    got = F.fp8_gemm_blockwise(*quant_a, *quant_b, "float32", is_b_1d_scaled=False)
    np.testing.assert_allclose(got.numpy(), want, rtol=2e-5, atol=1e-3)
    assert np.abs(want - a @ b.T).max() / np.abs(want).max() < 0.05
    out = paddle.ones([64, 130])
    F.fp8_gemm_blockwise(*quant_a, *quant_b, "float32", out, accumulate=True, is_b_1d_scaled=False)
    np.testing.assert_allclose(out.numpy(), want + 1, rtol=2e-5, atol=1e-3)
    with pytest.raises(ShapeMismatch, match="b of shape"):
        F.fp8_gemm_blockwise(*quant_a, *quant_b, "float32")
    with pytest.raises(InvalidArgument, match="needs out"):
        F.fp8_gemm_blockwise(*quant_a, *quant_a, "float32", accumulate=True)


def test_stacks(tier):
    x = [matrix(128, 256) for _ in range(2)]
    tensors = [paddle.to_tensor(m) for m in x]
    same(
        F.fused_stack_transpose_quant(tensors), blocks(np.concatenate([m.T for m in x]), 128, False)
    )
    same(F.fused_stack_transpose_quant(tensors, False), blocks(np.concatenate(x), 128, False))
    with pytest.raises(ShapeMismatch, match="multiples of 128"):
        F.fused_stack_transpose_quant([paddle.ones([100, 128])])


@pytest.mark.parametrize("pow2", [True, False])
def test_experts_rows(pow2):
    x = matrix(384, 200)
    counts = [128, 0, 256]
    outs, scales = F.fused_transpose_split_quant(paddle.to_tensor(x), None, counts, pow2)
    assert [o.shape for o in outs] == [[200, 128], [200, 0], [200, 256]]
    for out, scale, part in ((outs[0], scales[0], x[:128]), (outs[2], scales[2], x[128:])):
        numbers, want = blocks(part.T.copy(), 1, pow2)
        same((out, scale), (numbers, want.T))
    blocks_of_four = x.reshape(3, 2, 64, 200)  # W, L, C, H
    wide, _ = F.fused_transpose_wlch_split_quant(paddle.to_tensor(blocks_of_four), [384], pow2)
    rows = blocks_of_four.transpose(1, 0, 2, 3).reshape(384, 200)
    np.testing.assert_array_equal(
        wide[0].astype("float32").numpy(), blocks(rows.T.copy(), 1, pow2)[0].astype("float32")
    )
    with pytest.raises(InvalidArgument, match="multiples of 128"):
        F.fused_transpose_split_quant(paddle.to_tensor(x), None, [384, 5])


def test_experts_rows_that_are_float8_already():
    numbers, scale = F.fp8_quant_blockwise(
        paddle.to_tensor(matrix(128, 256)), output_scale_transpose=False
    )
    outs, scales = F.fused_transpose_split_quant(numbers, scale, [128])
    decoded = numbers.astype("float32").numpy() * np.repeat(scale.numpy(), 128, 1)
    want, factors = blocks(decoded.astype(ml_dtypes.bfloat16).astype("float32").T.copy(), 1, False)
    same((outs[0], scales[0]), (want, factors.T))
    with pytest.raises(TypeMismatch, match="input_scales"):
        F.fused_transpose_split_quant(numbers, None, [128])
    assert F.fused_transpose_split_quant(paddle.zeros([0, 4]), None, []) == ([], [])


def test_swiglu(tier):
    x, prob = matrix(6, 512), RNG.rand(6).astype("float32")
    numbers, scale = F.fused_weighted_swiglu_act_quant(
        paddle.to_tensor(x).reshape([2, 3, 512]), paddle.to_tensor(prob), True
    )
    gate, value = x[:, :256], x[:, 256:]
    full = gate / (1 + np.exp(-gate.astype("float64"))) * value * prob[:, None]
    decoded = numbers.astype("float32").numpy() * np.repeat(scale.numpy(), 128, 1)
    assert numbers.shape == [6, 256]
    largest = np.abs(full).reshape(6, 2, 128).max(-1)
    assert (np.abs(decoded - full).reshape(6, 2, 128).max(-1) <= largest / 15).all()


def test_dispatched_rows():
    x, logits = matrix(10, 256), RNG.rand(10, 4).astype("float32")
    given = (paddle.to_tensor(x), paddle.to_tensor(logits), None, 2, 6, True)
    numbers, scale, *rest = F.moe_gate_dispatch_and_quant(*given, True)
    rows, *others = F.moe_gate_dispatch(*given)
    flat = rows.numpy().reshape(-1, 256)
    want = blocks(flat, 1, True)
    np.testing.assert_array_equal(
        numbers.astype("float32").numpy().reshape(-1, 256), want[0].astype("float32")
    )
    np.testing.assert_array_equal(scale.numpy().reshape(-1, 2), want[1])
    for ours, theirs in zip(rest, others, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
