"""Native kernels for images: depthwise and grouped convolution, batch statistics, pooling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import bireme as paddle
import bireme.nn.functional as F
from bireme.core import executor, kernels
from tests.kernels.kernel_oracle import (
    MARKS,
    assert_kernel_equals_plain,
    compiled,
    gradients,
    many,
)

__all__ = ["compiled"]  # a fixture
pytestmark = MARKS


def _floats(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def _convolve(n, groups, ci, co, h, w, kernel, stride, pads, dilation, last):
    """`ci` and `co` channels in each group."""
    (kh, kw), (ph, pw), (dh, dw) = kernel, pads, dilation
    if h + 2 * ph < dh * (kh - 1) + 1 or w + 2 * pw < dw * (kw - 1) + 1:
        return
    shape = (n, h, w, groups * ci) if last else (n, groups * ci, h, w)
    arrays = _floats(n + groups + h, shape, (groups * co, ci, kh, kw), (groups * co,))

    def run(x, weight, b):
        return F.conv2d(
            x, weight, b, stride=stride, padding=pads, dilation=dilation, groups=groups,
            data_format="NHWC" if last else "NCHW",
        )  # fmt: skip

    assert_kernel_equals_plain("native_conv", run, arrays)


pair = st.tuples


@many(16)
@given(
    st.integers(1, 3), st.integers(1, 70), st.integers(1, 22), st.integers(1, 22),
    pair(st.integers(1, 7), st.integers(1, 7)), pair(st.integers(1, 3), st.integers(1, 3)),
    pair(st.integers(0, 4), st.integers(0, 4)), pair(st.integers(1, 3), st.integers(1, 3)),
    st.booleans(),
)  # fmt: skip
@example(2, 72, 28, 28, (5, 5), (2, 2), (2, 2), (1, 1), False)
@example(1, 16, 3, 30, (3, 3), (1, 1), (1, 1), (1, 1), False)
def test_depthwise_convolution(n, channels, h, w, kernel, stride, pads, dilation, last):
    _convolve(n, channels, 1, 1, h, w, kernel, stride, pads, dilation, last)


@many(10)
@given(
    st.integers(1, 2), st.integers(2, 5), st.integers(1, 20), st.integers(1, 35),
    st.integers(1, 9), st.integers(1, 9), pair(st.integers(1, 3), st.integers(1, 3)),
    pair(st.integers(1, 3), st.integers(1, 3)), pair(st.integers(0, 2), st.integers(0, 2)),
    pair(st.integers(1, 2), st.integers(1, 2)), st.booleans(),
)  # fmt: skip
@example(2, 3, 1, 2, 7, 7, (3, 3), (2, 2), (1, 1), (1, 1), False)
@example(2, 2, 18, 33, 6, 7, (3, 3), (1, 1), (1, 1), (1, 1), False)
def test_grouped_convolution(n, groups, ci, co, h, w, kernel, stride, pads, dilation, last):
    _convolve(n, groups, ci, co, h, w, kernel, stride, pads, dilation, last)


@many(10)
@given(
    st.integers(1, 3), st.integers(16, 40), st.integers(16, 70), st.integers(1, 14),
    st.integers(1, 14), pair(st.integers(0, 3), st.integers(0, 3)), st.booleans(),
)  # fmt: skip
@example(2, 16, 17, 20, 21, (1, 1), False)  # many tiles
@example(3, 83, 101, 5, 4, (1, 1), True)  # many kernels
@example(2, 33, 210, 4, 4, (1, 1), False)  # few tiles, many blocks of results
@example(1, 210, 33, 4, 5, (0, 2), False)
def test_convolution_of_three_by_three(n, ci, co, h, w, pads, last):
    """Winograd's algorithm, as far as the sizes suit it."""
    _convolve(n, 1, ci, co, h, w, (3, 3), (1, 1), pads, (1, 1), last)


