"""Operations on images of any kind: each goes to its own kind's module and stays what it is.

Tensors are [channels, height, width], arrays [height, width(, channels)], PIL images PIL images.
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.api.types import TensorLike
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.vision.image import Like, Picture
from bireme.vision.transforms import arrays
from bireme.vision.transforms.arrays import Fill, as_image, pair

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

__all__ = ["as_image", "is_pil", "pair"]


def is_pil(img: object) -> bool:
    """Whether this is a PIL image; Pillow is not imported to find out."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(img, module.Image)


# Paddle's names, which transforms of users ask for an image's kind with.
_is_pil_image = is_pil


def _is_numpy_image(img: object) -> bool:
    return isinstance(img, np.ndarray) and img.ndim in (2, 3)


def _is_tensor_image(img: object) -> bool:
    return isinstance(img, Tensor)


def _kind(owner: str, img: Any) -> Any:
    """The module that works on images like this one."""
    if isinstance(img, Tensor):
        from bireme.vision.transforms import tensors

        return tensors
    if is_pil(img):
        from bireme.vision.transforms import pil

        return pil
    as_image(img, owner)
    return arrays


def size_of(img: Any) -> tuple[int, int]:
    """(height, width)."""
    if isinstance(img, Tensor):
        height, width = img.shape[-2:]
    elif is_pil(img):
        width, height = img.size
    else:
        height, width = np.asarray(img).shape[:2]
    return height, width


def to_tensor(pic: np.ndarray | PilImage, data_format: str = "CHW") -> Tensor:
    """The image as a float32 tensor; uint8 images are scaled to 0..1."""
    if data_format not in ("CHW", "HWC"):
        raise InvalidArgument(
            f"[to_tensor] data_format must be 'CHW' or 'HWC'. Received: {data_format!r}"
        )
    if isinstance(pic, Tensor):
        raise TypeMismatch("[to_tensor] takes a PIL image or an array. Received: Tensor")
    return _kind("to_tensor", pic).to_tensor(pic, data_format)


def hflip(img: Like) -> Like:
    """Left and right exchanged."""
    return _kind("hflip", img).hflip(img)


def vflip(img: Like) -> Like:
    """Top and bottom exchanged."""
    return _kind("vflip", img).vflip(img)


def crop(img: Like, top: int, left: int, height: int, width: int) -> Like:
    """A piece of the image."""
    return _kind("crop", img).crop(img, top, left, height, width)


def center_crop(img: Like, output_size: int | Sequence[int]) -> Like:
    """A piece from the middle."""
    kind = _kind("center_crop", img)
    (height, width), (have_height, have_width) = pair(output_size), size_of(img)
    top, left = round((have_height - height) / 2), round((have_width - width) / 2)
    return kind.crop(img, top, left, height, width)


def pad(
    img: Like, padding: int | Sequence[int], fill: Fill = 0, padding_mode: str = "constant"
) -> Like:
    """Borders of [all], [left/right, top/bottom] or [left, top, right, bottom] pixels."""
    return _kind("pad", img).pad(img, padding, fill, padding_mode)


def resize(img: Like, size: int | Sequence[int], interpolation: str = "bilinear") -> Like:
    """Scale to (height, width), or the shorter side to `size`, keeping the proportions."""
    return _kind("resize", img).resize(img, size, interpolation)


def normalize(
    img: Picture,
    mean: float | Sequence[float],
    std: float | Sequence[float],
    data_format: str = "CHW",
    to_rgb: bool = False,
) -> Tensor | np.ndarray:
    """(img - mean) / std per channel; a Tensor stays a Tensor. `to_rgb` exchanges BGR first."""
    if data_format not in ("CHW", "HWC"):
        raise InvalidArgument(
            f"[normalize] data_format must be 'CHW' or 'HWC'. Received: {data_format!r}"
        )
    kind: Any = _kind("normalize", img) if isinstance(img, Tensor) else arrays
    return kind.normalize(img, mean, std, data_format, to_rgb)


def to_grayscale(img: Like, num_output_channels: int = 1) -> Like:
    """Brightness as 1 or 3 equal channels."""
    if num_output_channels not in (1, 3):
        raise InvalidArgument(
            f"[to_grayscale] num_output_channels must be 1 or 3. Received: {num_output_channels}"
        )
    return _kind("to_grayscale", img).to_grayscale(img, num_output_channels)


def adjust_brightness(img: Like, brightness_factor: float) -> Like:
    """0 gives black, 1 the image itself, 2 twice the brightness."""
    return _kind("adjust_brightness", img).adjust_brightness(img, brightness_factor)


def adjust_contrast(img: Like, contrast_factor: float) -> Like:
    """0 gives plain grey, 1 the image itself, 2 twice the contrast."""
    return _kind("adjust_contrast", img).adjust_contrast(img, contrast_factor)


def adjust_saturation(img: Like, saturation_factor: float) -> Like:
    """0 gives grey, 1 the image itself, 2 twice the colour."""
    return _kind("adjust_saturation", img).adjust_saturation(img, saturation_factor)


def adjust_hue(img: Like, hue_factor: float) -> Like:
    """Turn the colour circle by `hue_factor` of a whole turn, -0.5 to 0.5."""
    if not -0.5 <= hue_factor <= 0.5:
        raise InvalidArgument(
            f"[adjust_hue] hue_factor must lie between -0.5 and 0.5. Received: {hue_factor}"
        )
    return _kind("adjust_hue", img).adjust_hue(img, hue_factor)


def erase(img: Like, i: int, j: int, h: int, w: int, v: TensorLike, inplace: bool = False) -> Like:
    """Overwrite the piece at row `i`, column `j` of size `h` x `w` with `v`."""
    return _kind("erase", img).erase(img, i, j, h, w, v, inplace)


def rotate(
    img: Any,
    angle: float,
    interpolation: str = "nearest",
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: Fill = 0,
) -> Any:
    """Turn counter-clockwise by `angle` degrees about `center` (x, y); `expand` keeps corners."""
    return _kind("rotate", img).rotate(img, angle, interpolation, expand, center, fill)


def affine(
    img: Any,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: float | Sequence[float],
    interpolation: str = "nearest",
    fill: Fill = 0,
    center: Sequence[float] | None = None,
) -> Any:
    """Turn clockwise by `angle` degrees, scale, shear by degrees and move by (x, y) pixels."""
    if not isinstance(angle, numbers.Real):
        raise TypeMismatch(f"[affine] angle must be a number. Received: {angle!r}")
    if not isinstance(translate, list | tuple) or len(translate) != 2:
        raise InvalidArgument(f"[affine] translate must be two numbers. Received: {translate!r}")
    kind = _kind("affine", img)
    return kind.affine(img, angle, translate, scale, shear, interpolation, fill, center)


def perspective(
    img: Any,
    startpoints: Sequence[Sequence[float]],
    endpoints: Sequence[Sequence[float]],
    interpolation: str = "nearest",
    fill: Fill = 0,
) -> Any:
    """The image bent so that four points [x, y] (the corners, say) go to four others."""
    kind = _kind("perspective", img)
    return kind.perspective(img, startpoints, endpoints, interpolation, fill)
