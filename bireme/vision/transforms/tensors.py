"""Operations on tensors [channels, height, width]; they are recorded and pass gradients."""

from __future__ import annotations

import numbers
from collections.abc import Sequence

import numpy as np

import bireme
from bireme.api.types import TensorLike
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.vision.transforms import arrays
from bireme.vision.transforms.arrays import Fill

_GRAY = np.array([0.2989, 0.5870, 0.1140], "float32")


def _check(owner: str, img: Tensor, colours: bool = False) -> None:
    if img.ndim not in (3, 4):
        raise InvalidArgument(
            f"[{owner}] a tensor image must be [channels, height, width], with or without a batch "
            f"in front. Received: {img.shape}"
        )
    if colours and img.shape[-3] not in (1, 3):
        raise InvalidArgument(f"[{owner}] takes 1 or 3 channels. Received: {img.shape}")


def _batched(img: Tensor) -> tuple[Tensor, bool]:
    return (img, False) if img.ndim == 4 else (bireme.unsqueeze(img, 0), True)


def hflip(img: Tensor) -> Tensor:
    _check("hflip", img)
    return bireme.flip(img, axis=[-1])


def vflip(img: Tensor) -> Tensor:
    _check("vflip", img)
    return bireme.flip(img, axis=[-2])


def crop(img: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    _check("crop", img)
    return img[..., top : top + height, left : left + width]


def pad(
    img: Tensor, padding: int | Sequence[int], fill: float = 0, padding_mode: str = "constant"
) -> Tensor:
    _check("pad", img)
    modes = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}
    if padding_mode not in modes:
        raise InvalidArgument(
            f"[pad] padding_mode of a tensor must be one of {', '.join(modes)}. Received: "
            f"{padding_mode!r}"
        )
    left, top, right, bottom = arrays.four_sides(padding)
    batch, single = _batched(img)
    sides = [left, right, top, bottom]
    out = F.pad(batch, sides, mode=modes[padding_mode], value=float(fill))
    return bireme.squeeze(out, 0) if single else out


def resize(img: Tensor, size: int | Sequence[int], interpolation: str = "bilinear") -> Tensor:
    _check("resize", img)
    height, width = img.shape[-2:]
    if isinstance(size, numbers.Integral):
        short = min(height, width)
        if short == size:
            return img
        new = [int(size * height / short), int(size * width / short)]
    else:
        new = list(arrays.pair(size))
    batch, single = _batched(img)
    out = F.interpolate(batch, size=new, mode=interpolation)
    return bireme.squeeze(out, 0) if single else out


def normalize(
    img: Tensor,
    mean: float | Sequence[float],
    std: float | Sequence[float],
    data_format: str = "CHW",
    to_rgb: bool = False,
) -> Tensor:
    shape = [-1, 1, 1] if data_format == "CHW" else [-1]
    if to_rgb:
        img = bireme.flip(img, axis=[-3 if data_format == "CHW" else -1])
    centre, spread = (
        bireme.to_tensor(np.asarray(v, "float32").reshape(shape)) for v in (mean, std)
    )
    return (img.astype("float32") - centre) / spread


def to_grayscale(img: Tensor, num_output_channels: int = 1) -> Tensor:
    _check("to_grayscale", img)
    weights = bireme.to_tensor(_GRAY.reshape(3, 1, 1)).astype(img.dtype)
    gray = bireme.sum(img * weights, axis=-3, keepdim=True).astype(img.dtype)
    return bireme.concat([gray] * num_output_channels, axis=-3)


def _blend(img: Tensor, other: Tensor, factor: float) -> Tensor:
    """`other` at 0, the image at 1, kept within the image's range."""
    most = 1.0 if img.dtype.is_floating else 255.0
    kind = img.dtype if img.dtype.is_floating else bireme.float32
    mixed = other.astype(kind) + (img.astype(kind) - other.astype(kind)) * float(factor)
    return bireme.clip(mixed, 0.0, most).astype(img.dtype)


def _factor(owner: str, factor: float) -> None:
    if factor < 0:
        raise InvalidArgument(f"[{owner}] the factor must not be negative. Received: {factor}")


def adjust_brightness(img: Tensor, brightness_factor: float) -> Tensor:
    _check("adjust_brightness", img, colours=True)
    _factor("adjust_brightness", brightness_factor)
    return _blend(img, bireme.zeros_like(img), brightness_factor)


def adjust_contrast(img: Tensor, contrast_factor: float) -> Tensor:
    _check("adjust_contrast", img, colours=True)
    _factor("adjust_contrast", contrast_factor)
    kind = img.dtype if img.dtype.is_floating else bireme.float32
    gray = img if img.shape[-3] == 1 else to_grayscale(img)
    middle = bireme.mean(gray.astype(kind), axis=[-3, -2, -1], keepdim=True)
    return _blend(img, middle, contrast_factor)


