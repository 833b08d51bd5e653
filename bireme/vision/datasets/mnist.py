"""MNIST and Fashion-MNIST from their idx files."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.io.dataset import Dataset
from bireme.io.foreign import open_unpacked, reading, unfolded_limit
from bireme.vision.datasets.files import check_backend, check_mode, finished, need_file

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
            raise FileFormatError(
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
    with open_unpacked(path, "read_idx") as file, reading("read_idx", path):
        limit = unfolded_limit(os.path.getsize(path))
        header = file.read(4 + 4 * dimensions)
        if len(header) < 4 + 4 * dimensions or header[:4] != bytes([0, 0, _IDX_UINT8, dimensions]):
            raise FileFormatError(
                f"{path!r} is no idx file of bytes with {dimensions} dimension(s). Received: a "
                f"file that starts with {header[:4]!r}"
            )
        shape = struct.unpack(f">{dimensions}I", header[4:])
        count = math.prod(shape)
        data = file.read(count) if count <= limit else b""
        # The end is read too: it tells whether a compressed file is whole.
        if len(data) != count or file.read(1):
            raise FileFormatError(
                f"{path!r} is truncated or damaged: {count} bytes of data announced, and it has "
                f"{'more' if len(data) == count else 'fewer'}"
            )
    return np.frombuffer(data, "uint8").reshape(shape)
