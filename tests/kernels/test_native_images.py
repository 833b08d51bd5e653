"""Native kernels for images: depthwise and grouped convolution, batch statistics, pooling."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

import bireme.nn.functional as F
from tests.kernels.kernel_oracle import MARKS, assert_kernel_equals_plain, compiled, many

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


@many(40)
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


@many(25)
@given(
    st.integers(1, 2), st.integers(2, 5), st.integers(1, 20), st.integers(1, 35),
    st.integers(1, 9), st.integers(1, 9), pair(st.integers(1, 3), st.integers(1, 3)),
    pair(st.integers(1, 3), st.integers(1, 3)), pair(st.integers(0, 2), st.integers(0, 2)),
    pair(st.integers(1, 2), st.integers(1, 2)), st.booleans(),
)  # fmt: skip
@example(2, 3, 1, 2, 7, 7, (3, 3), (2, 2), (1, 1), (1, 1), False)
def test_grouped_convolution(n, groups, ci, co, h, w, kernel, stride, pads, dilation, last):
    _convolve(n, groups, ci, co, h, w, kernel, stride, pads, dilation, last)
