"""Operations on PIL images, which stay PIL images; Pillow does the work."""

from __future__ import annotations

import importlib
import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor, constant
from bireme.vision.image import pillow
from bireme.vision.transforms import arrays
from bireme.vision.transforms.arrays import Fill

if TYPE_CHECKING:
    import numpy.typing as npt
    from PIL.Image import Image as PilImage


def _module(name: str) -> Any:
    return importlib.import_module(f"PIL.{name}")


def _method(interpolation: str) -> Any:
    methods = {"nearest": "NEAREST", "bilinear": "BILINEAR", "bicubic": "BICUBIC", "box": "BOX",
               "lanczos": "LANCZOS", "hamming": "HAMMING"}  # fmt: skip
    if interpolation not in methods:
        raise InvalidArgument(
            f"interpolation must be one of {', '.join(methods)}. Received: {interpolation!r}"
        )
    return getattr(pillow().Resampling, methods[interpolation])


def _fill(img: PilImage, fill: Fill) -> float | tuple[float, ...]:
    """A colour that fits the image: one number fills every channel."""
    bands = len(img.getbands())
    if isinstance(fill, int | float):
        return fill if bands == 1 else (int(fill),) * bands
    return tuple(fill)[:bands] if bands > 1 else fill[0]


def to_tensor(pic: PilImage, data_format: str = "CHW") -> Tensor:
    """Pixels of 8 bits as float32 in 0..1, others as they are."""
    if pic.mode in ("I", "I;16"):
        array = np.asarray(pic, np.int32)
    elif pic.mode == "1":
        array = np.asarray(pic, np.uint8) * np.uint8(255)
    else:
        array = np.asarray(pic)
    if array.dtype == np.int32:
        array = array[None] if data_format == "CHW" else array[:, :, None]
        return constant(np.ascontiguousarray(array))
    return arrays.to_tensor(array, data_format)


def resize(img: PilImage, size: int | Sequence[int], interpolation: str = "bilinear") -> PilImage:
    width, height = img.size
    if isinstance(size, numbers.Integral):
        short, wanted = min(width, height), int(size)
        if short == wanted:
            return img
        new = (int(wanted * width / short), int(wanted * height / short))
    else:
        new_height, new_width = arrays.pair(size)
        new = (new_width, new_height)
    return img.resize(new, _method(interpolation))


def pad(
    img: PilImage, padding: int | Sequence[int], fill: Fill = 0, padding_mode: str = "constant"
) -> PilImage:
    if padding_mode == "constant":
        border = padding if isinstance(padding, numbers.Integral) else tuple(padding)  # pyright: ignore[reportArgumentType]
        return _module("ImageOps").expand(img, border=border, fill=_fill(img, fill))
    padded = pillow().fromarray(arrays.pad(np.asarray(img), padding, 0, padding_mode))
    if img.mode == "P":
        padded.putpalette(img.getpalette())
    return padded


def crop(img: PilImage, top: int, left: int, height: int, width: int) -> PilImage:
    return img.crop((left, top, left + width, top + height))


def hflip(img: PilImage) -> PilImage:
    return img.transpose(pillow().Transpose.FLIP_LEFT_RIGHT)


def vflip(img: PilImage) -> PilImage:
    return img.transpose(pillow().Transpose.FLIP_TOP_BOTTOM)


def adjust_brightness(img: PilImage, brightness_factor: float) -> PilImage:
    return _module("ImageEnhance").Brightness(img).enhance(brightness_factor)


def adjust_contrast(img: PilImage, contrast_factor: float) -> PilImage:
    return _module("ImageEnhance").Contrast(img).enhance(contrast_factor)


def adjust_saturation(img: PilImage, saturation_factor: float) -> PilImage:
    return _module("ImageEnhance").Color(img).enhance(saturation_factor)


def adjust_hue(img: PilImage, hue_factor: float) -> PilImage:
    if img.mode in ("L", "1", "I", "F"):
        return img
    hue, *rest = img.convert("HSV").split()
    turned = (np.asarray(hue, np.int16) + int(hue_factor * 255)) % 256
    image = pillow()
    return image.merge("HSV", (image.fromarray(turned.astype(np.uint8)), *rest)).convert(img.mode)


def rotate(
    img: PilImage,
    angle: float,
    interpolation: str = "nearest",
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: Fill = 0,
) -> PilImage:
    middle: Any = None if center is None else tuple(center)
    colour = _fill(img, fill)
    return img.rotate(angle, _method(interpolation), expand, middle, fillcolor=colour)


def _transformed(
    img: PilImage, kind: str, matrix: np.ndarray, interpolation: str, fill: Fill
) -> PilImage:
    how: Any = getattr(pillow().Transform, kind)
    values = matrix.ravel()[:8] if matrix.shape[0] == 3 else matrix.ravel()
    method = _method(interpolation)
    return img.transform(img.size, how, tuple(values), method, fillcolor=_fill(img, fill))


def affine(
    img: PilImage,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: float | Sequence[float],
    interpolation: str = "nearest",
    fill: Fill = 0,
    center: Sequence[float] | None = None,
) -> PilImage:
    middle = (img.size[0] * 0.5, img.size[1] * 0.5) if center is None else center
    matrix = arrays.inverse_affine(angle, translate, scale, shear, middle)
    return _transformed(img, "AFFINE", matrix, interpolation, fill)


def perspective(
    img: PilImage,
    startpoints: Sequence[Sequence[float]],
    endpoints: Sequence[Sequence[float]],
    interpolation: str = "nearest",
    fill: Fill = 0,
) -> PilImage:
    matrix = arrays.inverse_perspective(startpoints, endpoints)
    return _transformed(img, "PERSPECTIVE", matrix, interpolation, fill)


def to_grayscale(img: PilImage, num_output_channels: int = 1) -> PilImage:
    gray = img.convert("L")
    return gray if num_output_channels == 1 else pillow().merge("RGB", (gray, gray, gray))


def erase(
    img: PilImage, i: int, j: int, h: int, w: int, v: npt.ArrayLike, inplace: bool = False
) -> PilImage:
    """A new image; PIL images are never changed in place, as in Paddle."""
    return pillow().fromarray(arrays.erase(np.asarray(img), i, j, h, w, v))
