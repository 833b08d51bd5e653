"""Padding, resampling and rearranging images, against the real paddle."""

import numpy as np
import pytest

import bireme
from bireme.core.errors import InvalidArgument, ShapeMismatch
from tests.ops.functional_oracle import BF, check, rand

COLD = {"tiers": ("never",)}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pad_spatial(mode):
    check("pad", rand(2, 3, 4, 5), [1, 2, 2, 1], mode=mode, value=0.0)
    check("pad", rand(2, 3, 6), [2, 1], mode=mode, **COLD)
    check("pad", rand(1, 2, 4, 4, 5), [1, 2, 2, 1, 0, 3], mode=mode, **COLD)
    check("pad", rand(2, 4, 5, 3), [1, 2, 2, 1], mode=mode, data_format="NHWC", **COLD)


def test_pad_every_dimension():
    check("pad", rand(3, 4), [1, 2, 0, 3], value=1.5)
    check("pad", rand(2, 3, 4, 5), [1, 2, 0, 3, 1, 1, 2, 0], **COLD)
    check("pad", rand(2, 3, 4, 5), [1, 2, 0, 3, 1, 1, 2, 0], pad_from_left_axis=False, **COLD)
    check("pad", rand(2, 3, 4, 5), [2, 1], **COLD)
    check("zeropad2d", rand(2, 3, 4, 5), [1, 2, 3, 0], **COLD)


def test_pad_cuts():
    x = bireme.to_tensor(rand(1, 1, 5, 6), stop_gradient=False)
    out = BF.pad(x, [-1, 2, 1, -2])
    np.testing.assert_array_equal(out.numpy()[0, 0, 1:, :5], x.numpy()[0, 0, :3, 1:])
    out.backward(bireme.to_tensor(np.ones(out.shape, "float32")))
    assert x.grad.numpy().sum() == 15


def test_pad_refuses_bad_input():
    x = bireme.to_tensor(rand(1, 2, 4, 4))
    with pytest.raises(InvalidArgument, match="mode"):
        BF.pad(x, [1, 1, 1, 1], mode="mirror")
    with pytest.raises(InvalidArgument, match="pairs"):
        BF.pad(x, [1, 1, 1])
    with pytest.raises(ShapeMismatch, match="reflecting"):
        BF.pad(x, [4, 0, 0, 0], mode="reflect")
    with pytest.raises(InvalidArgument, match="spatial"):
        BF.pad(x, [1, 1], mode="replicate")


@pytest.mark.parametrize(
    "options",
    [
        {"size": [6, 7]}, {"scale_factor": 2}, {"scale_factor": [1.5, 0.6]},
        {"size": [6, 7], "mode": "bilinear"}, {"scale_factor": 1.7, "mode": "bilinear"},
        {"size": [6, 7], "mode": "bilinear", "align_corners": True},
        {"size": [6, 7], "mode": "bilinear", "align_mode": 1},
        {"size": [6, 7], "mode": "bicubic"},
        {"size": [3, 9], "mode": "bicubic", "align_corners": True},
        {"size": [2, 3], "mode": "area"},
    ],
)  # fmt: skip
def test_interpolate(options):
    check("interpolate", rand(2, 3, 4, 5), **CLOSE, **options)


def test_interpolate_other_ranks():
    check("interpolate", rand(2, 3, 6), size=[9], mode="linear", **COLD, **CLOSE)
    check("interpolate", rand(2, 6, 3), size=[9], mode="linear", data_format="NWC", **COLD, **CLOSE)
    check("interpolate", rand(1, 2, 3, 4, 5), size=[5, 6, 4], mode="trilinear", **COLD, **CLOSE)
    check("interpolate", rand(1, 2, 3, 4, 5), scale_factor=2, mode="nearest", **COLD)
    check("upsample", rand(2, 4, 5, 3), scale_factor=2, data_format="NHWC", **COLD)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [[3, 4], [12, 15]])
def test_interpolate_antialiased(mode, size):
    check("interpolate", rand(1, 2, 9, 11), size=size, mode=mode, antialias=True, **CLOSE)


