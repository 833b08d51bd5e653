"""Transforms against Paddle's PIL and tensor paths, and against their own definitions."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest

import bireme
from bireme.core.errors import BiremeError
from bireme.vision import transforms as T
from bireme.vision.transforms import functional as F

RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (12, 15, 3)).astype("uint8")
SMOOTH = np.indices((12, 15)).sum(0)[..., None].repeat(3, 2).astype("uint8") * 5
GRAY = IMAGE[..., 0]
FLOAT = (IMAGE / 255).astype("float32")


@pytest.fixture
def real(paddle):
    return paddle.vision.transforms


def as_pil(array):
    image = pytest.importorskip("PIL.Image")
    return image.fromarray(array)


@pytest.mark.parametrize("array", [IMAGE, GRAY], ids=["rgb", "gray"])
@pytest.mark.parametrize(
    "apply",
    [
        lambda t, x: t.hflip(x),
        lambda t, x: t.vflip(x),
        lambda t, x: t.crop(x, 2, 3, 5, 7),
        lambda t, x: t.center_crop(x, (5, 8)),
        lambda t, x: t.center_crop(x, 7),
        lambda t, x: t.pad(x, 2),
        lambda t, x: t.pad(x, (1, 3), fill=(9, 8, 7) if np.ndim(x) == 3 else 9),
        lambda t, x: t.pad(x, (1, 2, 3, 4)),
        lambda t, x: t.pad(x, 3, padding_mode="reflect"),
        lambda t, x: t.pad(x, (1, 2, 3, 4), padding_mode="edge"),
        lambda t, x: t.pad(x, 2, padding_mode="symmetric"),
    ],
)
def test_geometry_is_what_paddle_does_with_pil(real, array, apply):
    expected = np.asarray(apply(real, as_pil(array)))
    np.testing.assert_array_equal(apply(T, array), expected)


@pytest.mark.parametrize(
    "apply",
    [
        lambda t, x: t.rotate(x, 90),
        lambda t, x: t.rotate(x, 37.0),
        lambda t, x: t.rotate(x, 37.0, center=(2, 3), fill=(7, 8, 9)),
        lambda t, x: t.rotate(x, 25.0, expand=True),
        lambda t, x: t.affine(x, 20, (1, 2), 1.3, (5, 0)),
        lambda t, x: t.affine(x, -33, (0, 0), 0.8, (10, 7)),
    ],
)
def test_turning_is_what_paddle_does_with_pil(real, apply):
    expected = np.asarray(apply(real, as_pil(IMAGE)))
    found = apply(T, IMAGE)
    assert found.shape == expected.shape
    assert (found != expected).any(2).mean() < 0.03  # ties between two pixels


@pytest.mark.parametrize(
    ("name", "factors", "tolerance"),
    [
        ("adjust_brightness", (0.0, 0.4, 1.0, 1.7), 1),
        ("adjust_contrast", (0.0, 0.4, 1.0, 1.7), 1),
        ("adjust_hue", (-0.5, -0.1, 0.0, 0.3), 16),  # PIL keeps 8 bits of hue
    ],
)
def test_colours_are_near_pils(real, name, factors, tolerance):
    for factor in factors:
        expected = np.asarray(getattr(real, name)(as_pil(IMAGE), factor)).astype(int)
        found = getattr(T, name)(IMAGE, factor).astype(int)
        assert np.abs(found - expected).max() <= tolerance


def test_grayscale_is_near_pils(real):
    for channels in (1, 3):
        expected = np.asarray(real.to_grayscale(as_pil(IMAGE), channels)).astype(int)
        found = T.to_grayscale(IMAGE, channels).astype(int)
        assert np.abs(found.reshape(expected.shape) - expected).max() <= 1


@pytest.mark.parametrize("size", [(6, 30), (24, 7), 8, (12, 15)])
@pytest.mark.parametrize("method", ["bilinear", "bicubic", "nearest"])
def test_resize_is_paddles_tensor_path(paddle, size, method):
    chw = paddle.to_tensor(FLOAT.transpose(2, 0, 1))
    expected = paddle.vision.transforms.resize(chw, size, method).numpy().transpose(1, 2, 0)
    np.testing.assert_allclose(T.resize(FLOAT, size, method), expected, atol=2e-6)


def test_resize_rounds_integers_and_keeps_dtypes():
    assert T.resize(IMAGE, (5, 5)).dtype == np.uint8
    assert T.resize(FLOAT.astype("float64"), (5, 5)).dtype == np.float64
    np.testing.assert_array_equal(T.resize(IMAGE, 12), IMAGE)
    flat = np.full((4, 4), 255, "uint8")
    np.testing.assert_array_equal(T.resize(flat, (9, 9), "bicubic"), 255)


def test_affine_of_nothing_is_the_image_and_parts_agree_with_rotation():
    np.testing.assert_array_equal(T.affine(IMAGE, 0, (0, 0), 1.0, 0), IMAGE)
    np.testing.assert_array_equal(T.affine(IMAGE, -90, (0, 0), 1.0, 0), T.rotate(IMAGE, 90))
    moved = T.affine(IMAGE, 0, (2, 1), 1.0, (0, 0))
    np.testing.assert_array_equal(moved[1:, 2:], IMAGE[:-1, :-2])
    assert not moved[0].any()


def test_to_tensor(real):
    for array in (IMAGE, GRAY):
        expected = real.to_tensor(as_pil(array))
        found = T.to_tensor(array)
        assert found.shape == expected.shape
        assert found.dtype is bireme.float32
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)
    assert T.to_tensor(IMAGE, "HWC").shape == [12, 15, 3]
    assert T.to_tensor(FLOAT).numpy().max() <= 1


@pytest.mark.parametrize(("data_format", "to_rgb"), [("CHW", False), ("HWC", False), ("HWC", True)])
def test_normalize(real, data_format, to_rgb):
    array = FLOAT.transpose(2, 0, 1).copy() if data_format == "CHW" else FLOAT
    options = ([0.1, 0.2, 0.3], [0.5, 0.6, 0.7], data_format, to_rgb)
    expected = real.normalize(array, *options)
    np.testing.assert_allclose(T.normalize(array, *options), expected, rtol=1e-5)
    tensor = T.normalize(bireme.to_tensor(array), *options)
    np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-5)


def test_the_usual_mnist_normalisation_of_grey_images(real):
    transform = [t.Normalize([127.5], [127.5], data_format="CHW") for t in (real, T)]
    expected = transform[0](as_pil(GRAY))
    np.testing.assert_allclose(transform[1](GRAY), expected, rtol=1e-6)


def test_to_rgb_exchanges_channels_in_either_format():
    mean, std = [0.1, 0.2, 0.3], [0.5, 0.6, 0.7]
    hwc = T.normalize(FLOAT, mean, std, "HWC", to_rgb=True)
    chw = T.normalize(FLOAT.transpose(2, 0, 1), mean, std, "CHW", to_rgb=True)
    np.testing.assert_array_equal(chw, hwc.transpose(2, 0, 1))


def test_erase():
    out = T.erase(IMAGE, 1, 2, 3, 4, 0)
    assert not out[1:4, 2:6].any()
    np.testing.assert_array_equal(out[4:], IMAGE[4:])
    tensor = T.erase(T.to_tensor(IMAGE), 1, 2, 3, 4, 0.5)
    assert (tensor.numpy()[:, 1:4, 2:6] == 0.5).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.RandomHorizontalFlip(),
        lambda t: t.RandomVerticalFlip(0.3),
        lambda t: t.RandomCrop(7),
        lambda t: t.RandomCrop((9, 5), padding=2),
        lambda t: t.RandomCrop(20, pad_if_needed=True),
    ],
)
def test_random_transforms_draw_as_paddles(real, make):
    for seed in range(8):
        random.seed(seed)
        expected = np.asarray(make(real)(as_pil(IMAGE)))
        random.seed(seed)
        np.testing.assert_array_equal(make(T)(IMAGE), expected)


@pytest.mark.parametrize(
    "transform",
    [
        T.RandomResizedCrop(8),
        T.ColorJitter(0.4, 0.4, 0.4, 0.2),
        T.RandomErasing(1.0),
        T.RandomErasing(1.0, value="random"),
        T.RandomErasing(1.0, value=[1, 2, 3]),
        T.RandomAffine(30, (0.1, 0.1), (0.8, 1.2), 10),
        T.Compose([T.Resize(16), T.CenterCrop(9), T.ToTensor()]),
        T.Compose([T.Grayscale(3), T.Transpose(), T.Normalize(127.5, 127.5)]),
    ],
    ids=lambda t: type(t).__name__,
)
def test_transforms_repeat_with_a_seed_pickle_and_print(transform):
    results = []
    for t in (transform, pickle.loads(pickle.dumps(transform))):
        random.seed(5)
        np.random.seed(5)
        results.append(np.asarray(t(IMAGE)))
    np.testing.assert_array_equal(*results)
    assert type(transform).__name__ in repr(transform)


def test_resized_crops_have_the_size_and_vary():
    random.seed(0)
    crops = [T.RandomResizedCrop((6, 9))(SMOOTH) for _ in range(20)]
    assert {c.shape for c in crops} == {(6, 9, 3)}
    assert len({c.tobytes() for c in crops}) > 10


def test_keys_choose_the_fields_and_images_share_the_draw():
    random.seed(1)
    flip = T.RandomHorizontalFlip(1.0, keys=("image", "image", "label"))
    a, b, label, rest = flip((IMAGE, GRAY, 7, "as is"))
    np.testing.assert_array_equal(a, IMAGE[:, ::-1])
    np.testing.assert_array_equal(b, GRAY[:, ::-1])
    assert (label, rest) == (7, "as is")
    with pytest.raises(BiremeError, match="more fields"):
        flip((IMAGE,))


def test_a_transform_of_ones_own_gets_all_fields_and_changes_boxes():
    class Mirror(T.BaseTransform):
        def _get_params(self, inputs):
            image = inputs[self.keys.index("image")]
            assert F._is_numpy_image(image)
            assert not F._is_pil_image(image)
            assert not F._is_tensor_image(image)
            return image.shape[1]

        def _apply_image(self, image):
            return image[:, ::-1]

        def _apply_boxes(self, boxes):
            return self.params - boxes

    image, boxes = Mirror(keys=("image", "boxes"))((IMAGE, np.array([1, 2])))
    np.testing.assert_array_equal(image, IMAGE[:, ::-1])
    np.testing.assert_array_equal(boxes, IMAGE.shape[1] - np.array([1, 2]))
    with pytest.raises(NotImplementedError, match="_apply_mask"):
        Mirror(keys=("image", "mask"))((IMAGE, IMAGE))


def test_inputs_stay_as_they_were():
    before = IMAGE.copy()
    for transform in (T.RandomErasing(1.0), T.ColorJitter(0.5, 0.5, 0.5, 0.5), T.Pad(1)):
        transform(IMAGE)
    np.testing.assert_array_equal(IMAGE, before)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: T.hflip(bireme.to_tensor([1.0])), "a tensor image must be"),
        (lambda: T.to_tensor(bireme.ones([3, 4, 4])), "Received: Tensor"),
        (lambda: T.RandomPerspective(prob=2), "between 0 and 1"),
        (lambda: T.perspective(IMAGE, [[0, 0]], [[0, 0]]), "four points"),
        (lambda: T.hflip(np.zeros(3)), r"shape \[3\]"),
        (lambda: T.hflip(np.array([["a"]])), "of numbers"),
        (lambda: T.resize(IMAGE, (0, 3)), "positive"),
        (lambda: T.resize(IMAGE, 3, "magic"), "'magic'"),
        (lambda: T.pad(IMAGE, (1, 2, 3)), "1, 2 or 4"),
        (lambda: T.pad(IMAGE, 1, padding_mode="wrong"), "'wrong'"),
        (lambda: T.adjust_hue(IMAGE, 0.6), "0.6"),
        (lambda: T.RandomCrop(50)(IMAGE), "12 x 15 holds no piece of 50 x 50"),
        (lambda: T.RandomHorizontalFlip(2), "between 0 and 1"),
        (lambda: T.BrightnessTransform(-1), "bad range"),
        (lambda: T.HueTransform(0.7), "bad range"),
        (lambda: T.RandomRotation(-1), "negative"),
        (lambda: T.to_tensor(IMAGE, "NCHW"), "'NCHW'"),
        (lambda: T.to_grayscale(IMAGE, 2), "1 or 3"),
        (lambda: T.affine(IMAGE, 0, (0, 0), 0, 0), "positive"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(BiremeError, match=message):
        call()
