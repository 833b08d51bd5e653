"""Whole steps as a GPU would run them, interpreted where need be: against float64 and plain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bireme as paddle
from bireme.core import kernels, trace
from bireme.host import thresholds
from bireme.kernels import gpu_gate, gpu_linear, install, nvidia, pallas_norm
from bireme.nn import functional as F
from tests.kernels.test_gpu_lowerings import step_of

install()


def assert_same_step(arrays, step, name, tolerance=1e-5, dtype="float32"):
    """The loss `step(*tensors)` gives and its gradients, by kernel `name` and in plain float64."""

    def recorded(kind, platform):
        trace.flush()
        tensors = [paddle.to_tensor(a.astype(kind), stop_gradient=False) for a in arrays]
        loss = step(*tensors)
        loss.backward()
        return step_of(loss, tensors)(platform)

    before = kernels.uses[name]
    got = recorded(dtype, "gpu")
    assert kernels.uses[name] > before
    for g, want in zip(got, recorded("float64", "none"), strict=True):
        assert g.shape == want.shape
        np.testing.assert_allclose(
            g, want, rtol=tolerance, atol=tolerance * (1 + np.abs(want).max())
        )


@settings(max_examples=12, deadline=None)
@given(
    shape=st.sampled_from([(4, 3), (5, 2, 7), (3, 4, 5, 6), (1, 1, 2, 1), (2, 3, 3, 4, 5)]),
    centre=st.floats(-30, 30),
    weighted=st.booleans(),
    last=st.booleans(),
    seed=st.integers(0, 100),
)
def test_batch_norm_in_one_pass(shape, centre, weighted, last, seed):
    rng = np.random.default_rng(seed)
    axis = len(shape) - 1 if last else 1
    channels = shape[axis]
    # Values that single precision holds exactly: the question is what is made of them.
    x = np.float32(centre) + rng.standard_normal(shape).astype("float32")
    arrays = [x.astype("float64")]
    if weighted:
        arrays += [rng.standard_normal(channels) + 2, rng.standard_normal(channels)]
    pull = rng.standard_normal(shape)
    layout = {2: "NC", 3: "NLC" if last else "NCL", 4: "NHWC" if last else "NCHW"}
    form = layout.get(len(shape), "NDHWC" if last else "NCDHW")

    def step(x, weight=None, bias=None):
        zeros, ones = paddle.zeros([channels], x.dtype), paddle.ones([channels], x.dtype)
        y = F.batch_norm(
            x, zeros, ones, weight, bias, training=True, epsilon=1e-2, data_format=form
        )
        return (y * paddle.to_tensor(pull).astype(x.dtype)).sum() + (zeros + ones).sum()

    assert_same_step(arrays, step, "one_pass_statistics", 3e-4)


@settings(max_examples=10, deadline=None)
@given(
    lead=st.lists(st.integers(1, 4), max_size=2),
    cuts=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    first=st.booleans(),
    seed=st.integers(0, 100),
)
def test_gradients_of_neighbouring_slices(lead, cuts, first, seed):
    """Slices that cover an axis, or leave its end out, in any order."""
    rng = np.random.default_rng(seed)
    width = sum(cuts) + (0 if first else 2)
    axis = 0 if first else len(lead)
    shape = (width, *lead) if first else (*lead, width)
    ends = np.cumsum(cuts)
    spans = [(int(e - n), int(e)) for e, n in zip(ends, cuts, strict=True)]
    rng.shuffle(spans)

    def step(x):
        total = 0
        for i, (start, stop) in enumerate(spans):
            piece = x[start:stop] if axis == 0 else x[..., start:stop]
            total = total + ((i + 1.5) * piece * piece).sum()
        return total

    assert_same_step([rng.standard_normal(shape)], step, "joined_slices")


def test_slices_with_gaps_steps_and_positions():
    def step(x):
        return (
            (x[:, ::2] ** 2).sum()
            + (3 * x[:, 5:]).sum()
            + (x[1] * x[0]).sum()
            + (2 * x[:, :2] ** 2).sum()
            + (x[:, 3:5] ** 3).sum()
        )

    x = np.random.default_rng(2).standard_normal((3, 8))
    assert_same_step([x], step, "joined_slices")


@settings(max_examples=12, deadline=None)
@given(
    lead=st.lists(st.integers(1, 5), min_size=1, max_size=2),
    columns=st.lists(st.sampled_from([8, 16, 32]), min_size=2, max_size=4),
    width=st.sampled_from([32, 48, 64]),
    autocast=st.booleans(),
    seed=st.integers(0, 100),
)
def test_layers_that_read_one_array(lead, columns, width, autocast, seed):
    """Their gradients are joined if one has few columns, alone or after others."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((*lead, width))
    weights = [rng.standard_normal((width, n)) / 8 for n in columns]
    half = "float32" if autocast else "float16"
    joined = []

    def step(x, *weights):
        with paddle.amp.auto_cast(enable=autocast and x.dtype == paddle.float32, dtype="bfloat16"):
            h = F.relu(x) * 0.5
            outs = [F.linear(h, w) for w in weights]
        return sum((i + 1.5) * y.astype("float32").sum() for i, y in enumerate(outs))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "GPU_JOINED", 1)
        plus = gpu_linear.LinearGradient.plus
        patch.setattr(
            gpu_linear.LinearGradient,
            "plus",
            lambda self, f, other: joined.append(plus(self, f, other)) or joined[-1],
        )
        assert_same_step([x, *weights], step, "joined_gradients", 2e-2, dtype=half)
    if min(columns) * 4 <= width:
        assert any(out is not None for out in joined)


