"""Datasets of image files inside a tar archive: Flowers and VOC2012."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.core.dtype import get_default_dtype
from bireme.core.errors import FileFormatError
from bireme.io.dataset import Dataset
from bireme.io.foreign import reading
from bireme.io.tar_file import TarFile
from bireme.vision.datasets.files import check_backend, check_mode, need_file
from bireme.vision.datasets.matlab import read_matrices
from bireme.vision.image import read_image


class _Archive:
    """Members of a tar archive by name. A worker process opens its own."""

    def __init__(self, owner: str, path: str) -> None:
        self.owner, self.path = owner, path
        self._opened: tuple[int, TarFile] | None = None
        self._tar()

    def _tar(self) -> TarFile:
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), TarFile(self.path, self.owner)
        return self._opened[1]

    def read(self, name: str) -> bytes:
        return self._tar().read(name)

    def image(self, name: str) -> Any:
        return read_image(self.read(name), self.owner, f"{self.path}: {name}")

    def close(self) -> None:
        if self._opened is not None and self._opened[0] == os.getpid():
            self._opened[1].close()
        self._opened = None

    def __getstate__(self) -> dict[str, Any]:
        return {"owner": self.owner, "path": self.path, "_opened": None}

    def __del__(self) -> None:
        if getattr(self, "_opened", None) is not None:
            self.close()


class Flowers(Dataset[tuple[Any, np.ndarray]]):
    """102 kinds of flowers: (image, label [1], counted from 1).

    Takes 102flowers.tgz, imagelabels.mat and setid.mat. As in Paddle, 'train' is the larger part,
    which the data's authors call the test set, and 'test' the one they train with.
    """

    _SETS = {"train": "tstid", "test": "trnid", "valid": "valid"}  # noqa: RUF012 (constant)

    def __init__(
        self,
        data_file: str | None = None,
        label_file: str | None = None,
        setid_file: str | None = None,
        mode: str = "train",
        transform: Callable[[Any], Any] | None = None,
        download: bool = True,
        backend: str | None = None,
    ) -> None:
        self.mode = check_mode("Flowers", mode, ("train", "valid", "test"))
        self.backend = check_backend("Flowers", backend)
        self.transform = transform
        self.data_file = need_file("Flowers", "data_file", data_file)
        self.label_file = need_file("Flowers", "label_file", label_file)
        self.setid_file = need_file("Flowers", "setid_file", setid_file)
        self.labels = self._row(self.label_file, "labels")
        self.indexes = self._row(self.setid_file, self._SETS[self.mode])
        self._archive = _Archive("Flowers", self.data_file)

    @staticmethod
    def _row(path: str, name: str) -> np.ndarray:
        """The first row of a matrix of integers."""
        found = read_matrices(path, "Flowers").get(name)
        if found is None or not len(found) or found.dtype.kind not in "iuf":
            raise FileFormatError(
                f"[Flowers] {path!r} holds no matrix {name!r}; it is not the dataset's"
            )
        row = found[0]
        if not np.array_equal(row, row.astype("int64")):
            raise FileFormatError(f"[Flowers] {path!r}: {name!r} holds numbers that are not whole")
        return row

    def __getitem__(self, idx: int) -> tuple[Any, np.ndarray]:
        number = int(self.indexes[idx])
        if not 0 < number <= len(self.labels):
            raise FileFormatError(
                f"[Flowers] {self.setid_file!r} names image {number}, and {self.label_file!r} has "
                f"labels of {len(self.labels)}"
            )
        image = self._archive.image(f"jpg/image_{number:05}.jpg")
        if self.backend == "cv2":
            image = np.asarray(image)
        if self.transform is not None:
            image = self.transform(image)
        if self.backend == "cv2":
            image = image.astype(get_default_dtype())
        return image, np.array([self.labels[number - 1]], "int64")

    def __len__(self) -> int:
        return len(self.indexes)


class VOC2012(Dataset[tuple[Any, Any]]):
    """Photographs and masks of what is where in them, from VOCtrainval_11-May-2012.tar.

    As in Paddle, 'train' is the set trainval, 'valid' val and 'test' train.
    """

    _SETS = {"train": "trainval", "test": "train", "valid": "val"}  # noqa: RUF012 (constant)
    _ROOT = "VOCdevkit/VOC2012"

    def __init__(
        self,
        data_file: str | None = None,
        mode: str = "train",
        transform: Callable[[Any], Any] | None = None,
        download: bool = True,
        backend: str | None = None,
    ) -> None:
        self.mode = check_mode("VOC2012", mode, ("train", "valid", "test"))
        self.flag = self._SETS[self.mode]
        self.backend = check_backend("VOC2012", backend)
        self.transform = transform
        self.data_file = need_file("VOC2012", "data_file", data_file)
        self._archive = _Archive("VOC2012", self.data_file)
        listed = self._archive.read(f"{self._ROOT}/ImageSets/Segmentation/{self.flag}.txt")
        with reading("VOC2012", self.data_file):
            names = listed.decode().split()
        self.data = [f"{self._ROOT}/JPEGImages/{name}.jpg" for name in names]
        self.labels = [f"{self._ROOT}/SegmentationClass/{name}.png" for name in names]

    def __getitem__(self, idx: int) -> tuple[Any, Any]:
        image = self._archive.image(self.data[idx])
        label = self._archive.image(self.labels[idx])
        if self.backend == "cv2":
            image, label = np.asarray(image), np.asarray(label)
        if self.transform is not None:
            image = self.transform(image)
        if self.backend == "cv2":
            dtype = get_default_dtype()
            return image.astype(dtype), label.astype(dtype)
        return image, label

    def __len__(self) -> int:
        return len(self.data)
