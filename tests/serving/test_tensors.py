"""Tensors from strangers: declared sizes, types and elements."""

from __future__ import annotations

import struct

import ml_dtypes
import numpy as np
import pytest

from bireme.serving import tensors
from bireme.serving.errors import BadRequest


@pytest.mark.parametrize("name", [n for n in tensors.DTYPES if n != "BYTES"])
def test_bytes_go_there_and_back(name: str) -> None:
    array = np.array([[0, 1, 2], [3, 4, 5]]).astype(tensors.DTYPES[name])
    found = tensors.from_bytes("x", name, [2, 3], tensors.to_bytes(array))
    assert found.dtype == array.dtype
    assert (found == array).all()
    assert tensors.datatype_of(array.dtype) == name


def test_strings_go_there_and_back() -> None:
    array = np.array([b"", b"ab", "ü".encode()], object)
    found = tensors.from_bytes("x", "BYTES", [3], tensors.to_bytes(array))
    assert found.tolist() == array.tolist()
    assert tensors.to_json("x", array) == ["", "ab", "ü"]


def test_a_huge_declared_shape_costs_nothing() -> None:
    for shape in ([1, 99999999999], [1 << 40, 1 << 40], [0, 1 << 61]):
        for data in (b"1234", b"12345678"):
            with pytest.raises(BadRequest, match="has"):
                tensors.from_bytes("x", "FP32", shape, data)
        with pytest.raises(BadRequest, match="elements"):
            tensors.from_json("x", "FP32", shape, [1.0])
    with pytest.raises(BadRequest, match="has"):
        tensors.from_bytes("x", "BYTES", [1 << 50], b"12345678")


@pytest.mark.parametrize(
    "shape", [None, 3, "33", [-1], [1.0], [True], [1 << 70], [[1]], [1] * 40, {"a": 1}]
)
def test_shapes_are_lists_of_sizes(shape: object) -> None:
    with pytest.raises(BadRequest, match="list of sizes"):
        tensors.from_bytes("x", "FP32", shape, b"1234")


@pytest.mark.parametrize(
    "data",
    [struct.pack("<I", 5) + b"abc", struct.pack("<I", 1) + b"abc", b"\xff\xff\xff\xff", b"ab"],
)
def test_strings_that_end_elsewhere(data: bytes) -> None:
    with pytest.raises(BadRequest):
        tensors.from_bytes("x", "BYTES", [1], data)


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("INT32", [1.5]), ("INT32", [True]), ("INT8", [128]), ("UINT8", [-1]), ("INT64", [1 << 64]),
        ("UINT64", [-1]), ("BOOL", [2]), ("BOOL", ["x"]), ("FP32", ["1"]), ("FP32", [None]),
        ("FP32", [True]), ("BYTES", [1]), ("FP32", [[1.0], [2.0, 3.0]]), ("FP32", [[1.0], 2.0]),
        ("FP16", [1.0]), ("BF16", [1.0]), ("FP128", [1.0]), (7, [1.0]), ("FP32", None),
        ("FP32", {"a": 1}),
    ],
)  # fmt: skip
def test_elements_that_would_be_changed_are_refused(datatype: object, data: object) -> None:
    with pytest.raises(BadRequest):
        tensors.from_json("x", datatype, [1], data)


def test_lists_may_be_flat_or_nested() -> None:
    flat = tensors.from_json("x", "INT64", [2, 2], [1, 2, 3, 1 << 62])
    nested = tensors.from_json("x", "INT64", [2, 2], [[1, 2], [3, 1 << 62]])
    assert (flat == nested).all()
    assert tensors.from_json("x", "UINT64", [1], [(1 << 64) - 1])[0] == (1 << 64) - 1
    assert tensors.from_json("x", "FP32", [0, 3], []).shape == (0, 3)


def test_deep_nesting_is_refused() -> None:
    data: list[object] = [1.0]
    for _ in range(500):
        data = [data]
    with pytest.raises(BadRequest, match="deeper"):
        tensors.from_json("x", "FP32", [1], data)


def test_json_says_what_it_cannot_hold() -> None:
    for array in (
        np.array([np.nan], np.float32),
        np.array([np.inf]),
        np.array([1], ml_dtypes.bfloat16),
        np.array([b"\xff"], object),
    ):
        with pytest.raises(BadRequest, match="binary_data"):
            tensors.to_json("y", array)
