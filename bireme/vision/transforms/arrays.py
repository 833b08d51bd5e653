"""Operations on arrays [height, width] or [height, width, channels].

The results keep the dtype; uint8 results are rounded and clipped.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor, constant

if TYPE_CHECKING:
    import numpy.typing as npt

Fill = float | Sequence[float]  # one value for every channel, or one per channel

_PAD_MODES = {
    "constant": "constant",
    "edge": "edge",
    "reflect": "reflect",
    "symmetric": "symmetric",
}
# Weights of red, green and blue in brightness (ITU-R 601).
_GRAY = np.array([0.299, 0.587, 0.114])


def as_image(img: npt.ArrayLike, owner: str) -> np.ndarray:
    """The image as an array, or a clear error."""
    array = np.asarray(img)
    if array.ndim not in (2, 3) or array.dtype.kind not in "uifb":
        raise TypeMismatch(
            f"[{owner}] takes an array [height, width] or [height, width, channels] of numbers. "
            f"Received: {type(img).__name__} of shape {list(array.shape)}, dtype {array.dtype}"
        )
    return array


def _like(result: np.ndarray, original: np.ndarray) -> np.ndarray:
    """Back to the original's dtype; integers are rounded and kept in range."""
    if original.dtype.kind in "ui":
        limits = np.iinfo(original.dtype)
        result = np.clip(np.rint(result), limits.min, limits.max)
    return result.astype(original.dtype)


def to_tensor(pic: npt.ArrayLike, data_format: str = "CHW") -> Tensor:
    """The image as a float32 tensor; uint8 images are scaled to 0..1."""
    if data_format not in ("CHW", "HWC"):
        raise InvalidArgument(
            f"[to_tensor] data_format must be 'CHW' or 'HWC'. Received: {data_format!r}"
        )
    array = as_image(pic, "to_tensor")
    if array.ndim == 2:
        array = array[:, :, None]
    if data_format == "CHW":
        array = array.transpose(2, 0, 1)
    if array.dtype == np.uint8:
        return constant(np.ascontiguousarray(array, "float32") / np.float32(255))
    wanted = array.dtype if array.dtype.kind == "f" else np.dtype("float32")
    return constant(np.array(array, wanted, order="C"))


def hflip(img: np.ndarray) -> np.ndarray:
    """Left and right exchanged."""
    return as_image(img, "hflip")[:, ::-1].copy()


def vflip(img: np.ndarray) -> np.ndarray:
    """Top and bottom exchanged."""
    return as_image(img, "vflip")[::-1].copy()


def crop(img: np.ndarray, top: int, left: int, height: int, width: int) -> np.ndarray:
    """A piece of the image."""
    return as_image(img, "crop")[top : top + height, left : left + width].copy()


def center_crop(img: np.ndarray, output_size: int | Sequence[int]) -> np.ndarray:
    """A piece from the middle."""
    height, width = pair(output_size)
    have_height, have_width = as_image(img, "center_crop").shape[:2]
    top, left = round((have_height - height) / 2), round((have_width - width) / 2)
    return crop(img, top, left, height, width)


def pair(size: int | Sequence[int]) -> tuple[int, int]:
    """(height, width) from a number or two."""
    if isinstance(size, numbers.Integral):
        return int(size), int(size)
    height, width = size  # pyright: ignore[reportGeneralTypeIssues]
    return int(height), int(width)


