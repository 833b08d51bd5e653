"""Reading image files, and which kind of object they become."""

from __future__ import annotations

import io
import os
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.core.tensor import constant
from bireme.io.foreign import read_whole, reading

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

    from bireme.core.tensor import Tensor

Picture: TypeAlias = "Tensor | np.ndarray | PilImage"
Like = TypeVar("Like", bound="Picture")  # a result of the kind that was given

BACKENDS = ("pil", "cv2", "tensor")
_chosen = "pil"
_PIXELS, _PIXELS_PER_BYTE = 1 << 24, 512  # what a file may unfold to


def pillow() -> ModuleType:
    """Pillow's Image module, or a clear error."""
    try:
        from PIL import Image  # pyright: ignore[reportMissingImports] (optional)
    except ImportError:
        raise InvalidArgument("images need Pillow: pip install pillow") from None
    return Image


def read_image(data: bytes, owner: str, name: str) -> PilImage:
    """The picture in a file's bytes, decoded: what is wrong with them is said here and not later,
    where nobody knows the file."""
    Image = pillow()
    with reading(owner, name), warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            image = Image.open(io.BytesIO(data))
            if image.width * image.height > _PIXELS + _PIXELS_PER_BYTE * len(data):
                raise ValueError(f"{image.width} x {image.height} pixels in {len(data)} bytes")
            image.load()
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as e:
            raise FileFormatError(f"[{owner}] {name!r}: {e}") from None
        return image


def choose_backend(owner: str, backend: str | None) -> str:
    """`backend`, or the one chosen for everybody where it is None."""
    if backend is None:
        return _chosen
    if backend not in BACKENDS:
        raise InvalidArgument(
            f"[{owner}] backend must be one of {', '.join(BACKENDS)}. Received: {backend!r}"
        )
    return backend


def set_image_backend(backend: str) -> None:
    """Choose what `image_load` gives: "pil" images, "cv2" arrays (BGR) or "tensor"s (RGB, CHW)."""
    global _chosen
    _chosen = choose_backend("set_image_backend", "" if backend is None else backend)


def get_image_backend() -> str:
    """The backend in force."""
    return _chosen


def image_load(path: str | os.PathLike[str], backend: str | None = None) -> Picture:
    """The image in a file, as the chosen backend has it.

    image = paddle.vision.image_load("photo.jpg", backend="cv2")  # uint8 [H, W, 3], BGR
    """
    backend = choose_backend("image_load", backend)
    image = read_image(read_whole(path, "image_load"), "image_load", os.fspath(path))
    if backend == "pil":
        return image
    pixels = np.asarray(image.convert("RGB"))
    if backend == "cv2":
        return np.ascontiguousarray(pixels[:, :, ::-1])
    return constant(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
