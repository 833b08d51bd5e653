"""Opening dataset files with errors that help."""

from __future__ import annotations

import os
from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np

from bireme.core.dtype import get_default_dtype
from bireme.core.errors import InvalidArgument
from bireme.vision.image import get_image_backend, pillow


def check_mode(owner: str, mode: str, allowed: tuple[str, ...]) -> str:
    if not isinstance(mode, str) or mode.lower() not in allowed:
        raise InvalidArgument(f"[{owner}] mode must be one of {allowed}. Received: {mode!r}")
    return mode.lower()


def check_backend(owner: str, backend: str | None) -> str:
    """'pil' gives Pillow's images, 'cv2' float arrays; None is `set_image_backend`'s choice."""
    chosen = get_image_backend() if backend is None else backend
    if chosen not in ("pil", "cv2"):
        raise InvalidArgument(f"[{owner}] backend must be 'pil' or 'cv2'. Received: {chosen!r}")
    return chosen


def finished(pixels: np.ndarray, backend: str, transform: Callable[[Any], Any] | None) -> Any:
    """Bytes of an image as the backend has them, transformed."""
    image: Any = pillow().fromarray(pixels) if backend == "pil" else pixels
    if transform is not None:
        image = transform(image)
    return image if backend == "pil" else image.astype(get_default_dtype())


def need_file(owner: str, argument: str, path: str | PathLike[str] | None) -> str:
    """The path of an existing file."""
    if path is None:
        raise InvalidArgument(
            f"[{owner}] Bireme does not download datasets; give {argument}=, the path of a local "
            "file. Received: None"
        )
    if not os.path.isfile(path):
        raise InvalidArgument(f"[{owner}] there is no file {os.fspath(path)!r} ({argument})")
    return os.fspath(path)
