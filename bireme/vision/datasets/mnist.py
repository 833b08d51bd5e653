"""MNIST and Fashion-MNIST from their idx files."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.io.dataset import Dataset
from bireme.vision.datasets.files import (
    check_backend,
    check_mode,
    finished,
    need_file,
    open_maybe_gzip,
)

_IDX_UINT8 = 0x08


class MNIST(Dataset[tuple[Any, np.ndarray]]):
    """Digits [28, 28] and labels [1], from idx files (gzip-compressed or not).

    Images are Pillow's, or float32 arrays with `backend="cv2"`.
    """

    NAME = "MNIST"

    def __init__(
        self,
        image_path: str | None = None,
        label_path: str | None = None,
        mode: str = "train",
        transform: Callable[[Any], Any] | None = None,
        download: bool = False,
        backend: str | None = None,
    ):
        if download and (image_path is None or label_path is None):
            raise InvalidArgument(
                f"[{self.NAME}] Bireme does not download datasets; give image_path and label_path"
            )
        self.mode = check_mode(self.NAME, mode, ("train", "test"))
        self.backend = check_backend(self.NAME, backend)
        self.transform = transform
        self.image_path = need_file(self.NAME, "image_path", image_path)
        self.label_path = need_file(self.NAME, "label_path", label_path)
        self.images = read_idx(self.image_path, dimensions=3)
        self.labels = read_idx(self.label_path, dimensions=1).astype("int64")
        if len(self.images) != len(self.labels):
            raise InvalidArgument(
                f"[{self.NAME}] {len(self.images)} images but {len(self.labels)} labels; the "
                "files do not belong together"
            )

    def __getitem__(self, idx: int) -> tuple[Any, np.ndarray]:
        pixels = self.images[idx]
        if self.backend == "cv2":  # as in Paddle, already before the transform
            pixels = pixels.astype("float32")
        image = finished(pixels, self.backend, self.transform)
        return image, self.labels[idx : idx + 1] if idx >= 0 else self.labels[[idx]]

    def __len__(self) -> int:
        return len(self.labels)


class FashionMNIST(MNIST):
    """Pieces of clothing in MNIST's format."""

    NAME = "FashionMNIST"


def read_idx(path: str, dimensions: int) -> np.ndarray:
    """The array of an idx file of bytes."""
    with open_maybe_gzip(path) as file:
        try:
            data = file.read()
        except (OSError, EOFError) as e:
            raise InvalidArgument(f"{path!r} is truncated or damaged: {e}") from e
    if len(data) < 4 + 4 * dimensions or data[:4] != bytes([0, 0, _IDX_UINT8, dimensions]):
        raise InvalidArgument(
            f"{path!r} is no idx file of bytes with {dimensions} dimension(s). Received: a file "
            f"that starts with {data[:4]!r}"
        )
    shape = tuple(int(n) for n in np.frombuffer(data, ">u4", dimensions, offset=4))
    start = 4 + 4 * dimensions
    if len(data) != start + math.prod(shape):
        raise InvalidArgument(
            f"{path!r} is truncated or damaged: {math.prod(shape)} bytes of data announced, "
            f"{len(data) - start} found"
        )
    return np.frombuffer(data, "uint8", offset=start).reshape(shape)
