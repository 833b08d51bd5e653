"""Anything that shows a page as an RGB array of bytes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bireme.ocr.errors import OcrError

if TYPE_CHECKING:
    from PIL.Image import Image

# What can be read: a path, a file's contents, an image of Pillow's, an array.
Source: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | Image | np.ndarray"

MAX_PIXELS = 80_000_000  # A3 at 600 dpi has 70 million; below Pillow's own warning
MAX_SIDE = 65_500
MAX_BYTES = 1 << 30  # of a file
MAX_FRAMES = 2_000  # of a file with several images
# Formats that hold pixels and nothing that is run. Some of Pillow's others start programs.
FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP", "PPM", "JPEG2000", "TGA", "ICO")
EXTENSIONS = frozenset({
    ".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".tif", ".tiff", ".bmp", ".dib", ".gif", ".webp",
    ".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".tga", ".ico", ".pdf",
})  # fmt: skip
_LIGHT = 160  # text on a transparent ground with letters lighter than this is shown on black


def package(name: str) -> Any:
    """A module of the extra `ocr`, or an error that says how to get it."""
    try:
        return import_module(name)
    except ImportError:
        raise OcrError("bireme.ocr", f"needs {name}: pip install 'bireme[ocr]'") from None


def name_of(source: Any) -> str:
    """How messages and results name a source."""
    if isinstance(source, str | os.PathLike):
        return os.fsdecode(os.fspath(source))
    if isinstance(source, np.ndarray):
        return f"array {list(source.shape)} of {source.dtype}"
    if isinstance(source, bytes | bytearray | memoryview):
        return f"{len(source)} bytes"
    return getattr(source, "filename", "") or f"{type(source).__name__}"


def contents(source: Source) -> bytes | None:
    """The bytes of a file or of a bytes-like object; None for what is no file."""
    name = name_of(source)
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if not isinstance(source, str | os.PathLike):
        return None
    path = Path(os.fsdecode(os.fspath(source)))
    try:
        if path.is_dir():
            raise OcrError(name, "is a folder; give its files, or bireme.ocr.files(folder)")
        if path.exists() and not path.is_file():
            raise OcrError(name, "is not a regular file")
        if path.stat().st_size > MAX_BYTES:
            raise OcrError(name, f"has more than {MAX_BYTES} bytes")
        return path.read_bytes()
    except (OSError, ValueError) as e:
        if isinstance(e, OcrError):
            raise
        raise OcrError(name, getattr(e, "strerror", None) or str(e)) from None


def frames(source: Source, name: str = "") -> Iterator[np.ndarray]:
    """The images in a source, one after the other, as height x width x RGB bytes."""
    name = name or name_of(source)
    if isinstance(source, np.ndarray):
        yield from_array(source, name)
        return
    pillow = package("PIL.Image")
    data = contents(source)
    if data is None:
        shown: Any = source
        if not isinstance(shown, pillow.Image):
            raise OcrError(
                name, "is not a path, bytes, a Pillow image or an array. Give one of these"
            )
        with _decoding(name):
            _check_size(shown.size, name)
            image = from_pillow(shown)
        yield image
        return
    if not data:
        raise OcrError(name, "is empty")
    with _decoding(name):
        file = pillow.open(io.BytesIO(data), formats=FORMATS)
        count = getattr(file, "n_frames", 1) if file.format in ("TIFF", "GIF", "WEBP") else 1
    if count > MAX_FRAMES:
        raise OcrError(name, f"holds {count} images; at most {MAX_FRAMES} are read")
    if file.format in ("GIF", "WEBP"):
        count = 1  # an animation; its first picture is the one that is shown
    for i in range(count):
        with _decoding(name):
            if i:
                file.seek(i)
            _check_size(file.size, name)
            image = from_pillow(file)
        yield image


def _check_size(size: tuple[int, int], name: str) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise OcrError(name, f"has no pixels ({width} x {height})")
    if width * height > MAX_PIXELS or max(size) > MAX_SIDE:
        raise OcrError(
            name,
            f"is {width} x {height} pixels; at most {MAX_PIXELS:,} in all and {MAX_SIDE:,} a side "
            "are read. Scale it down",
        )


@contextmanager
def _decoding(name: str) -> Iterator[None]:
    """Turns whatever a decoder raises into the one error."""
    try:
        yield
    except OcrError:
        raise
    except MemoryError:
        raise OcrError(name, "needs more memory than there is") from None
    except Exception as e:  # decoders of damaged files raise nearly anything
        kind = type(e).__name__
        reason = "is not an image that can be read" if kind == "UnidentifiedImageError" else str(e)
        raise OcrError(name, reason or kind) from None


def from_pillow(image: Image) -> np.ndarray:
    """A Pillow image as RGB bytes: turned as EXIF says, shown on a ground if transparent."""
    image.load()
    image = _upright(image)
    mode = image.mode
    if mode in ("I", "F") or mode.startswith("I;"):
        return from_array(np.asarray(image), "the image")
    if mode in ("LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
    if image.mode == "RGBA":
        return _on_ground(np.asarray(image))
    return np.ascontiguousarray(np.asarray(image.convert("RGB")))


def _upright(image: Image) -> Image:
    """Turned as its camera says. A damaged note about that counts as none."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:
        return image


def from_array(array: np.ndarray, name: str) -> np.ndarray:
    """An array of any number type: grey, with alpha, RGB, RGBA; channels last or first.

    Floats from 0 to 1, and booleans, are taken as that share of white; 16-bit numbers are scaled;
    other numbers outside 0 to 255 are stretched from the darkest to the lightest.
    """
    if array.dtype.kind not in "biuf":
        raise OcrError(name, "is no array of numbers")
    while array.ndim > 3 and array.shape[0] == 1:
        array = array[0]
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim == 3 and array.shape[2] not in (1, 2, 3, 4) and array.shape[0] in (1, 3, 4):
        array = array.transpose(1, 2, 0)
    if array.ndim != 3 or array.shape[2] not in (1, 2, 3, 4):
        raise OcrError(
            name, "an image has the shape [height, width] or [height, width, 1 to 4 channels]"
        )
    _check_size((array.shape[1], array.shape[0]), name)
    pixels = _as_bytes(array)
    channels = pixels.shape[2]
    if channels in (2, 4):
        colours = pixels[:, :, :-1]
        if channels == 2:
            colours = np.repeat(colours, 3, axis=2)
        return _on_ground(np.concatenate([colours, pixels[:, :, -1:]], axis=2))
    return np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))


def _as_bytes(array: np.ndarray) -> np.ndarray:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * 255
    values = array.astype(np.float32)
    if array.dtype.kind == "f":
        values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    low, high = float(values.min()), float(values.max())
    if array.dtype.kind == "f" and low >= 0 and high <= 1:
        values = values * 255
    elif low < 0 or high > 255:
        if array.dtype.kind != "f" and low >= 0 and 4095 < high <= 65535:
            values = values / 257
        else:  # 10 and 12 bits in 16 among them
            values = (values - low) * (255 / (high - low))
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _on_ground(pixels: np.ndarray) -> np.ndarray:
    """RGBA over white, or over black where what is visible is light."""
    colours, alpha = pixels[:, :, :3].astype(np.float32), pixels[:, :, 3:].astype(np.float32) / 255
    seen = float(alpha.sum())
    ground = 255.0
    if (
        seen
        and seen < 0.999 * alpha.size
        and float((colours.mean(2) * alpha[..., 0]).sum()) > (_LIGHT * seen)
    ):
        ground = 0.0
    return np.rint(colours * alpha + ground * (1 - alpha)).astype(np.uint8)
