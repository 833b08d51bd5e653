"""CIFAR-10 and CIFAR-100 from their Python archives.

The archives hold pickles; they are read by the guarded reader, which makes arrays and plain
containers of what it finds and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.io.dataset import Dataset
from bireme.io.foreign import reading
from bireme.io.tar_file import TarFile
from bireme.io.unpickle import loads
from bireme.vision.datasets.files import check_backend, check_mode, finished, need_file


class Cifar10(Dataset[tuple[Any, np.ndarray]]):
    """Colour images [32, 32, 3] and labels, from cifar-10-python.tar.gz.

    Images are Pillow's, or float32 arrays with `backend="cv2"`.
    """

    NAME = "Cifar10"
    PARTS = {"train": "data_batch", "test": "test_batch"}  # noqa: RUF012 (constant)
    LABELS = "labels"

    def __init__(
        self,
        data_file: str | None = None,
        mode: str = "train",
        transform: Callable[[Any], Any] | None = None,
        download: bool = False,
        backend: str | None = None,
    ):
        if download and data_file is None:
            raise InvalidArgument(f"[{self.NAME}] Bireme does not download; give data_file")
        self.mode = check_mode(self.NAME, mode, ("train", "test"))
        self.backend = check_backend(self.NAME, backend)
        self.transform = transform
        self.data_file = need_file(self.NAME, "data_file", data_file)
        images, labels = self._read()
        self.images = images.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        self.labels = labels

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        with TarFile(self.data_file, self.NAME) as archive:
            parts = {
                m.name: self._batch(archive.read(m), m.name)
                for m in archive.members
                if self.PARTS[self.mode] in m.name
            }
        if not parts:
            raise FileFormatError(
                f"[{self.NAME}] {self.data_file!r} holds no file named *{self.PARTS[self.mode]}*"
            )
        images, labels = zip(*[parts[name] for name in sorted(parts)], strict=True)
        return np.concatenate(images), np.concatenate(labels)

    def _batch(self, pickled: bytes, member: str) -> tuple[np.ndarray, np.ndarray]:
        """(images, labels) of one file of the archive."""
        name = f"{self.data_file}: {member}"
        content = loads(pickled, repr(name))
        with reading(self.NAME, name):
            # Python 2 wrote the keys as text of one byte each, Python 3 writes them as bytes.
            content = {k.decode() if isinstance(k, bytes) else k: v for k, v in content.items()}
            data, labels = content["data"], np.asarray(content[self.LABELS])
            if not isinstance(data, np.ndarray) or data.dtype != np.uint8:
                raise ValueError("its images are no array of bytes")
            if labels.ndim != 1 or (labels.size and labels.dtype.kind not in "iu"):
                raise ValueError("its labels are no list of integers")
            if data.shape != (len(labels), 3072):
                raise ValueError(f"images of shape {data.shape} for {len(labels)} labels")
        return data, labels.astype("int64")

    def __getitem__(self, idx: int) -> tuple[Any, np.ndarray]:
        image = finished(self.images[idx], self.backend, self.transform)
        return image, np.array(self.labels[idx])

    def __len__(self) -> int:
        return len(self.labels)


class Cifar100(Cifar10):
    """The same images' larger sibling with 100 classes, from cifar-100-python.tar.gz."""

    NAME = "Cifar100"
    PARTS = {"train": "train", "test": "test"}  # noqa: RUF012 (constant)
    LABELS = "fine_labels"
