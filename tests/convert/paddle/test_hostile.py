"""Damaged, foreign and hostile files: a clear error, little memory, nothing executed."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bireme
from bireme.convert.paddle import ModelFileError, UnsupportedModel, load_model
from bireme.convert.paddle.params import read_combined, read_tensor
from bireme.convert.paddle.pir import read_pir
from bireme.convert.paddle.program import Var
from bireme.convert.paddle.program_desc import read_program_desc
from tests.convert.paddle.mutants import mutants, sources, survives


@pytest.fixture(scope="module")
def files(paddle: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[bytes, Any]]:
    return sources(tmp_path_factory.mktemp("nets"))


@pytest.mark.parametrize("kind", ["ProgramDesc", "PIR", "weights"])
def test_mutants(files: dict[str, tuple[bytes, Any]], kind: str) -> None:
    data, read = files[kind]
    assert survives(read, data)
    taken = sum(survives(read, m) for m in mutants(data, 150, seed=7, document=kind == "PIR"))
    assert taken < 150


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ProgramDesc", "PIR", "weights"])
def test_ten_thousand_mutants(files: dict[str, tuple[bytes, Any]], kind: str) -> None:
    data, read = files[kind]
    tracemalloc.start()
    try:
        for m in mutants(data, 10_000, seed=11, document=kind == "PIR"):
            survives(read, m)
        assert tracemalloc.get_traced_memory()[1] < 1 << 28
    finally:
        tracemalloc.stop()


def tensor_bytes(shape: list[int], kind: int, content: bytes, **changes: int) -> bytes:
    dims = b"".join(b"\x10" + _varint(d) for d in shape)
    desc = b"\x08" + _varint(kind) + dims
    head = struct.pack("<IQI", changes.get("version", 0), 0, changes.get("inner", 0))
    return head + struct.pack("<i", changes.get("size", len(desc))) + desc + content


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def test_a_tensor() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    read, end = read_tensor(memoryview(tensor_bytes([2, 3], 5, array.tobytes())), 0, "t")
    assert (read == array).all()
    assert end == len(tensor_bytes([2, 3], 5, array.tobytes()))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "needs 4 bytes more"),
        (tensor_bytes([2, 3], 5, b"\0" * 23), "needs 24 bytes more, and 23 are left"),
        (tensor_bytes([1 << 40, 1 << 40], 5, b""), "1099511627776"),
        (tensor_bytes([-1], 5, b""), r"shape \[-1\]"),
        (tensor_bytes([2], 99, b""), "type 99"),
        (tensor_bytes([2], 5, b"\0" * 8, version=7), "tensor version 7.*newer Paddle"),
        (tensor_bytes([2], 5, b"\0" * 8, inner=1), "tensor version 1"),
        (tensor_bytes([2], 5, b"\0" * 8, size=-1), "needs -1 bytes"),
        (tensor_bytes([2], 5, b"\0" * 8, size=1 << 30), "a description of 1073741824 bytes"),
        (struct.pack("<IQ", 0, 1 << 60), "LoD levels"),
        (struct.pack("<IQQ", 0, 1, 1 << 62), "bytes more"),
        (tensor_bytes([1] * 40, 5, b"\0" * 4), "shape"),
    ],
)
def test_bad_weights(data: bytes, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        read_tensor(memoryview(data), 0, "weights")


def test_weights_of_another_model() -> None:
    good = tensor_bytes([2], 5, b"\0" * 8)
    with pytest.raises(ModelFileError, match=r"should be float32\[3\].*another model"):
        read_combined(memoryview(good), [Var("w", (3,), "float32")], "f")
    with pytest.raises(ModelFileError, match=r"8 bytes are left over.*another model"):
        read_combined(memoryview(good + b"\0" * 8), [Var("w", (2,), "float32")], "f")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"\x80", "ends inside a number"),
        (b"\xff" * 11, "more than 64 bits"),
        (b"\x0a\xff\xff\xff\xff\x0f", "are announced"),
        (b"\x0b", "unknown wire type 3"),
        (b"\x00\x00", "field number 0"),
        (b"\x0a\x02\x08\x00", "no operations"),
        (b"\x22\x05\x08" + _varint(4_000_000), "version 4000000"),
        (b"PK\x03\x04 a zip file", "."),
        (b"\x80\x04\x95 a pickle", "."),
    ],
)
def test_bad_programs(data: bytes, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        read_program_desc(data)


def _pir(**changes: Any) -> bytes:
    code = {"magic": "pir", "version": 1, "trainable": True, **changes.pop("code", {})}
    ops = changes.pop("ops", [])
    program = {"regions": [{"#": "region_0", "blocks": [{"#": "b", "args": [], "ops": ops}]}]}
    return json.dumps({"base_code": code, "program": program, **changes}).encode()


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"{", ModelFileError, "not readable JSON"),
        (b"[" * 100_000, ModelFileError, "JSON"),
        (b"{}", ModelFileError, "damaged"),
        (_pir(code={"magic": "elf"}), ModelFileError, "magic word is 'elf'"),
        (_pir(code={"version": 99}), ModelFileError, "PIR version 99.*up to"),
        (_pir(), ModelFileError, "no results"),
        (_pir(ops=[{"#": "7.x", "A": [], "I": [], "O": []}]), UnsupportedModel, "dialect"),
        (_pir(ops=[{"#": "1.relu", "A": [], "I": [{"%": "a"}], "O": []}]), ModelFileError, "'a'"),
        (_pir(ops=[{"#": "1.relu"}]), ModelFileError, "damaged: KeyError"),
    ],
)
def test_bad_pir(data: bytes, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read_pir(data)


def _with_op(files: dict[str, tuple[bytes, Any]], change: Any) -> bytes:
    document = json.loads(files["PIR"][0])
    change(document["program"]["regions"][0]["blocks"][0]["ops"])
    return json.dumps(document).encode()


def test_an_unknown_op_is_named(files: dict[str, tuple[bytes, Any]], tmp_path: Path) -> None:
    def change(ops: list[Any]) -> None:
        next(o for o in ops if o["#"] == "1.relu")["#"] = "1.from_the_future"

    (tmp_path / "m.json").write_bytes(_with_op(files, change))
    (tmp_path / "m.pdiparams").write_bytes(files["weights"][0])
    with pytest.raises(UnsupportedModel, match=r"1 operation\(s\).*from_the_future"):
        load_model(str(tmp_path / "m"))


def test_a_value_that_nobody_made(files: dict[str, tuple[bytes, Any]], tmp_path: Path) -> None:
    def change(ops: list[Any]) -> None:
        next(o for o in ops if o["#"] == "1.relu")["I"][0]["%"] = 12345

    (tmp_path / "m.json").write_bytes(_with_op(files, change))
    (tmp_path / "m.pdiparams").write_bytes(files["weights"][0])
    with pytest.raises(ModelFileError, match=r"\[relu\].*'12345' is used before it is made"):
        load_model(str(tmp_path / "m"))(bireme.zeros([1, 3, 8, 8]))


def test_a_huge_constant_is_refused(files: dict[str, tuple[bytes, Any]], tmp_path: Path) -> None:
    def change(ops: list[Any]) -> None:
        at = next(i for i, o in enumerate(ops) if o["#"] == "1.fetch")
        huge = {"#": "1.full", "I": [], "O": [{"%": 999, "TT": {}}], "A": [
            {"N": "shape", "AT": {"#": "1.a_intarray", "D": [1 << 40, 1 << 20]}},
            {"N": "value", "AT": {"#": "0.a_f64", "D": 1.0}},
            {"N": "dtype", "AT": {"#": "1.a_dtype", "D": "float32"}}]}  # fmt: skip
        ops.insert(at, huge)

    (tmp_path / "m.json").write_bytes(_with_op(files, change))
    (tmp_path / "m.pdiparams").write_bytes(files["weights"][0])
    with pytest.raises(ModelFileError, match="a constant of shape"):
        load_model(str(tmp_path / "m"))(bireme.zeros([1, 3, 8, 8]))


def test_parameter_names_are_no_paths(tmp_path: Path) -> None:
    from bireme.convert.paddle.params import read_separate

    with pytest.raises(ModelFileError, match="cannot be a file"):
        read_separate(str(tmp_path), [Var("../../etc/passwd", (1,), "float32")])
    with pytest.raises(ModelFileError, match="is missing"):
        read_separate(str(tmp_path), [Var("w", (1,), "float32")])


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no Paddle model"):
        load_model(str(tmp_path))
    (tmp_path / "m.pdmodel").write_bytes(b"junk")
    with pytest.raises(ModelFileError, match=r"m\.pdmodel"):
        load_model(str(tmp_path / "m"))
