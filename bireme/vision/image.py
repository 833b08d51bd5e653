"""Reading image files, and which kind of object they become."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.core.tensor import constant

BACKENDS = ("pil", "cv2", "tensor")
_chosen = "pil"


def pillow() -> Any:
    """Pillow's Image module, or a clear error."""
    try:
        from PIL import Image  # pyright: ignore[reportMissingImports] (optional)
    except ImportError:
        raise InvalidArgument("images need Pillow: pip install pillow") from None
    return Image


def choose_backend(owner: str, backend: Any) -> str:
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


def image_load(path: str | os.PathLike[str], backend: str | None = None) -> Any:
    """The image in a file, as the chosen backend has it.

    image = paddle.vision.image_load("photo.jpg", backend="cv2")  # uint8 [H, W, 3], BGR
    """
    backend = choose_backend("image_load", backend)
    image = pillow().open(path)
    if backend == "pil":
        return image
    with image:
        pixels = np.asarray(image.convert("RGB"))
    if backend == "cv2":
        return np.ascontiguousarray(pixels[:, :, ::-1])
    return constant(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
