"""Checkpoints of torch.save, read by paddle.load."""

from __future__ import annotations

import pathlib
import zipfile

import numpy as np
import pytest

import bireme as paddle
from bireme.core.errors import BiremeError, FileFormatError


def pickled(*tensors: tuple[str, str, str, int, list[int], list[int]]) -> bytes:
    """The pickle of {name: tensor}, as PyTorch writes it: (name, storage, key, offset, sizes,
    strides)."""
    made = b"\x80\x02}("
    for name, kind, key, offset, sizes, strides in tensors:
        made += b"X" + len(name).to_bytes(4, "little") + name.encode()
        made += b"ctorch._utils\n_rebuild_tensor_v2\n(("
        made += b"X\x07\0\0\0storage" + f"ctorch\n{kind}\n".encode()
        made += b"X\x01\0\0\0" + key.encode() + b"X\x03\0\0\0cpuK\x06tQ"
        made += b"K" + bytes([offset])
        for numbers in (sizes, strides):
            made += b"(" + b"".join([b"K" + bytes([n]) for n in numbers]) + b"t"
        made += b"\x89ccollections\nOrderedDict\n)RtR"
    return made + b"u."


def write(path: pathlib.Path, pickle: bytes, storages: dict[str, bytes]) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", pickle)
        for key, data in storages.items():
            archive.writestr(f"model/data/{key}", data)
    return str(path)


def test_tensors_share_storages_and_have_strides(tmp_path: pathlib.Path) -> None:
    numbers = np.arange(6, dtype="float32")
    whole = ("a", "FloatStorage", "0", 0, [2, 3], [3, 1])
    turned = ("b", "FloatStorage", "0", 1, [2, 2], [1, 2])
    path = write(tmp_path / "a.pt", pickled(whole, turned), {"0": numbers.tobytes()})
    found = paddle.load(path)
    np.testing.assert_array_equal(found["a"].numpy(), numbers.reshape(2, 3))
    np.testing.assert_array_equal(found["b"].numpy(), [[1, 3], [2, 4]])
    arrays = paddle.load(path, return_numpy=True)
    assert isinstance(arrays["a"], np.ndarray)


def test_bfloat16(tmp_path: pathlib.Path) -> None:
    half = ("h", "BFloat16Storage", "0", 0, [2], [1])
    path = write(tmp_path / "a.pt", pickled(half), {"0": b"\x80\x3f\x00\x40"})
    found = paddle.load(path)["h"]
    assert found.dtype == paddle.bfloat16
    assert found.astype("float32").tolist() == [1.0, 2.0]


@pytest.mark.parametrize("data", [b"cos\nsystem\n(X\x02\0\0\0lstR.", b"\x80\x02ctorch\nload\n."])
def test_nothing_is_called(tmp_path: pathlib.Path, data: bytes) -> None:
    path = write(tmp_path / "a.pt", data, {})
    with pytest.raises(FileFormatError, match=r"os\.system|torch\.load"):
        paddle.load(path)


def test_a_tensor_beyond_its_storage(tmp_path: pathlib.Path) -> None:
    wrong = ("a", "FloatStorage", "0", 0, [9], [1])
    path = write(tmp_path / "a.pt", pickled(wrong), {"0": bytes(8)})
    with pytest.raises(FileFormatError, match="end of its storage"):
        paddle.load(path)


def test_other_archives(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, a=np.zeros(3))
    with pytest.raises(BiremeError, match="no checkpoint of PyTorch"):
        paddle.load(str(path))
