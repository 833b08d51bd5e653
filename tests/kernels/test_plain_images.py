"""Convolution and batch norm as XLA computes them where there is no native library."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import bireme as paddle
import bireme.nn.functional as F
from bireme.core import executor, kernels
from bireme.host import thresholds
from bireme.kernels import native
from tests.kernels.kernel_oracle import assert_kernel_equals_plain, compiled, gradients, many

__all__ = ["compiled"]  # a fixture
pytestmark = pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")


@pytest.fixture(autouse=True)
def no_library(monkeypatch):
    monkeypatch.setattr(native, "_library", None)
    monkeypatch.setattr(native, "_failed", True)
    executor.clear_programs()
    yield
    executor.clear_programs()


_FORMS = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def _check(kernel, n, groups, ci, co, axes, last, transposed=False):
    """An axis is (length, size of the kernel, stride, padding, dilation)."""
    lengths, size, stride, pads, dilation = (list(part) for part in zip(*axes, strict=True))
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, size, strict=True)]
    if transposed:
        made = [
            (h - 1) * s + r - 2 * p for h, s, r, p in zip(lengths, stride, reach, pads, strict=True)
        ]
        if min(made) < 1:
            return
    elif any(h + 2 * p < r for h, p, r in zip(lengths, pads, reach, strict=True)):
        return
    rng = np.random.default_rng(n + groups + sum(lengths))
    channels = groups * ci
    shape = (n, *lengths, channels) if last else (n, channels, *lengths)
    first, second = (channels, co) if transposed else (groups * co, ci)
    arrays = [
        rng.normal(size=s).astype(np.float32)
        for s in (shape, (first, second, *size), (groups * co,))
    ]
    name = f"conv{len(axes)}d" + ("_transpose" if transposed else "")

    def run(x, weight, bias):
        return getattr(F, name)(
            x, weight, bias, stride=stride, padding=pads, dilation=dilation, groups=groups,
            data_format=_FORMS[len(axes)][last],
        )  # fmt: skip

    assert_kernel_equals_plain(kernel, run, arrays)


def _axis(longest=14, kernel=5, padding=4):
    whole = st.integers
    return st.tuples(
        whole(1, longest), whole(1, kernel), whole(1, 3), whole(0, padding), whole(1, 3)
    )


@many(12)
@given(st.integers(1, 3), st.integers(1, 40), st.tuples(_axis(), _axis()), st.booleans())
@example(2, 24, ((14, 5, 2, 2, 1), (14, 5, 2, 2, 1)), False)
@example(1, 3, ((9, 1, 3, 0, 1), (7, 2, 3, 1, 1)), True)  # places that no window covers
def test_one_kernel_per_channel(n, channels, axes, last):
    _check("shifted_conv", n, channels, 1, 1, axes, last)


def test_a_nan_reaches_no_further_than_its_windows():
    x = np.ones((1, 2, 6, 6), np.float32)
    x[0, 0, 0, 0] = np.nan
    before = kernels.uses["shifted_conv"]
    y = F.conv2d(paddle.to_tensor(x), paddle.ones([2, 1, 3, 3]), padding=1, groups=2).numpy()
    assert kernels.uses["shifted_conv"] == before + 1
    assert np.isnan(y[0, 0, :2, :2]).all()
    assert np.isnan(y).sum() == 4


@many(4)
@given(st.integers(1, 3), st.integers(1, 20), st.tuples(_axis(40, 15, 7)), st.booleans())
def test_one_kernel_per_channel_of_a_sequence(n, channels, axes, last):
    _check("shifted_conv", n, channels, 1, 1, axes, last)


@many(2)
@given(st.integers(1, 2), st.integers(1, 5), st.tuples(*[_axis(5, 2, 1)] * 3), st.booleans())
def test_one_kernel_per_channel_of_a_volume(n, channels, axes, last):
    _check("shifted_conv", n, channels, 1, 1, axes, last)


@many(6)
@given(
    st.integers(1, 2), st.integers(1, 20), st.tuples(_axis(7, 4, 1), _axis(7, 4, 1)), st.booleans()
)
@example(1, 6, ((4, 3, 2, 1, 1), (5, 3, 2, 1, 1)), False)
def test_transposed_with_one_kernel_per_channel(n, channels, axes, last):
    _check("shifted_conv", n, channels, 1, 1, axes, last, transposed=True)


@st.composite
def _apart(draw):
    """An axis whose windows do not overlap."""
    size = draw(st.integers(1, 3))
    stride = draw(st.integers(size, 4))
    dilation = draw(st.integers(1, 3)) if size == 1 else 1
    return draw(st.integers(size, 12)), size, stride, 0, dilation


@many(12)
@given(
    st.integers(1, 3), st.integers(1, 20), st.integers(1, 20), st.tuples(_apart(), _apart()),
    st.booleans(), st.booleans(),
)  # fmt: skip
@example(2, 16, 8, ((6, 2, 2, 0, 1), (5, 2, 2, 0, 1)), False, True)
@example(2, 8, 16, ((7, 1, 2, 0, 1), (8, 1, 2, 0, 1)), False, False)
@example(2, 2, 3, ((8, 1, 1, 0, 1), (7, 1, 1, 0, 1)), True, False)
def test_windows_that_do_not_overlap(n, ci, co, axes, last, transposed):
    if ci == co == 1:
        return
    _check("product_conv", n, 1, ci, co, axes, last, transposed)


@many(3)
@given(st.integers(1, 3), st.integers(2, 9), st.integers(1, 9), st.tuples(_apart()), st.booleans())
def test_steps_of_a_sequence_that_do_not_overlap(n, ci, co, axes, last):
    _check("product_conv", n, 1, ci, co, axes, last)


@many(8)
@given(
    st.integers(1, 3), st.integers(1, 9), st.integers(20, 40), st.tuples(_axis(6, 3), _axis(6, 3))
)
@example(2, 8, 40, ((4, 3, 1, 1, 1), (4, 3, 1, 1, 1)))
@example(2, 3, 30, ((7, 3, 2, 1, 1), (6, 3, 2, 1, 1)))
def test_few_windows_and_many_kernels(n, ci, co, axes):
    (h, kh, sh, ph, dh), (w, kw, sw, pw, dw) = axes
    windows = n * ((h + 2 * ph - dh * (kh - 1) - 1) // sh + 1)
    windows *= (w + 2 * pw - dw * (kw - 1) - 1) // sw + 1
    apart = kh <= sh and kw <= sw and ph == pw == 0 and (dh == 1 or kh == 1)
    if kh * kw == 1 or windows > 2 * co or apart:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "CPU_COLUMNS_WEIGHT", 1)
        _check("columns_conv", n, 1, ci, co, axes, n % 2)


@many(14)
@given(
    st.integers(1, 3), st.integers(16, 40), st.integers(16, 40),
    st.tuples(st.integers(1, 13), st.integers(1, 13)),
    st.tuples(*[st.tuples(st.integers(0, 2), st.integers(0, 2))] * 2), st.booleans(),
    st.booleans(),
)  # fmt: skip
@example(2, 16, 32, (8, 8), ((1, 1), (1, 1)), False, False)
@example(1, 32, 16, (7, 9), ((2, 0), (0, 2)), True, False)
@example(2, 24, 17, (6, 3), ((0, 2), (2, 1)), False, True)
def test_three_by_three(n, ci, co, size, pads, last, transposed):
    grown = [h + sum(p) * (-1 if transposed else 1) for h, p in zip(size, pads, strict=True)]
    rows, columns = (g + 2 if transposed else g - 2 for g in grown)
    # `accepts` looks at the rows that the op makes: a last tile may not be nearly empty.
    if min(rows, columns) < 1 or 12 * -(-rows // 4) > 4 * rows:
        return
    rng = np.random.default_rng(n + sum(size))
    channels = (ci, co) if transposed else (co, ci)
    arrays = [
        rng.normal(size=s).astype(np.float32)
        for s in ((n, *size, ci) if last else (n, ci, *size), (*channels, 3, 3), (co,))
    ]
    name = "conv2d_transpose" if transposed else "conv2d"

    def run(x, weight, bias):
        return getattr(F, name)(
            x, weight, bias, padding=[*pads[0], *pads[1]], data_format=_FORMS[2][last]
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "CPU_COLUMNS_WEIGHT", 1 << 30)
        assert_kernel_equals_plain("winograd_conv", run, arrays)


@pytest.mark.parametrize("groups", [1, 4])
def test_other_convolutions_and_an_empty_batch_stay_plain(groups):
    x, weight = np.zeros((0, 4, 5, 5), np.float32), np.ones((4, 4 // groups, 1, 1), np.float32)
    before = dict(kernels.uses)
    out, grad_x, grad_w = gradients(lambda x, w: F.conv2d(x, w, groups=groups), [x, weight])
    assert out.shape == grad_x.shape == (0, 4, 5, 5)
    assert not grad_w.any()
    x, weight = np.ones((2, 8, 5, 5), np.float32), np.ones((8, 8 // groups, 3, 3), np.float32)
    gradients(lambda x, w: F.conv2d(x, w, groups=groups), [x, weight])
    mine = ("shifted_conv", "product_conv", "columns_conv", "winograd_conv")
    assert all(kernels.uses[k] == before.get(k, 0) for k in mine)


@pytest.mark.parametrize("groups", [1, 6])
def test_half_precision(groups):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s).astype(np.float32) for s in ((2, 6, 7, 7), (6, 6 // groups, 1, 1))]

    def run(x, weight):
        with paddle.amp.auto_cast(dtype="bfloat16"):
            return F.conv2d(x, weight, groups=groups).astype("float32")

    found = gradients(run, arrays)
    assert kernels.uses["shifted_conv" if groups > 1 else "product_conv"]
    with kernels.disabled():
        plain = gradients(run, arrays)
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=0.05, atol=0.05 * np.abs(b).max())


def test_second_derivatives():
    def second():
        rng = np.random.default_rng(0)
        x, w = (
            paddle.to_tensor(rng.normal(size=s).astype("float32"), stop_gradient=False)
            for s in ((1, 3, 5, 5), (3, 1, 3, 3))
        )
        (first,) = paddle.grad(
            (F.conv2d(x, w, groups=3, stride=2) ** 3).sum(), x, create_graph=True
        )
        return paddle.grad((first**2).sum(), w)[0].numpy()

    found = second()
    with kernels.disabled():
        plain = second()
    np.testing.assert_allclose(found, plain, rtol=1e-3, atol=1e-3)


@many(8)
@given(
    st.integers(1, 4), st.integers(1, 40), st.integers(1, 9), st.integers(1, 9), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_batch_norm(n, channels, h, w, last, affine):
    if n * h * w < 2:
        return
    rng = np.random.default_rng(n * 100 + h)
    shape = (n, h, w, channels) if last else (n, channels, h, w)
    arrays = [rng.normal(size=s).astype(np.float32) for s in (shape, (channels,), (channels,))]

    def run(x, *affine_parts):
        zeros = paddle.zeros([channels], x.dtype)
        y = F.batch_norm(
            x, zeros, zeros + 1, *affine_parts, training=True, epsilon=1e-2,
            data_format="NHWC" if last else "NCHW",
        )  # fmt: skip
        return y * paddle.cos(y)

    assert_kernel_equals_plain("rows_batch_norm", run, arrays if affine else arrays[:1], 5e-4)


def test_a_nan_in_the_first_place_does_not_pass_for_a_number():
    x = np.ones((1, 2, 3, 3), np.float32)
    x[0, 0, 0, 0] = np.nan
    out = F.conv2d(paddle.to_tensor(x), paddle.ones([2, 1, 2, 2]), groups=2).numpy()
    assert np.isnan(out[0, 0, 0, 0])
    x[0, 0, 0, 0] = np.inf
    out = F.conv2d(paddle.to_tensor(x), paddle.ones([2, 1, 2, 2]), groups=2).numpy()
    assert np.isposinf(out[0, 0, 0, 0])
    assert (out[0, 1] == 4).all()


@many(8)
@given(
    st.integers(1, 3), st.integers(1, 20), st.integers(1, 9), st.integers(1, 9), st.booleans()
)  # fmt: skip
def test_means_of_images_and_factors_of_channels(n, channels, h, w, turned):
    if h == w == 1:
        return
    rng = np.random.default_rng(h * w)
    arrays = [
        rng.normal(size=s).astype(np.float32) for s in ((n, channels, h, w), (n, channels, 1, 1))
    ]

    def run(x, factor):
        factor = factor + F.adaptive_avg_pool2d(x, 1)
        again = paddle.cos(factor)
        return again * (factor * x) if turned else (x * factor) * again

    before = kernels.uses["rows_mean"]
    assert_kernel_equals_plain("rows_scale", run, arrays)
    assert kernels.uses["rows_mean"] > before
