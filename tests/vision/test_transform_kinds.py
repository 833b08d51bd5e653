"""PIL images stay PIL images and tensors tensors, with the pixels that Paddle makes."""

from __future__ import annotations

import random

import numpy as np
import pytest

import bireme
from bireme.vision import transforms as ours

Image = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (12, 9, 3)).astype("uint8")
FLOATS = RNG.uniform(size=(3, 12, 9)).astype("float32")
CORNERS = [[0, 0], [8, 0], [8, 11], [0, 11]]
MOVED = [[1, 2], [7, 1], [8, 10], [0, 9]]


@pytest.fixture(scope="module")
def real(paddle):
    return paddle.vision.transforms.functional


BOTH = {
    "hflip": lambda t, x: t.hflip(x),
    "vflip": lambda t, x: t.vflip(x),
    "crop": lambda t, x: t.crop(x, 2, 1, 5, 4),
    "center_crop": lambda t, x: t.center_crop(x, (6, 5)),
    "pad": lambda t, x: t.pad(x, (1, 2, 3, 4)),
    "pad-edge": lambda t, x: t.pad(x, 2, padding_mode="edge"),
    "pad-reflect": lambda t, x: t.pad(x, [2, 1], padding_mode="reflect"),
    "resize": lambda t, x: t.resize(x, (7, 13)),
    "resize-short": lambda t, x: t.resize(x, 5),
    "resize-nearest": lambda t, x: t.resize(x, (5, 20), "nearest"),
    "resize-bicubic": lambda t, x: t.resize(x, (20, 15), "bicubic"),
    "brightness": lambda t, x: t.adjust_brightness(x, 1.4),
    "contrast": lambda t, x: t.adjust_contrast(x, 0.6),
    "saturation": lambda t, x: t.adjust_saturation(x, 1.7),
    "hue": lambda t, x: t.adjust_hue(x, 0.2),
    "hue-back": lambda t, x: t.adjust_hue(x, -0.35),
    "gray": lambda t, x: t.to_grayscale(x),
    "gray-3": lambda t, x: t.to_grayscale(x, 3),
    "rotate": lambda t, x: t.rotate(x, 30),
    "rotate-bilinear": lambda t, x: t.rotate(x, -50, "bilinear", center=(3, 4)),
    "rotate-expand": lambda t, x: t.rotate(x, 90, expand=True),
    "affine": lambda t, x: t.affine(x, 20, (1, 2), 1.2, (5, 3)),
    "affine-bilinear": lambda t, x: t.affine(x, -15, (0, 1), 0.8, (0, 0), "bilinear"),
    "perspective": lambda t, x: t.perspective(x, CORNERS, MOVED),
    "perspective-bilinear": lambda t, x: t.perspective(x, CORNERS, MOVED, "bilinear"),
    "erase": lambda t, x: t.erase(x, 2, 3, 4, 5, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", BOTH)
def test_pil_images(real, name):
    expected, found = (BOTH[name](t, Image.fromarray(PIXELS)) for t in (real, ours))
    assert isinstance(found, Image.Image)
    assert (found.mode, found.size) == (expected.mode, expected.size)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


@pytest.mark.parametrize("name", BOTH)
def test_tensors(paddle, real, name):
    apply = BOTH[name]
    expected = apply(real, paddle.to_tensor(FLOATS))
    found = apply(ours, bireme.to_tensor(FLOATS))
    assert isinstance(found, bireme.Tensor)
    assert found.shape == list(expected.shape)
    a, b = found.numpy(), expected.numpy()
    if name.split("-")[0] in ("rotate", "perspective", "affine") and "bilinear" not in name:
        # A place between two pixels may be rounded to either.
        assert (np.abs(a - b) > 1e-5).mean() < 0.02
    else:
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["L", "1", "I", "F", "RGB"])
@pytest.mark.parametrize("data_format", ["CHW", "HWC"])
def test_pil_modes_become_tensors(real, mode, data_format):
    image = Image.fromarray(PIXELS).convert("L").convert(mode)
    expected = real.to_tensor(image, data_format)
    found = ours.to_tensor(image, data_format)
    assert found.dtype.name == str(expected.dtype).removeprefix("paddle.")
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize("kind", ["pil", "tensor", "array"])
def test_pipelines_keep_the_kind(kind):
    given = {
        "pil": Image.fromarray(PIXELS),
        "tensor": bireme.to_tensor(FLOATS),
        "array": PIXELS,
    }[kind]
    steps = ours.Compose(
        [
            ours.Resize(10),
            ours.RandomCrop(8),
            ours.RandomHorizontalFlip(),
            ours.ColorJitter(0.2, 0.2, 0.2, 0.1),
            ours.RandomRotation(10),
            ours.RandomPerspective(prob=1.0),
            ours.RandomResizedCrop(6),
        ]
    )
    random.seed(0)
    out = steps(given)
    kinds = {"pil": Image.Image, "tensor": bireme.Tensor, "array": np.ndarray}
    assert isinstance(out, kinds[kind])
    size = (
        out.size[::-1] if kind == "pil" else out.shape[-2:] if kind == "tensor" else out.shape[:2]
    )
    assert tuple(size) == (6, 6)


def test_random_perspective_draws_as_paddle_does(paddle):
    results = []
    for t in (paddle.vision.transforms, ours):
        random.seed(3)
        results.append(np.asarray(t.RandomPerspective(prob=1.0)(Image.fromarray(PIXELS))))
    np.testing.assert_array_equal(*results)
    np.testing.assert_array_equal(ours.RandomPerspective(prob=0.0)(PIXELS), PIXELS)


def test_arrays_bend_as_pil_images_do():
    for how in ("nearest", "bilinear"):
        wanted = ours.perspective(Image.fromarray(PIXELS), CORNERS, MOVED, how)
        found = ours.perspective(PIXELS, CORNERS, MOVED, how)
        assert np.abs(found.astype(int) - np.asarray(wanted).astype(int)).max() <= 1


def test_tensors_pass_gradients():
    x = bireme.to_tensor(FLOATS, stop_gradient=False)
    ours.rotate(ours.adjust_contrast(x, 0.5), 20, "bilinear").sum().backward()
    assert np.abs(x.grad.numpy()).sum() > 0
