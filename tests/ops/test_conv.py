"""Convolutions against the real paddle: every padding form, groups, layouts, both tiers."""

import numpy as np
import pytest

import bireme
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from tests.ops.functional_oracle import BF, check, rand, tier

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
COLD = {**CLOSE, "tiers": ("never",)}

OPTIONS = [
    {},
    {"stride": 2, "padding": 1},
    {"stride": [2, 1], "padding": [1, 2], "dilation": [1, 2]},
    {"padding": [1, 0, 2, 1]},
    {"padding": [[0, 0], [0, 0], [1, 2], [0, 1]]},
    {"padding": "SAME", "stride": 2},
    {"padding": "VALID", "dilation": 2},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_conv2d(options):
    check("conv2d", rand(2, 3, 9, 8), rand(4, 3, 3, 3), rand(4), **CLOSE, **options)


@pytest.mark.parametrize("groups", [2, 4])
def test_conv2d_groups(groups):
    check("conv2d", rand(2, 4, 6, 7), rand(8, 4 // groups, 3, 2), rand(8), groups=groups, stride=2,
          padding=1, **CLOSE)  # fmt: skip


def test_conv2d_channels_last():
    check("conv2d", rand(2, 6, 7, 4), rand(6, 2, 3, 3), rand(6), data_format="NHWC", groups=2,
          stride=2, padding=1, **CLOSE)  # fmt: skip


def test_conv2d_without_bias_and_negative_reach():
    # A stride that leaves the last column out of every window.
    check("conv2d", rand(1, 2, 8, 8), rand(3, 2, 3, 3), stride=3, **CLOSE)


def test_conv1d_and_conv3d():
    check("conv1d", rand(2, 3, 9), rand(4, 3, 3), rand(4), stride=2, padding=1, **CLOSE)
    check("conv1d", rand(2, 9, 4), rand(4, 2, 3), groups=2, data_format="NLC", **COLD)
    check("conv1d", rand(2, 3, 9), rand(4, 3, 4), padding="SAME", **COLD)
    check("conv3d", rand(1, 2, 5, 6, 4), rand(4, 2, 3, 2, 3), rand(4), stride=2, padding=1, **CLOSE)
    check("conv3d", rand(1, 5, 6, 4, 2), rand(4, 1, 3, 2, 3), groups=2, data_format="NDHWC",
          **COLD)  # fmt: skip


TRANSPOSED = [
    {},
    {"stride": 2, "padding": 1, "output_padding": 1},
    {"stride": [2, 3], "padding": [1, 0], "dilation": [2, 1]},
    {"stride": 2, "output_size": [16, 15]},
    {"stride": 2, "padding": "SAME"},
    {"stride": 2, "padding": [1, 0, 0, 1]},
]


@pytest.mark.parametrize("options", TRANSPOSED)
def test_conv2d_transpose(options):
    check("conv2d_transpose", rand(2, 3, 7, 7), rand(3, 4, 3, 3), rand(4), **CLOSE, **options)


def test_transposed_groups_and_ranks():
    check("conv2d_transpose", rand(2, 4, 5, 6), rand(4, 3, 3, 3), rand(6), groups=2, stride=2,
          **CLOSE)  # fmt: skip
    check("conv2d_transpose", rand(2, 5, 6, 4), rand(4, 3, 3, 3), rand(6), groups=2, stride=2,
          data_format="NHWC", **COLD)  # fmt: skip
    check("conv1d_transpose", rand(2, 3, 6), rand(3, 4, 3), rand(4), stride=2, padding=1, **CLOSE)
    check("conv3d_transpose", rand(1, 2, 3, 4, 3), rand(2, 3, 2, 3, 2), rand(3), stride=2,
          padding=1, **CLOSE)  # fmt: skip


def test_float64():
    check("conv2d", rand(1, 2, 5, 5, dtype="float64"), rand(3, 2, 3, 3, dtype="float64"), rtol=1e-9,
          atol=1e-10)  # fmt: skip


def test_only_needed_gradients_are_made():
    x = bireme.to_tensor(rand(1, 2, 5, 5))
    w = bireme.to_tensor(rand(3, 2, 3, 3), stop_gradient=False)
    out = BF.conv2d(x, w)
    out.backward(bireme.to_tensor(rand(1, 3, 3, 3)))
    (call,) = out_call(BF.conv2d(x, w)).grad_calls.values()
    assert len(call.outs) == 1
    assert w.grad.shape == w.shape


def out_call(tensor):
    return tensor._node.call


def test_second_derivative_runs_in_both_tiers():
    results = []
    for mode in ("never", "always"):
        with tier(mode):
            x = bireme.to_tensor(rand(1, 2, 5, 5), stop_gradient=False)
            w = bireme.to_tensor(rand(3, 2, 3, 3), stop_gradient=False)
            y = BF.conv2d(x, w)
            (gx,) = bireme.grad([y], [x], [y.detach()], create_graph=True)
            gx.backward(bireme.to_tensor(rand(1, 2, 5, 5, seed=3)))
            results.append(w.grad.numpy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-5)


def test_bad_input():
    x, w = bireme.to_tensor(rand(1, 2, 5, 5)), bireme.to_tensor(rand(3, 2, 3, 3))
    with pytest.raises(ShapeMismatch, match="channels"):
        BF.conv2d(x, bireme.to_tensor(rand(3, 4, 3, 3)))
    with pytest.raises(ShapeMismatch, match="4 dimensions"):
        BF.conv2d(bireme.to_tensor(rand(2, 5, 5)), w)
    with pytest.raises(ShapeMismatch, match="kernel spans"):
        BF.conv2d(x, w, dilation=3)
    with pytest.raises(ShapeMismatch, match="bias"):
        BF.conv2d(x, w, bireme.to_tensor(rand(2)))
    with pytest.raises(TypeMismatch, match="one dtype"):
        BF.conv2d(x, bireme.to_tensor(rand(3, 2, 3, 3, dtype="float64")))
    with pytest.raises(InvalidArgument, match="padding"):
        BF.conv2d(x, w, padding="FULL")
    with pytest.raises(InvalidArgument, match="padding"):
        BF.conv2d(x, w, padding=[1, 2, 3])
    with pytest.raises(InvalidArgument, match="stride"):
        BF.conv2d(x, w, stride=[1, 2, 3])
    with pytest.raises(InvalidArgument, match="positive"):
        BF.conv2d(x, w, stride=0)
    with pytest.raises(InvalidArgument, match="data_format"):
        BF.conv2d(x, w, data_format="NCL")
    with pytest.raises(InvalidArgument, match="output_size"):
        BF.conv2d_transpose(x, bireme.to_tensor(rand(2, 3, 3, 3)), stride=2, output_size=[30, 30])
    with pytest.raises(ShapeMismatch, match="channels"):
        BF.conv2d_transpose(x, bireme.to_tensor(rand(3, 3, 3, 3)))