def adjust_saturation(img: Tensor, saturation_factor: float) -> Tensor:
    _check("adjust_saturation", img, colours=True)
    _factor("adjust_saturation", saturation_factor)
    return img if img.shape[-3] == 1 else _blend(img, to_grayscale(img), saturation_factor)


def adjust_hue(img: Tensor, hue_factor: float) -> Tensor:
    _check("adjust_hue", img, colours=True)
    if img.shape[-3] == 1:
        return img
    rgb = img if img.dtype.is_floating else img.astype("float32") / 255.0
    high, low = bireme.max(rgb, axis=-3, keepdim=True), bireme.min(rgb, axis=-3, keepdim=True)
    spread = bireme.where(high == low, bireme.ones_like(high), high - low)
    red, green, blue = bireme.split(rgb, 3, axis=-3)
    sixth = bireme.where(
        high == red,
        (green - blue) / spread,
        bireme.where(high == green, 2.0 + (blue - red) / spread, 4.0 + (red - green) / spread),
    )
    hue = sixth / 6.0 + hue_factor
    hue = (hue - bireme.floor(hue)) * 6.0
    channels = []
    for offset in (0.0, 4.0, 2.0):  # where red, green and blue peak on the circle
        place = hue + offset
        ramp = bireme.abs(place - 6.0 * bireme.floor(place / 6.0) - 3.0) - 1.0
        channels.append(low + (high - low) * bireme.clip(ramp, 0.0, 1.0))
    out = bireme.concat(channels, axis=-3)
    return out if img.dtype.is_floating else (out * 255.0).astype(img.dtype)


def erase(
    img: Tensor, i: int, j: int, h: int, w: int, v: TensorLike, inplace: bool = False
) -> Tensor:
    out = img if inplace else img.clone()
    out[..., i : i + h, j : j + w] = v
    return out


def _sampled(
    img: Tensor, matrix: np.ndarray, size: tuple[int, int], interpolation: str, fill: Fill
) -> Tensor:
    """The image whose pixel (x, y) is the old one's at `matrix @ (x, y, 1)`; pixel centres."""
    batch, single = _batched(img)
    height, width = batch.shape[-2:]
    y, x = np.meshgrid(np.arange(size[0]) + 0.5, np.arange(size[1]) + 0.5, indexing="ij")
    old = np.stack([x, y, np.ones_like(x)], -1) @ matrix.T
    if len(matrix) == 3:
        old = old[..., :2] / old[..., 2:]
    places = (old / [0.5 * width, 0.5 * height] - 1.0).astype("float32")
    grid = bireme.to_tensor(np.broadcast_to(places, (batch.shape[0], *places.shape)).copy())
    # Where nothing of the old image is, a channel of ones shows it.
    ones = bireme.ones([batch.shape[0], 1, height, width], batch.dtype)
    out = F.grid_sample(
        bireme.concat([batch, ones], axis=1),
        grid.astype(batch.dtype),
        mode=interpolation,
        padding_mode="zeros",
        align_corners=False,
    )
    inside, out = out[:, -1:], out[:, :-1]
    colour = np.broadcast_to(np.asarray(fill, "float32").reshape(-1, 1, 1), (out.shape[1], 1, 1))
    paint = bireme.to_tensor(colour.copy()).astype(out.dtype)
    if interpolation == "nearest":
        out = bireme.where(inside < 0.5, bireme.expand_as(paint, out), out)
    else:
        out = out * inside + (1.0 - inside) * paint
    return bireme.squeeze(out, 0) if single else out


def rotate(
    img: Tensor,
    angle: float,
    interpolation: str = "nearest",
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: Fill = 0,
) -> Tensor:
    _check("rotate", img)
    height, width = img.shape[-2:]
    matrix, size = arrays.inverse_rotation(angle, (height, width), expand, center, True)
    return _sampled(img, matrix, size, interpolation, fill)


def affine(
    img: Tensor,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: float | Sequence[float],
    interpolation: str = "nearest",
    fill: Fill = 0,
    center: Sequence[float] | None = None,
) -> Tensor:
    _check("affine", img)
    height, width = img.shape[-2:]
    middle = (width * 0.5, height * 0.5) if center is None else center
    matrix = arrays.inverse_affine(angle, translate, scale, shear, middle)
    return _sampled(img, matrix, (height, width), interpolation, fill)


def perspective(
    img: Tensor,
    startpoints: Sequence[Sequence[float]],
    endpoints: Sequence[Sequence[float]],
    interpolation: str = "nearest",
    fill: Fill = 0,
) -> Tensor:
    _check("perspective", img)
    matrix = arrays.inverse_perspective(startpoints, endpoints)
    return _sampled(img, matrix, tuple(img.shape[-2:]), interpolation, fill)