def test_interpolate_refuses_bad_input():
    x = bireme.to_tensor(rand(1, 2, 4, 4))
    with pytest.raises(InvalidArgument, match="either size"):
        BF.interpolate(x)
    with pytest.raises(ShapeMismatch, match="dimensions"):
        BF.interpolate(x, size=[3], mode="linear")
    with pytest.raises(InvalidArgument, match="mode"):
        BF.interpolate(x, size=[3, 3], mode="lanczos")
    with pytest.raises(InvalidArgument, match="align_corners"):
        BF.interpolate(x, size=[3, 3], align_corners=True)


@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(padding, align):
    grid = rand(2, 3, 4, 2, low=-1.3, high=1.3)
    check("grid_sample", rand(2, 3, 5, 6), grid, padding_mode=padding, align_corners=align, **CLOSE)
    check("grid_sample", rand(2, 3, 5, 6), grid, mode="nearest", padding_mode=padding,
          align_corners=align, grads=False, **COLD)  # fmt: skip


def test_grid_sample_3d():
    grid = rand(1, 2, 3, 4, 3, low=-1.2, high=1.2)
    check("grid_sample", rand(1, 2, 3, 4, 5), grid, **CLOSE, **COLD)


def test_affine_grid():
    for align in (True, False):
        check("affine_grid", rand(2, 2, 3), [2, 3, 4, 5], align_corners=align, **CLOSE)
    check("affine_grid", rand(2, 3, 4), [2, 3, 2, 4, 5], **CLOSE, **COLD)


def test_shuffles():
    check("pixel_shuffle", rand(2, 8, 3, 4), 2)
    check("pixel_shuffle", rand(2, 3, 4, 8), 2, data_format="NHWC", **COLD)
    check("pixel_unshuffle", rand(2, 2, 6, 4), 2)
    check("pixel_unshuffle", rand(2, 6, 4, 2), 2, data_format="NHWC", **COLD)
    check("channel_shuffle", rand(2, 6, 3, 4), 3)
    check("channel_shuffle", rand(2, 3, 4, 6), 2, data_format="NHWC", **COLD)
    check("temporal_shift", rand(6, 8, 2, 3), 3)
    check("temporal_shift", rand(6, 2, 3, 8), 2, shift_ratio=0.3, data_format="NHWC", **COLD)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_sizes": 2}, {"kernel_sizes": [3, 2], "strides": 2, "paddings": 1},
        {"kernel_sizes": 3, "dilations": 2, "paddings": [1, 2]},
        {"kernel_sizes": 3, "paddings": [1, 0, 2, 1]},
    ],
)  # fmt: skip
def test_patches(options):
    x = rand(2, 3, 6, 7)
    check("unfold", x, **options)
    if options.get("paddings") == [1, 0, 2, 1]:
        return  # paddle's fold takes four paddings but counts patches with the first two
    columns = BF.unfold(bireme.to_tensor(x), **options).numpy()
    check("fold", columns, [6, 7], **options)


def test_rearranging_refuses_bad_input():
    x = bireme.to_tensor(rand(2, 6, 3, 4))
    with pytest.raises(ShapeMismatch, match="upscale_factor"):
        BF.pixel_shuffle(x, 2)
    with pytest.raises(ShapeMismatch, match="downscale_factor"):
        BF.pixel_unshuffle(x, 2)
    with pytest.raises(ShapeMismatch, match="groups"):
        BF.channel_shuffle(x, 4)
    with pytest.raises(ShapeMismatch, match="kernel"):
        BF.unfold(x, 5)
    with pytest.raises(InvalidArgument, match="paddings"):
        BF.unfold(x, 2, paddings=[1, 2, 3])
    with pytest.raises(ShapeMismatch, match="segments"):
        BF.temporal_shift(x, 3)
    with pytest.raises(InvalidArgument, match="data_format"):
        BF.pixel_shuffle(x, 1, "HWC")
    with pytest.raises(ShapeMismatch, match="grid"):
        BF.grid_sample(x, bireme.to_tensor(rand(2, 3, 4, 3)))
