"""Native kernels against the plain lowering, values and gradients, on random shapes."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bireme as paddle
import bireme.nn.functional as F
from bireme.core import kernels
from bireme.kernels import native
from bireme.kernels.native import building
from tests.kernels.kernel_oracle import MARKS, assert_kernel_equals_plain, compiled, many

__all__ = ["compiled"]  # a fixture
pytestmark = MARKS
MANY = many(25)


@MANY
@given(
    st.integers(1, 3), st.integers(1, 20), st.integers(1, 70), st.integers(1, 12),
    st.integers(1, 12), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3),
    st.integers(0, 2), st.integers(0, 2), st.integers(1, 2), st.booleans(), st.booleans(),
)  # fmt: skip
def test_convolution(n, ci, co, h, w, kh, kw, sh, sw, ph, pw, d, last, bias):
    if h + 2 * ph < d * (kh - 1) + 1 or w + 2 * pw < d * (kw - 1) + 1:
        return
    rng = np.random.default_rng(n * 1000 + co)
    shape = (n, h, w, ci) if last else (n, ci, h, w)
    arrays = [rng.normal(size=shape), rng.normal(size=(co, ci, kh, kw)) * 0.3]
    if bias:
        arrays.append(rng.normal(size=co))

    def run(x, weight, b=None):
        return F.conv2d(
            x, weight, b, stride=[sh, sw], padding=[ph, pw], dilation=d,
            data_format="NHWC" if last else "NCHW",
        )  # fmt: skip

    assert_kernel_equals_plain("native_conv", run, [a.astype(np.float32) for a in arrays])


def test_an_empty_batch_uses_the_plain_lowering():
    x = paddle.zeros([0, 3, 5, 5])
    y = F.conv2d(x, paddle.ones([4, 3, 3, 3]))
    assert y.numpy().shape == (0, 4, 3, 3)


def test_the_profiler_shows_what_ran():
    """Also in steps that compile nothing; a kernel that is switched off is not there."""
    layer = paddle.nn.Conv2D(2, 3, 3)
    x = paddle.ones([1, 2, 6, 6])

    def step():
        layer(x).sum().backward()
        grad = layer.weight.grad.numpy()
        layer.clear_gradients()
        return grad

    step()
    with paddle.profiler.Profiler() as profiler:
        for _ in range(3):
            step()
    assert profiler.kernels["conv", "native_conv"] == 3
    assert profiler.kernels["conv_grad", "native_conv"] == 3
    report = profiler.report(views=paddle.profiler.SummaryView.KernelView)
    assert "Kernels that ran" in report
    assert ["conv_grad", "native_conv", "3"] in [line.split() for line in report.splitlines()]
    with kernels.disabled("native_conv"), paddle.profiler.Profiler() as profiler:
        step()
    assert not profiler.kernels
    event = paddle.profiler.compile_events()[-1]
    assert not event.kernels
    assert "Kernels that ran" not in profiler.report()


def test_kernels_are_switched_by_name():
    assert {"native_conv", "native_lstm"} <= set(kernels.names())
    x, w = paddle.ones([1, 2, 5, 5]), paddle.ones([2, 2, 3, 3])
    before = kernels.uses["native_conv"]
    with kernels.disabled("native_conv"):
        F.conv2d(x, w).numpy()
    assert kernels.uses["native_conv"] == before
    with pytest.raises(ValueError, match="no kernel named"):
        kernels.disable("no_such_kernel")


def test_second_derivatives_go_around_the_kernel():
    x = paddle.to_tensor(
        np.random.default_rng(0).normal(size=(1, 2, 4, 4)).astype("float32"), stop_gradient=False
    )
    w = paddle.ones([2, 2, 3, 3])
    (first,) = paddle.grad((F.conv2d(x, w) ** 3).sum(), x, create_graph=True)
    (second,) = paddle.grad(first.sum(), x)
    with kernels.disabled():
        (plain,) = paddle.grad((F.conv2d(x, w) ** 3).sum(), x, create_graph=True)
        (expected,) = paddle.grad(plain.sum(), x)
    np.testing.assert_allclose(second.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)


def test_without_a_compiler_the_plain_lowering_is_used(monkeypatch):
    monkeypatch.setattr(native, "_library", None)
    monkeypatch.setattr(native, "_failed", False)
    monkeypatch.setattr(native, "compiler", lambda: None)
    assert not native.available()
    y = F.conv2d(paddle.ones([1, 1, 7, 3]), paddle.ones([1, 1, 3, 3]))
    assert y.numpy().sum() == 45


def test_a_library_that_cannot_be_built_is_tried_once(monkeypatch):
    tried = []

    def opened(path):
        tried.append(path)
        raise OSError("no room")

    monkeypatch.setattr(native, "_library", None)
    monkeypatch.setattr(native, "_failed", False)
    monkeypatch.setattr(native, "_opened", opened)
    with pytest.raises(RuntimeWarning, match=r"plain ones are used: no room"):
        native.load()
    assert native.load() is None
    assert len(tried) == 1


def test_a_library_that_is_used_stays_young(tmp_path):
    library = tmp_path / "kernels.so"
    library.touch()
    long_ago = time.time() - 31 * 24 * 3600
    os.utime(library, (long_ago, long_ago))
    building.keep_young(library)
    assert library.stat().st_mtime > long_ago + 24 * 3600
    library.unlink()
    building.keep_young(library)  # removed by another process meanwhile
    assert not library.exists()
