"""Datasets from files made here, compared with Paddle's readers; damaged files too."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import tarfile

import numpy as np
import pytest

from bireme import vision
from bireme.core.errors import BiremeError
from bireme.io import DataLoader
from bireme.vision.datasets import (
    MNIST,
    Cifar10,
    Cifar100,
    DatasetFolder,
    FashionMNIST,
    ImageFolder,
)
from bireme.vision.transforms import ToTensor

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (200, 28, 28)).astype("uint8")
LABELS = (np.arange(200) % 10).astype("uint8")


@pytest.fixture
def idx_files(tmp_path):
    images, labels = tmp_path / "images.gz", tmp_path / "labels.gz"
    images.write_bytes(gzip.compress(struct.pack(">4I", 2051, *IMAGES.shape) + IMAGES.tobytes()))
    labels.write_bytes(gzip.compress(struct.pack(">2I", 2049, len(LABELS)) + LABELS.tobytes()))
    return str(images), str(labels)


@pytest.fixture
def cifar_files(tmp_path):
    def write(name, parts):
        path = tmp_path / name
        with tarfile.open(path, "w:gz") as archive:
            for part, content in parts.items():
                data = pickle.dumps(content, 2)
                info = tarfile.TarInfo(f"folder/{part}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return str(path)

    return write


def open_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def cifar_part(n, key=b"labels"):
    data = RNG.integers(0, 256, (n, 3072)).astype("uint8")
    return {b"data": data, key: list(range(n)), b"batch_label": b"text"}


def _same_image(ours, real):
    assert type(ours) is type(real)
    assert getattr(ours, "mode", None) == getattr(real, "mode", None)
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(real), strict=True)


@pytest.mark.parametrize("backend", ["cv2", "pil"])
def test_mnist_is_paddles(paddle, idx_files, backend):
    real = paddle.vision.datasets.MNIST(*idx_files, mode="train", backend=backend)
    ours = MNIST(*idx_files, mode="train", backend=backend)
    assert len(ours) == len(real) == 200
    for i in (0, 7, 199):
        (image, label), (expected, expected_label) = ours[i], real[i]
        _same_image(image, expected)
        np.testing.assert_array_equal(label, expected_label)
        assert label.dtype == expected_label.dtype


def test_mnist_through_a_loader(idx_files):
    data = FashionMNIST(*idx_files, mode="test", transform=ToTensor())
    images, labels = next(iter(DataLoader(data, batch_size=4, num_workers=1)))
    assert images.shape == [4, 1, 28, 28]
    assert labels.shape == [4, 1]
    assert images.numpy().max() <= 1


@pytest.mark.parametrize("backend", ["cv2", "pil"])
def test_what_transforms_are_given(paddle, idx_files, cifar_files, backend):
    """ToTensor divides bytes by 255 and leaves floats alone."""
    cifar = cifar_files("c10.tar.gz", {"data_batch_1": cifar_part(4)})
    for name, files in (("MNIST", idx_files), ("Cifar10", (cifar,))):
        real, ours = (
            getattr(module.datasets, name)(
                *files, transform=module.transforms.ToTensor(), backend=backend
            )[3][0]
            for module in (paddle.vision, vision)
        )
        np.testing.assert_allclose(ours.numpy(), real.numpy(), rtol=1e-6)


@pytest.mark.parametrize("backend", ["cv2", "pil"])
def test_cifar_is_paddles(paddle, cifar_files, backend):
    parts = {"data_batch_1": cifar_part(3), "data_batch_2": cifar_part(2)}
    path = cifar_files("c10.tar.gz", {**parts, "test_batch": cifar_part(1)})
    for mode, n in (("train", 5), ("test", 1)):
        real = paddle.vision.datasets.Cifar10(path, mode=mode, backend=backend)
        ours = Cifar10(path, mode=mode, backend=backend)
        assert len(ours) == len(real) == n
        for i in range(n):
            _same_image(ours[i][0], real[i][0])
            assert (ours[i][1], ours[i][1].dtype) == (real[i][1], real[i][1].dtype)


def test_cifar_100(cifar_files):
    parts = {"train": cifar_part(3, b"fine_labels"), "test": cifar_part(2, b"fine_labels")}
    path = cifar_files("c100.tar.gz", parts)
    assert len(Cifar100(path)) == 3
    image, label = Cifar100(path, mode="test")[1]
    assert (image.size, image.mode, label) == ((32, 32), "RGB", 1)


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/bireme-should-not-exist",)


def test_a_pickle_that_would_run_code_is_refused(cifar_files):
    path = cifar_files("evil.tar.gz", {"data_batch_1": Evil()})
    with pytest.raises(BiremeError, match=r"asks for .*system"):
        Cifar10(path)
    assert not os.path.exists("/tmp/bireme-should-not-exist")


def test_folders(tmp_path):
    for name in ("cat/1.npy", "cat/2.npy", "dog/deep/3.npy"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.full((2, 2), int(path.stem)))
    (tmp_path / "dog" / "notes.txt").write_text("no image")
    data = DatasetFolder(str(tmp_path))
    assert data.classes == ["cat", "dog"]
    assert [(int(x[0, 0]), y) for x, y in data] == [(1, 0), (2, 0), (3, 1)]
    images = ImageFolder(str(tmp_path), transform=lambda x: x + 1)
    assert [int(images[i][0][0, 0]) for i in range(len(images))] == [2, 3, 4]
    only = ImageFolder(str(tmp_path), is_valid_file=lambda p: p.endswith("3.npy"))
    assert len(only) == 1


def test_image_files_are_read_with_pillow(tmp_path):
    image = pytest.importorskip("PIL.Image")
    array = RNG.integers(0, 256, (4, 5, 3)).astype("uint8")
    image.fromarray(array).save(tmp_path / "x.png")
    _same_image(ImageFolder(str(tmp_path))[0][0], image.fromarray(array))
    vision.set_image_backend("cv2")
    try:
        _same_image(ImageFolder(str(tmp_path))[0][0], array)
    finally:
        vision.set_image_backend("pil")


def test_bad_files_and_arguments(tmp_path, idx_files, cifar_files):
    images, labels = idx_files
    with pytest.raises(BiremeError, match="does not download"):
        MNIST()
    with pytest.raises(BiremeError, match="does not download"):
        Cifar10(download=True)
    with pytest.raises(BiremeError, match="there is no file"):
        MNIST(images, str(tmp_path / "none"))
    with pytest.raises(BiremeError, match="no idx file of bytes with 3"):
        MNIST(labels, labels)
    with pytest.raises(BiremeError, match="mode must be"):
        MNIST(images, labels, mode="valid")
    with pytest.raises(BiremeError, match="backend must be"):
        MNIST(images, labels, backend="opencv")
    cut = tmp_path / "cut"
    cut.write_bytes(gzip.decompress(open_bytes(images))[:-1])
    with pytest.raises(BiremeError, match="truncated"):
        MNIST(str(cut), labels)
    packed = tmp_path / "cut.gz"
    packed.write_bytes(open_bytes(images)[:-100])
    with pytest.raises(BiremeError, match="truncated"):
        MNIST(str(packed), labels)
    with pytest.raises(BiremeError, match="no tar archive"):
        Cifar10(images)
    with pytest.raises(BiremeError, match=r"no file named \*test_batch\*"):
        Cifar10(cifar_files("x.tar.gz", {"data_batch_1": cifar_part(1)}), mode="test")
    with pytest.raises(BiremeError, match="damaged"):
        Cifar10(cifar_files("y.tar.gz", {"data_batch_1": {b"data": 3, b"labels": [1]}}))
    with pytest.raises(BiremeError, match="there is no folder"):
        DatasetFolder(str(tmp_path / "nothing"))
    with pytest.raises(BiremeError, match="not both"):
        ImageFolder(str(tmp_path), extensions=[".x"], is_valid_file=bool)
