"""Datasets of files in folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.io.dataset import Dataset
from bireme.io.foreign import read_npy, read_whole, reading
from bireme.vision.image import Picture, get_image_backend, read_image

IMAGE_EXTENSIONS = (
    ".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".npy",
)  # fmt: skip


def load_image(path: str) -> Picture:
    """An image file in RGB: Pillow's image, or an array [height, width, 3] where
    `set_image_backend("cv2")` was chosen. Files of type .npy are arrays as they are."""
    if path.lower().endswith(".npy"):
        return read_npy(path, "load_image")
    with reading("load_image", path):
        made = read_image(read_whole(path, "load_image"), "load_image", path).convert("RGB")
    return np.asarray(made) if get_image_backend() == "cv2" else made


class DatasetFolder(Dataset[tuple[Any, int]]):
    """One subfolder per class: `root/cat/1.png` is a sample of class 'cat'.

    Classes are numbered in the order of their names.
    """

    def __init__(
        self,
        root: str,
        loader: Callable[[str], Any] | None = None,
        extensions: Sequence[str] | None = None,
        transform: Callable[[Any], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
    ):
        self.root = root
        self.loader = loader or load_image
        self.transform = transform
        wanted = _filter("DatasetFolder", extensions, is_valid_file)
        self.classes = sorted(e.name for e in _scan("DatasetFolder", root) if e.is_dir())
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self.samples = [
            (path, number)
            for name, number in self.class_to_idx.items()
            for path in _files(os.path.join(root, name), wanted)
        ]
        self.targets = [number for _, number in self.samples]
        if not self.samples:
            raise InvalidArgument(f"[DatasetFolder] no matching file in the subfolders of {root!r}")

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, target = self.samples[index]
        sample = self.loader(path)
        return (sample if self.transform is None else self.transform(sample)), target

    def __len__(self) -> int:
        return len(self.samples)


class ImageFolder(Dataset[list[Any]]):
    """Every image below a folder, without labels."""

    def __init__(
        self,
        root: str,
        loader: Callable[[str], Any] | None = None,
        extensions: Sequence[str] | None = None,
        transform: Callable[[Any], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
    ):
        self.root = root
        self.loader = loader or load_image
        self.transform = transform
        _scan("ImageFolder", root)
        self.samples = _files(root, _filter("ImageFolder", extensions, is_valid_file))
        if not self.samples:
            raise InvalidArgument(f"[ImageFolder] no matching file below {root!r}")

    def __getitem__(self, index: int) -> list[Any]:
        sample = self.loader(self.samples[index])
        return [sample if self.transform is None else self.transform(sample)]

    def __len__(self) -> int:
        return len(self.samples)


def _filter(
    owner: str, extensions: Sequence[str] | None, is_valid: Callable[[str], bool] | None
) -> Callable[[str], bool]:
    if extensions is not None and is_valid is not None:
        raise InvalidArgument(f"[{owner}] give extensions or is_valid_file, not both")
    endings = tuple(e.lower() for e in extensions or IMAGE_EXTENSIONS)
    return is_valid or (lambda path: path.lower().endswith(endings))


def _scan(owner: str, root: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(root) as entries:
            return list(entries)
    except OSError:
        raise InvalidArgument(f"[{owner}] there is no folder {root!r}") from None


def _files(folder: str, wanted: Callable[[str], bool]) -> list[str]:
    found = []
    seen: set[tuple[int, int]] = set()
    for where, folders, names in os.walk(folder, followlinks=True):
        status = os.stat(where)
        if (status.st_dev, status.st_ino) in seen:  # a link that leads back
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders.sort()
        found.append((where, sorted(names)))
    found = [os.path.join(where, n) for where, names in sorted(found) for n in names]
    return [path for path in found if wanted(path)]
