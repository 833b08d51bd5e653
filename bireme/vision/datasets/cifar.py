"""CIFAR-10 and CIFAR-100 from their Python archives.

The archives hold pickles; they are read by an unpickler that admits byte arrays, numbers,
strings and plain containers and nothing that could run code.
"""

from __future__ import annotations

import pickle
import tarfile
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.io.dataset import Dataset
from bireme.vision.datasets.files import check_backend, check_mode, finished, need_file

_ALLOWED = {
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("_codecs", "encode"),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


class Cifar10(Dataset[tuple[Any, np.ndarray]]):
    """Colour images [32, 32, 3] and labels, from cifar-10-python.tar.gz.

    Images are Pillow's, or float32 arrays with `backend="cv2"`.
    """

    NAME = "Cifar10"
    PARTS = {"train": "data_batch", "test": "test_batch"}  # noqa: RUF012 (constant)
    LABELS = b"labels"

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
        images: list[np.ndarray] = []
        labels: list[int] = []
        try:
            with tarfile.open(self.data_file) as archive:
                for member in sorted(archive.getmembers(), key=lambda m: m.name):
                    if self.PARTS[self.mode] in member.name and member.isfile():
                        file = archive.extractfile(member)
                        if file is not None:
                            data, part = _batch(file, self.LABELS)
                            images.append(data)
                            labels += part
        except (tarfile.TarError, pickle.UnpicklingError, EOFError, KeyError, ValueError,
                AttributeError, TypeError, IndexError) as e:  # fmt: skip
            raise InvalidArgument(
                f"[{self.NAME}] {self.data_file!r} is damaged or not the Python version of the "
                f"dataset: {e}"
            ) from e
        if not images:
            raise InvalidArgument(
                f"[{self.NAME}] {self.data_file!r} holds no file named *{self.PARTS[self.mode]}*"
            )
        return np.concatenate(images), np.array(labels, "int64")

    def __getitem__(self, idx: int) -> tuple[Any, np.ndarray]:
        image = finished(self.images[idx], self.backend, self.transform)
        return image, np.array(self.labels[idx])

    def __len__(self) -> int:
        return len(self.labels)


class Cifar100(Cifar10):
    """The same images' larger sibling with 100 classes, from cifar-100-python.tar.gz."""

    NAME = "Cifar100"
    PARTS = {"train": "train", "test": "test"}  # noqa: RUF012 (constant)
    LABELS = b"fine_labels"


def _batch(file: IO[bytes], label_key: bytes) -> tuple[np.ndarray, list[int]]:
    content = _Unpickler(file, encoding="bytes").load()
    data, labels = np.asarray(content[b"data"], "uint8"), [int(n) for n in content[label_key]]
    if data.shape != (len(labels), 3072):
        raise ValueError(f"images of shape {data.shape} for {len(labels)} labels")
    return data, labels
