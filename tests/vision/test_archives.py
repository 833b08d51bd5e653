"""Flowers and VOC2012 from small archives of the same layout, against Paddle."""

from __future__ import annotations

import io
import pickle
import tarfile

import numpy as np
import pytest

from bireme.core.errors import BiremeError
from bireme.vision import datasets

Image = pytest.importorskip("PIL.Image")
matlab = pytest.importorskip("scipy.io")


def add(archive, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def encoded(seed, form, shape):
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, shape).astype("uint8")
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


@pytest.fixture
def flowers(tmp_path):
    with tarfile.open(tmp_path / "102flowers.tgz", "w:gz") as archive:
        for i in range(1, 7):
            add(archive, f"jpg/image_{i:05}.jpg", encoded(i, "JPEG", (6, 5, 3)))
    matlab.savemat(tmp_path / "imagelabels.mat", {"labels": [[3, 1, 2, 2, 1, 3]]})
    sets = {"tstid": [[1, 4, 6]], "trnid": [[2, 3]], "valid": [[5]]}
    matlab.savemat(tmp_path / "setid.mat", sets)
    return [str(tmp_path / f) for f in ("102flowers.tgz", "imagelabels.mat", "setid.mat")]


@pytest.fixture
def voc(tmp_path):
    path = tmp_path / "voc.tar"
    root = "VOCdevkit/VOC2012"
    with tarfile.open(path, "w") as archive:
        for name, members in (("trainval", "a b c"), ("train", "a b"), ("val", "c")):
            listed = "\n".join(members.split()).encode() + b"\n"
            add(archive, f"{root}/ImageSets/Segmentation/{name}.txt", listed)
        for i, name in enumerate("abc"):
            add(archive, f"{root}/JPEGImages/{name}.jpg", encoded(i, "JPEG", (4, 7, 3)))
            add(archive, f"{root}/SegmentationClass/{name}.png", encoded(i, "PNG", (4, 7)))
    return str(path)


def same(ours, real):
    assert len(ours) == len(real)
    for i in range(len(real)):
        for a, b in zip(ours[i], real[i], strict=True):
            assert type(a) is type(b) or not isinstance(b, np.ndarray)
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
            if isinstance(b, np.ndarray):
                assert a.dtype == b.dtype


@pytest.mark.parametrize("backend", ["pil", "cv2"])
@pytest.mark.parametrize("mode", ["train", "valid", "test"])
@pytest.mark.filterwarnings("ignore")  # Paddle unpacks the archive beside itself
def test_they_are_paddles(paddle, flowers, voc, mode, backend):
    space = paddle.vision.datasets
    ours = datasets.Flowers(*flowers, mode=mode, backend=backend)
    same(ours, space.Flowers(*flowers, mode=mode, backend=backend))
    same(
        datasets.VOC2012(voc, mode=mode, backend=backend),
        space.VOC2012(voc, mode=mode, backend=backend),
    )


def test_workers_get_a_copy(flowers, voc):
    for dataset in (datasets.Flowers(*flowers), datasets.VOC2012(voc)):
        copy = pickle.loads(pickle.dumps(dataset))
        np.testing.assert_array_equal(np.asarray(copy[1][0]), np.asarray(dataset[1][0]))


def test_transforms_see_the_image(voc):
    dataset = datasets.VOC2012(voc, transform=lambda image: image.size)
    assert dataset[0][0] == (7, 4)


def test_bad_files(tmp_path, flowers, voc):
    with pytest.raises(BiremeError, match="does not download"):
        datasets.Flowers()
    with pytest.raises(BiremeError, match="does not download"):
        datasets.VOC2012()
    with pytest.raises(BiremeError, match="mode must be"):
        datasets.VOC2012(voc, mode="all")
    with pytest.raises(BiremeError, match="backend must be"):
        datasets.VOC2012(voc, backend="tensor")
    with pytest.raises(BiremeError, match="no file"):
        datasets.VOC2012(flowers[0])
    with pytest.raises(BiremeError, match="is not the dataset's"):
        datasets.Flowers(flowers[0], flowers[2], flowers[1])
    broken = tmp_path / "broken.tar"
    broken.write_bytes(b"nothing")
    with pytest.raises(BiremeError, match="no tar archive"):
        datasets.VOC2012(str(broken))