def four_sides(padding: int | Sequence[int]) -> tuple[int, int, int, int]:
    """(left, top, right, bottom) from one, two or four numbers."""
    sides: list[Any] = [padding] if isinstance(padding, numbers.Integral) else list(padding)  # pyright: ignore[reportArgumentType]
    if len(sides) not in (1, 2, 4):
        raise InvalidArgument(f"[pad] padding must be 1, 2 or 4 numbers. Received: {padding!r}")
    left, top, right, bottom = (sides * (4 // len(sides)))[:4]
    return left, top, right, bottom


def pad(
    img: np.ndarray, padding: int | Sequence[int], fill: Fill = 0, padding_mode: str = "constant"
) -> np.ndarray:
    """Borders of [all], [left/right, top/bottom] or [left, top, right, bottom] pixels."""
    array = as_image(img, "pad")
    if padding_mode not in _PAD_MODES:
        raise InvalidArgument(
            f"[pad] padding_mode must be one of {', '.join(_PAD_MODES)}. Received: {padding_mode!r}"
        )
    left, top, right, bottom = four_sides(padding)
    widths = [(top, bottom), (left, right)] + [(0, 0)] * (array.ndim - 2)
    if padding_mode != "constant":
        return np.pad(array, widths, mode=_PAD_MODES[padding_mode])  # pyright: ignore[reportArgumentType, reportCallIssue]
    height, width = array.shape[:2]
    shape = (height + top + bottom, width + left + right, *array.shape[2:])
    out = np.empty(shape, array.dtype)
    out[...] = np.asarray(fill, array.dtype)
    out[top : top + height, left : left + width] = array
    return out


def resize(
    img: np.ndarray, size: int | Sequence[int], interpolation: str = "bilinear"
) -> np.ndarray:
    """Scale to (height, width), or the shorter side to `size`, keeping the proportions."""
    array = as_image(img, "resize")
    height, width = array.shape[:2]
    if isinstance(size, numbers.Integral):
        short = min(height, width)
        if short == size:
            return array
        new = (int(size * height / short), int(size * width / short))
    else:
        new = pair(size)
    if min(new) < 1:
        raise InvalidArgument(f"[resize] sizes must be positive. Received: {size!r}")
    rows, cols = _weights(height, new[0], interpolation), _weights(width, new[1], interpolation)
    wide = array.astype("float32" if array.dtype.itemsize < 8 else "float64")
    out = _interpolate(_interpolate(wide, rows, 0), cols, 1)
    return _like(out, array)


def _weights(old: int, new: int, method: str) -> tuple[np.ndarray, np.ndarray]:
    """For each new position the old ones to mix (indices) and how much of each (weights)."""
    centre = (np.arange(new) + 0.5) * (old / new) - 0.5  # pixels are areas, not points
    if method == "nearest":
        index = np.floor(np.arange(new) * (old / new)).astype(int)[:, None]
        return np.clip(index, 0, old - 1), np.ones((new, 1))
    if method == "bilinear":
        first = np.floor(centre).astype(int)
        part = centre - first
        index, weight = first[:, None] + [0, 1], np.stack([1 - part, part], 1)
    elif method == "bicubic":
        first = np.floor(centre).astype(int)
        index = first[:, None] + [-1, 0, 1, 2]
        weight = _cubic(np.abs(centre[:, None] - index))
    else:
        raise InvalidArgument(
            "[resize] interpolation must be 'nearest', 'bilinear' or 'bicubic'. Received: "
            f"{method!r}"
        )
    return np.clip(index, 0, old - 1), weight


def _cubic(distance: np.ndarray, a: float = -0.75) -> np.ndarray:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = a * (((distance - 5) * distance + 8) * distance - 4)
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def _interpolate(array: np.ndarray, how: tuple[np.ndarray, np.ndarray], axis: int) -> np.ndarray:
    index, weight = how
    shape = [1] * array.ndim
    shape[axis] = len(index)
    return sum(  # pyright: ignore[reportReturnType]
        np.take(array, index[:, k], axis) * weight[:, k].reshape(shape).astype(array.dtype)
        for k in range(index.shape[1])
    )


def normalize(
    img: np.ndarray,
    mean: float | Sequence[float],
    std: float | Sequence[float],
    data_format: str = "CHW",
    to_rgb: bool = False,
) -> np.ndarray:
    """(img - mean) / std per channel. `to_rgb` exchanges BGR first."""
    if data_format not in ("CHW", "HWC"):
        raise InvalidArgument(
            f"[normalize] data_format must be 'CHW' or 'HWC'. Received: {data_format!r}"
        )
    array = np.asarray(img, dtype="float32")
    shape = (-1, 1, 1) if data_format == "CHW" else (1, 1, -1)
    if to_rgb:
        array = array[::-1] if data_format == "CHW" else array[..., ::-1]
    centre = np.asarray(mean, "float32").reshape(shape)
    spread = np.asarray(std, "float32").reshape(shape)
    return (array - centre) / spread


def to_grayscale(img: np.ndarray, num_output_channels: int = 1) -> np.ndarray:
    """Brightness as 1 or 3 equal channels."""
    if num_output_channels not in (1, 3):
        raise InvalidArgument(
            f"[to_grayscale] num_output_channels must be 1 or 3. Received: {num_output_channels}"
        )
    array = as_image(img, "to_grayscale")
    gray = _like(_brightness(array), array)[:, :, None]
    return np.repeat(gray, num_output_channels, 2)


def _brightness(array: np.ndarray) -> np.ndarray:
    if array.ndim == 2:
        return array.astype("float64")
    return array[:, :, 0].astype("float64") if array.shape[2] == 1 else array[..., :3] @ _GRAY


def _blend(array: np.ndarray, other: Any, factor: float) -> np.ndarray:
    """`other` at 0, the image at 1, beyond it at more; kept within the image's range."""
    mixed = other + (array.astype("float64") - other) * factor
    if array.dtype.kind == "f":
        mixed = np.clip(mixed, 0, 255 if array.max(initial=0) > 1 else 1)
        return mixed.astype(array.dtype)
    limits = np.iinfo(array.dtype)
    return np.clip(mixed, limits.min, limits.max).astype(array.dtype)


def adjust_brightness(img: np.ndarray, brightness_factor: float) -> np.ndarray:
    """0 gives black, 1 the image itself, 2 twice the brightness."""
    return _blend(as_image(img, "adjust_brightness"), 0.0, brightness_factor)


def adjust_contrast(img: np.ndarray, contrast_factor: float) -> np.ndarray:
    """0 gives plain grey, 1 the image itself, 2 twice the contrast."""
    array = as_image(img, "adjust_contrast")
    gray = _brightness(array)
    if array.dtype.kind in "ui":
        gray = np.floor(gray)
        return _blend(array, np.floor(gray.mean() + 0.5), contrast_factor)
    return _blend(array, gray.mean(), contrast_factor)


def adjust_saturation(img: np.ndarray, saturation_factor: float) -> np.ndarray:
    """0 gives grey, 1 the image itself, 2 twice the colour."""
    array = as_image(img, "adjust_saturation")
    gray = _brightness(array)
    if array.dtype.kind in "ui":
        gray = np.floor(gray)
    return _blend(array, gray[:, :, None] if array.ndim == 3 else gray, saturation_factor)


def adjust_hue(img: np.ndarray, hue_factor: float) -> np.ndarray:
    """Turn the colour circle by `hue_factor` of a whole turn, -0.5 to 0.5."""
    if not -0.5 <= hue_factor <= 0.5:
        raise InvalidArgument(
            f"[adjust_hue] hue_factor must lie between -0.5 and 0.5. Received: {hue_factor}"
        )
    array = as_image(img, "adjust_hue")
    if array.ndim == 2 or array.shape[2] == 1:
        return array
    scale = 255.0 if array.dtype.kind in "ui" else 1.0
    hue, low, high = _to_hue(array[..., :3] / scale)
    out = _from_hue((hue + hue_factor) % 1.0, low, high) * scale
    return _like(np.concatenate([out, array[..., 3:]], 2), array)


def _to_hue(rgb: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(hue in 0..1, least channel, greatest channel)."""
    low, high = rgb.min(2), rgb.max(2)
    spread = np.where(high > low, high - low, 1.0)
    red, green, blue = np.moveaxis(rgb, 2, 0)
    sixth = np.select(
        [high == red, high == green],
        [(green - blue) / spread, 2 + (blue - red) / spread],
        4 + (red - green) / spread,
    )
    return np.where(high > low, sixth / 6 % 1.0, 0.0), low, high


def _from_hue(hue: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    channels = []
    for offset in (0, 4, 2):  # red, green, blue peak at 0, 1/3 and 2/3 of the circle
        ramp = np.abs((hue * 6 + offset) % 6 - 3) - 1
        channels.append(low + (high - low) * np.clip(ramp, 0, 1))
    return np.stack(channels, 2)


def erase(
    img: np.ndarray, i: int, j: int, h: int, w: int, v: npt.ArrayLike, inplace: bool = False
) -> np.ndarray:
    """Overwrite the piece at row `i`, column `j` of size `h` x `w` with `v`."""
    array = as_image(img, "erase")
    out = array if inplace and array.flags.writeable else array.copy()
    out[i : i + h, j : j + w] = np.asarray(v)
    return out


def rotate(
    img: np.ndarray,
    angle: float,
    interpolation: str = "nearest",
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: Fill = 0,
) -> np.ndarray:
    """Turn counter-clockwise by `angle` degrees about `center` (x, y); `expand` keeps corners."""
    array = as_image(img, "rotate")
    matrix, size = inverse_rotation(angle, array.shape[:2], expand, center)
    return warp(array, matrix, size, interpolation, fill)


def inverse_rotation(
    angle: float,
    size: tuple[int, int],
    expand: bool,
    center: Sequence[float] | None,
    from_middle: bool = False,
) -> tuple[np.ndarray, tuple[int, int]]:
    """[2, 3]: from a new pixel to the old one; and the new (height, width).

    The new size covers whole pixels, counted from the corner as PIL does or from the middle.
    """
    height, width = size
    turn = math.radians(angle)
    cos, sin = round(math.cos(turn), 15), round(math.sin(turn), 15)
    x, y = (width / 2, height / 2) if center is None else center
    new_height, new_width = height, width
    shift_x, shift_y = x, y
    if expand:
        left, top = (0, 0) if from_middle else (x, y)
        corners = [
            (cos * u + sin * v + left, -sin * u + cos * v + top)
            for u in (-x, width - x)
            for v in (-y, height - y)
        ]
        across, down = zip(*corners, strict=True)
        new_width = math.ceil(max(across)) - math.floor(min(across))
        new_height = math.ceil(max(down)) - math.floor(min(down))
        shift_x, shift_y = new_width / 2, new_height / 2
        x, y = width / 2, height / 2
    matrix = np.array([[cos, -sin, x], [sin, cos, y]])  # the inverse turn
    matrix[:, 2] -= matrix[:, :2] @ [shift_x, shift_y]
    return matrix, (new_height, new_width)


def affine(
    img: np.ndarray,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: float | Sequence[float],
    interpolation: str = "nearest",
    fill: Fill = 0,
    center: Sequence[float] | None = None,
) -> np.ndarray:
    """Turn clockwise by `angle` degrees, scale, shear by degrees and move by (x, y) pixels."""
    array = as_image(img, "affine")
    height, width = array.shape[:2]
    middle = (width / 2, height / 2) if center is None else center
    matrix = inverse_affine(angle, translate, scale, shear, middle)
    return warp(array, matrix, (height, width), interpolation, fill)


def inverse_affine(
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: float | Sequence[float],
    center: Sequence[float],
) -> np.ndarray:
    """[2, 3]: from a new pixel to the old one, for `affine`."""
    if scale <= 0:
        raise InvalidArgument(f"[affine] scale must be positive. Received: {scale}")
    x, y = center
    tilt_x, tilt_y = (shear, 0.0) if isinstance(shear, numbers.Real) else (*shear, 0.0)[:2]  # pyright: ignore[reportGeneralTypeIssues]
    turn, sx, sy = (math.radians(float(d)) for d in (angle, tilt_x, tilt_y))
    a = math.cos(turn - sy) / math.cos(sy)
    b = -math.cos(turn - sy) * math.tan(sx) / math.cos(sy) - math.sin(turn)
    c = math.sin(turn - sy) / math.cos(sy)
    d = -math.sin(turn - sy) * math.tan(sx) / math.cos(sy) + math.cos(turn)
    inverse = np.array([[d, -b], [-c, a]]) / scale  # the forward matrix has determinant 1
    matrix = np.concatenate([inverse, np.array([[x], [y]])], 1)
    matrix[:, 2] -= inverse @ [x + translate[0], y + translate[1]]
    return matrix


def perspective(
    img: np.ndarray,
    startpoints: Sequence[Sequence[float]],
    endpoints: Sequence[Sequence[float]],
    interpolation: str = "nearest",
    fill: Fill = 0,
) -> np.ndarray:
    """The image bent so that four points go to four others."""
    array = as_image(img, "perspective")
    matrix = inverse_perspective(startpoints, endpoints)
    return warp(array, matrix, array.shape[:2], interpolation, fill)


def inverse_perspective(
    startpoints: Sequence[Sequence[float]], endpoints: Sequence[Sequence[float]]
) -> np.ndarray:
    """[3, 3]: from a new pixel to the old one, up to a factor."""
    if len(startpoints) != 4 or len(endpoints) != 4:
        raise InvalidArgument(
            "[perspective] startpoints and endpoints must be four points [x, y] each. Received: "
            f"{len(startpoints)} and {len(endpoints)}"
        )
    rows = []
    for (x, y), (old_x, old_y) in zip(endpoints, startpoints, strict=True):
        rows.append([x, y, 1, 0, 0, 0, -old_x * x, -old_x * y])
        rows.append([0, 0, 0, x, y, 1, -old_y * x, -old_y * y])
    right = np.asarray(startpoints, "float64").reshape(8)
    found = np.linalg.lstsq(np.asarray(rows, "float64"), right, rcond=None)[0]
    return np.append(found, 1.0).reshape(3, 3)


def warp(
    array: np.ndarray, matrix: np.ndarray, size: tuple[int, int], interpolation: str, fill: Fill
) -> np.ndarray:
    """The image whose pixel (x, y) is the old one's at `matrix @ (x, y, 1)`; pixel centres."""
    if interpolation not in ("nearest", "bilinear"):
        raise InvalidArgument(
            f"interpolation must be 'nearest' or 'bilinear'. Received: {interpolation!r}"
        )
    height, width = size
    down, across = np.meshgrid(np.arange(height) + 0.5, np.arange(width) + 0.5, indexing="ij")
    old_x = matrix[0, 0] * across + matrix[0, 1] * down + matrix[0, 2]
    old_y = matrix[1, 0] * across + matrix[1, 1] * down + matrix[1, 2]
    if len(matrix) == 3:  # a perspective: nearer or farther
        depth = matrix[2, 0] * across + matrix[2, 1] * down + matrix[2, 2]
        old_x, old_y = old_x / depth, old_y / depth
    inside = (old_x >= 0) & (old_x < array.shape[1]) & (old_y >= 0) & (old_y < array.shape[0])
    if interpolation == "nearest":
        found = _pick(array, np.floor(old_y), np.floor(old_x))
    else:
        left, top = np.floor(old_x - 0.5), np.floor(old_y - 0.5)
        u, v = old_x - 0.5 - left, old_y - 0.5 - top
        if array.ndim == 3:
            u, v = u[..., None], v[..., None]
        found = (
            _pick(array, top, left) * ((1 - u) * (1 - v))
            + _pick(array, top, left + 1) * (u * (1 - v))
            + _pick(array, top + 1, left) * ((1 - u) * v)
            + _pick(array, top + 1, left + 1) * (u * v)
        )
    out = np.empty(found.shape, array.dtype)
    out[...] = np.asarray(fill, array.dtype)
    out[inside] = _like(found, array)[inside]
    return out


def _pick(array: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Pixels by position, the border's beyond it."""
    return array[
        np.clip(rows, 0, array.shape[0] - 1).astype(int),
        np.clip(cols, 0, array.shape[1] - 1).astype(int),
    ]