def interpret_gates(patch):
    patch.setattr(nvidia, "available", lambda: True)
    patch.setattr(nvidia, "interpreted", lambda: True)
    patch.setattr(thresholds, "GPU_GATE", 1)
    patch.setattr(gpu_gate, "_BLOCK", 8)


@settings(max_examples=12, deadline=None)
@given(
    form=st.sampled_from(["silu first", "silu second", "swiglu", "silu used twice"]),
    shape=st.lists(st.integers(1, 3), max_size=2),
    blocks=st.integers(1, 3),
    seed=st.integers(0, 100),
)
def test_gate_gradients(form, shape, blocks, seed):
    rng = np.random.default_rng(seed)
    x, y, pull = rng.standard_normal((3, *shape, 8 * blocks)) * 3

    def step(x, y):
        if form == "swiglu":
            out = F.swiglu(x, y)
        else:
            gate = F.silu(x)
            out = y * gate if form == "silu second" else gate * y
            if form == "silu used twice":
                out = out + gate
        return (out * paddle.to_tensor(pull).astype(x.dtype)).sum()

    with pytest.MonkeyPatch.context() as patch:
        interpret_gates(patch)
        assert_same_step([x, y], step, "gate_gradients")


def test_a_gate_of_a_size_that_no_block_fits_is_plain(monkeypatch):
    interpret_gates(monkeypatch)
    x = paddle.ones([3, 3])
    x.stop_gradient = False
    assert kernels.choose(F.silu(x)._node.call, "gpu") is None


def interpret_norms(patch):
    patch.setattr(nvidia, "available", lambda: True)
    patch.setattr(nvidia, "interpreted", lambda: True)
    patch.setattr(thresholds, "GPU_NORM", 1)
    ran = []
    for name in ("forward", "backward"):
        kernel = getattr(pallas_norm, name)

        def counted(*args, name=name, kernel=kernel, **options):
            ran.append(name)
            return kernel(*args, **options)

        patch.setattr(pallas_norm, name, counted)
    return ran


def residual_step(x, weight, bias, matrix, pull, form, norm):
    """Two residual branches behind norms, as in a transformer."""

    def normed(x):
        if norm == "rms":
            return F.rms_norm(x, x.shape[-1:], weight)
        return F.layer_norm(x, x.shape[-1:], weight, bias if norm == "layer" else None)

    def branch(h):
        y = paddle.nn.functional.linear(h, matrix, bias if "bias" in form else None)
        if "several" in form:
            y = y + paddle.matmul(h, matrix)
        return y

    x = x + branch(normed(x))
    if "between" in form:
        x = x + pull
    x = x + branch(normed(x))
    out = normed(x)
    if "read" in form:
        out = out + x * 0.5
    return (out * pull).sum() + 0.0 * bias.sum()


@settings(max_examples=15, deadline=None)
@given(
    form=st.lists(st.sampled_from(["bias", "several", "between", "read"]), unique=True),
    norm=st.sampled_from(["layer", "layer without bias", "rms"]),
    rows=st.integers(1, 3),
    width=st.sampled_from([16, 48, 64, 112]),
    seed=st.integers(0, 100),
)
def test_norms_of_residual_sums(form, norm, rows, width, seed):
    rng = np.random.default_rng(seed)
    arrays = [
        rng.standard_normal((rows, 16, width)), rng.standard_normal(width) + 2,
        rng.standard_normal(width), rng.standard_normal((width, width)) / width**0.5,
    ]  # fmt: skip
    pull = rng.standard_normal((rows, 16, width))

    def step(x, weight, bias, matrix):
        there = paddle.to_tensor(pull).astype(x.dtype)
        return residual_step(x, weight, bias, matrix, there, form, norm)

    with pytest.MonkeyPatch.context() as patch:
        ran = interpret_norms(patch)
        assert_same_step(arrays, step, "kept_statistics")
    # The last two of three norms are of sums; the gradients of the first two meet another.
    assert ran.count("forward") == 2
    assert ran.count("backward") == 2 + ("read" in form)


@settings(max_examples=8, deadline=None)
@given(
    form=st.lists(st.sampled_from(["bias", "several", "read"]), unique=True),
    norm=st.sampled_from(["layer", "rms"]),
    kind=st.sampled_from(["bfloat16", "float16"]),
    seed=st.integers(0, 100),
)
def test_norms_between_branches_in_half_precision(form, norm, kind, seed):
    rng = np.random.default_rng(seed)
    arrays = [
        rng.standard_normal((2, 16, 48)), rng.standard_normal(48) / 4 + 1,
        rng.standard_normal(48), rng.standard_normal((48, 48)) / 48**0.5,
    ]  # fmt: skip
    pull = rng.standard_normal((2, 16, 48))

    def step(x, weight, bias, matrix):
        there = paddle.to_tensor(pull).astype(x.dtype)
        with paddle.amp.auto_cast(enable=x.dtype == paddle.float32, dtype=kind):
            return residual_step(x, weight, bias, matrix, there, form, norm)

    with pytest.MonkeyPatch.context() as patch:
        ran = interpret_norms(patch)
        assert_same_step(arrays, step, "kept_statistics", 0.05 if kind == "bfloat16" else 0.01)
    assert ran.count("forward") == 2
    assert ran.count("backward") == 2 + ("read" in form)