@pytest.mark.parametrize(
    ("shape", "kernel", "stride"),
    [((2, 256, 9, 9), 3, 2), ((2, 256, 8, 8), 3, 1), ((4, 3, 96, 96), 7, 2)],
    ids=["many channels", "many channels, Winograd", "many pixels"],
)
def test_long_sums_round_like_short_ones(shape, kernel, stride):
    """Thousands of products added one after the other would be several times less exact."""
    x, weight = _floats(0, shape, (32, shape[1], kernel, kernel))
    arrays = [np.maximum(x, 0), weight]

    def run(x, weight):
        return F.conv2d(x, weight, stride=stride, padding=kernel // 2)

    executor.clear_programs()
    found = gradients(run, arrays)
    with kernels.disabled("native_conv"):
        exact = gradients(run, [a.astype(np.float64) for a in arrays])
    for a, b in zip(found, exact, strict=True):
        assert np.linalg.norm(a - b) < 4e-7 * np.linalg.norm(b)


@many(6)
@given(
    st.integers(1, 2), st.integers(1, 3), st.integers(1, 20), st.integers(1, 35),
    pair(st.integers(1, 7), st.integers(1, 7)), pair(st.integers(2, 4), st.integers(2, 4)),
    pair(st.integers(1, 3), st.integers(1, 3)), st.integers(0, 1), st.integers(0, 1),
    st.booleans(),
)  # fmt: skip
@example(2, 1, 32, 16, (6, 6), (2, 2), (2, 2), 0, 0, False)
@example(1, 6, 1, 1, (6, 5), (3, 3), (2, 2), 1, 1, False)
def test_transposed_convolution(n, groups, ci, co, space, kernel, stride, pad, more, last):
    more = min(more, min(stride) - 1)
    shape = (n, *space, groups * ci) if last else (n, groups * ci, *space)
    sizes = [(s - 1) * t + k for s, t, k in zip(space, stride, kernel, strict=True)]
    if min(sizes) + more <= 2 * pad:
        return
    arrays = _floats(n + co, shape, (groups * ci, co, *kernel), (groups * co,))

    def run(x, weight, b):
        return F.conv2d_transpose(
            x, weight, b, stride=list(stride), padding=pad, output_padding=more, groups=groups,
            data_format="NHWC" if last else "NCHW",
        )  # fmt: skip

    assert_kernel_equals_plain("native_conv", run, arrays)


@many(8)
@given(
    st.integers(1, 5), st.integers(1, 70), st.integers(1, 12), st.integers(1, 12), st.booleans(),
    st.booleans(), st.sampled_from([0.0, 300.0]),
)  # fmt: skip
def test_batch_norm(n, channels, h, w, last, affine, offset):
    if n * h * w < 2:
        return
    shape = (n, h, w, channels) if last else (n, channels, h, w)
    x, scale, shift = _floats(n * 100 + h, shape, (channels,), (channels,))
    start = np.zeros(channels, np.float32), np.ones(channels, np.float32)
    kept = []

    def run(x, *affine_parts):
        running = [paddle.to_tensor(a.astype(x.numpy().dtype)) for a in start]
        y = F.batch_norm(
            x, *running, *affine_parts, training=True, epsilon=1e-2,
            data_format="NHWC" if last else "NCHW",
        )  # fmt: skip
        kept.append([r.numpy() for r in running])
        return y * paddle.cos(y)

    arrays = [x + np.float32(offset), scale, shift] if affine else [x + np.float32(offset)]
    # With a large offset the input itself is only known to so many digits.
    rtol = 5e-3 if offset else 5e-4
    assert_kernel_equals_plain("native_batch_norm", run, arrays, rtol)
    for fast, plain in zip(*kept, strict=True):
        np.testing.assert_allclose(fast, plain, rtol=1e-5, atol=1e-6)


def test_batch_norm_of_rows():
    arrays = _floats(3, (50, 37), (37,), (37,))

    def run(x, weight, bias):
        zeros = paddle.zeros([37], x.dtype)
        return F.batch_norm(x, zeros, zeros + 1, weight, bias, training=True, data_format="NC")

    assert_kernel_equals_plain("native_batch_norm", run, arrays)


@many(10)
@given(
    st.integers(1, 3), st.integers(1, 40), st.integers(4, 14), st.integers(4, 14),
    pair(st.integers(1, 4), st.integers(1, 4)), pair(st.integers(1, 3), st.integers(1, 3)),
    st.integers(0, 2), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_max_pooling(n, channels, h, w, kernel, stride, pad, ceil_mode, last, ties):
    shape = (n, h, w, channels) if last else (n, channels, h, w)
    (x,) = _floats(n * 100 + h, shape)
    if ties:
        x = np.round(x)
    pads = [min(pad, k // 2) for k in kernel]

    def run(x):
        y = F.max_pool2d(
            x, list(kernel), list(stride), pads, ceil_mode=ceil_mode,
            data_format="NHWC" if last else "NCHW",
        )  # fmt: skip
        return paddle.clip(y, -100, 100)  # windows that lie outside the image are -inf

    assert_kernel_equals_plain("native_max_pool", run, [x])


def test_max_pooling_hands_a_nan_on():
    x = np.zeros((1, 17, 4, 4), np.float32)
    x[0, 3, 0, 1] = x[0, 16, 3, 3] = np.nan
    y = F.max_pool2d(paddle.to_tensor(x), 2).numpy()
    assert np.isnan(y[0, 3, 0, 0])
    assert np.isnan(y[0, 16, 1, 1])
    assert np.isnan(y).sum() == 2
