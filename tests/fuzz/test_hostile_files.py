"""Files made to cost much or to reach far: each is refused, with little work."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bireme
from bireme import audio, jit, vision
from bireme.capture import symbols
from bireme.capture.graph_io import decode_type
from bireme.convert.onnx.patterns import Pattern
from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.io import foreign
from bireme.io.tar_file import TarFile
from bireme.io.unpickle import loads
from bireme.vision.datasets.folder import DatasetFolder, load_image
from bireme.vision.datasets.mnist import read_idx
from tests.fuzz.datasets import sound, tar


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


READERS: dict[str, Any] = {
    "load": bireme.load,
    "jit.load": lambda p: jit.load(p.removesuffix(".json")),
    "onnx.load": bireme.onnx.load,
    "audio.load": audio.load,
    "audio.info": audio.info,
    "image_load": vision.image_load,
    "read_file": vision.ops.read_file,
    "load_image": load_image,
    "TarFile": lambda p: TarFile(p, "test"),
    "zip": lambda p: foreign.open_zip(p, "test").__enter__(),
    "load_from_file": bireme.static.load_from_file,
    "load_profiler_result": bireme.profiler.load_profiler_result,
}


@pytest.mark.parametrize("name", READERS)
def test_a_fifo_and_a_device_are_not_waited_for(name: str, tmp_path: Path) -> None:
    fifo, endless = tmp_path / "fifo.json", tmp_path / "endless.json"
    os.mkfifo(fifo)
    endless.symlink_to("/dev/zero")
    for path in (fifo, endless):
        with pytest.raises(FileFormatError, match="not a regular file"):
            READERS[name](str(path))


@pytest.mark.parametrize("name", READERS)
def test_missing_files_are_no_bad_files(name: str, tmp_path: Path) -> None:
    with pytest.raises((FileNotFoundError, InvalidArgument, FileFormatError)) as said:
        READERS[name](str(tmp_path / "none.json"))
    assert "none" in str(said.value)
    assert not isinstance(said.value, FileFormatError) or name == "jit.load"


# --- pickles --------------------------------------------------------------------------------


def test_a_cifar_archive_cannot_give_numpy_a_pointer(tmp_path: Path) -> None:
    """NumPy's own unpickling of an array of objects follows what the bytes say."""
    content = struct.pack("<Q", 0x4141414141414141)
    made = (
        b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85"
        b"U\x01b\x87R(K\x01K\x01\x85cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff"
        b"\xff\xffJ\xff\xff\xff\xffK?tb\x89U\x08" + content + b"tbU\x06labels](K\x01eu."
    )
    path = write(tmp_path / "c.tar.gz", tar({"c/data_batch_1": made}))
    with pytest.raises(FileFormatError, match="unusual array type"):
        vision.datasets.Cifar10(path)


def colliding(count: int) -> list[complex]:
    """Complex numbers of one hash: real + 1000003 * imaginary stays the same."""
    return [complex(1000003.0 * k, -float(k)) for k in range(2, count + 2)]


@pytest.mark.parametrize(
    "kind", [dict.fromkeys, set, frozenset, lambda keys: {(k,): 1 for k in keys}]
)
def test_colliding_keys(kind: Any) -> None:
    keys = colliding(300)
    assert len({hash(k) for k in keys}) == 1
    with pytest.raises(FileFormatError, match="of one hash"):
        loads(pickle.dumps(kind(keys)))
    honest = kind([complex(k, 1) for k in range(5000)])
    assert loads(pickle.dumps(honest)) == honest


@pytest.mark.parametrize("read", [bireme.load])
def test_many_dimensions(read: Any) -> None:
    header = b'{"x": {"dtype": "F32", "shape": [%s1], "data_offsets": [0, 4]}}' % (b"9, " * 40_000)
    data = len(header).to_bytes(8, "little") + header + bytes(4)
    with pytest.raises(FileFormatError, match="impossible sizes"):
        read(io.BytesIO(data))


# --- archives and sounds --------------------------------------------------------------------


def test_what_a_file_unfolds_to_is_limited(tmp_path: Path) -> None:
    big = 80 << 20
    header = bytes([0, 0, 8, 3]) + struct.pack(">III", big, 1, 1)
    path = write(tmp_path / "idx.gz", gzip.compress(header + bytes(big), 1))
    with pytest.raises(FileFormatError, match="truncated or damaged"):
        read_idx(path, 3)
    inside = io.BytesIO()
    with tarfile.open(fileobj=inside, mode="w:gz", compresslevel=1) as archive:
        info = tarfile.TarInfo("c/data_batch_1")
        info.size = big
        archive.addfile(info, io.BytesIO(bytes(big)))
    path = write(tmp_path / "c.tar.gz", inside.getvalue())
    with pytest.raises(FileFormatError, match="unfolds to more"):
        vision.datasets.Cifar10(path)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("a", bytes(big))
    with (
        pytest.raises(FileFormatError, match="unfolds to more"),
        foreign.open_zip(tmp_path / "a.zip", "test"),
    ):
        pass


def test_a_sparse_member_of_an_archive_is_not_filled_with_zeros(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("c/data_batch_1")
        info.pax_headers = {"GNU.sparse.realsize": str(1 << 60), "GNU.sparse.major": "1"}
        archive.addfile(info)
    with pytest.raises(FileFormatError, match="sparse"):
        vision.datasets.Cifar10(write(tmp_path / "c.tar", out.getvalue()))


def test_sounds_of_odd_widths_and_lengths(tmp_path: Path) -> None:
    good = sound(4, 1)
    wide = good[:32] + struct.pack("<HH", 8, 64) + good[36:]
    with pytest.raises(NotImplementedError, match="64 bits"):
        audio.load(write(tmp_path / "wide.wav", wide))
    for read in (audio.load, audio.info):
        with pytest.raises(FileFormatError, match="truncated"):
            read(io.BytesIO(good[:-100]))
    streamed = good[:40] + b"\xff\xff\xff\xff" + good[44:]  # the writer did not know the length
    streamed = streamed[:4] + b"\xff\xff\xff\xff" + streamed[8:]
    np.testing.assert_array_equal(
        audio.load(io.BytesIO(streamed))[0].numpy(), audio.load(io.BytesIO(good))[0].numpy()
    )


def test_folders_that_lead_into_themselves(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    np.save(tmp_path / "cat" / "1.npy", np.ones(2))
    for name in ("a", "b"):
        (tmp_path / "cat" / name).symlink_to(tmp_path)
    assert len(DatasetFolder(str(tmp_path)).samples) == 1


# --- models ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["9^99999999", "((9^16)^16)^16", "(a+b+c)^16", "(a+b)^-1", "2^n", "a, " * 40_000 + "4",
     "1//0", "0x10", "a if b else c", "99999999999999999999", "(" * 600],
)  # fmt: skip
def test_sizes_that_take_long_to_work_out(text: str) -> None:
    with pytest.raises((FileFormatError, InvalidArgument)):
        decode_type(f"float32[{text}]")


def test_sizes_stay_numbers_of_64_bits() -> None:
    assert symbols.evaluate("4*n + floordiv(n, 2)^2", {"n": 6}) == 33
    with pytest.raises(InvalidArgument, match="above"):
        symbols.evaluate("n*n*n*n", {"n": 1 << 20})


def test_patterns_take_time_in_proportion_to_the_text() -> None:
    for text in ("(a+)+b", "(a|a)*b", "(a?){50}a{50}b", "(.*)(.*)(.*)(.*)b$"):
        assert not Pattern(text).matches_all("a" * 3000)
    assert Pattern("(?i)[a-c]+\\d{2,3}").matches_all("aBC123")
    assert not Pattern("(?i)[a-c]+\\d{2,3}").matches_all("aBC1234")
    for text in ("(", "a**", "(?=a)", "[a", "\\1", "a{1001}", "((a{100}){100}){100}", "(" * 300):
        with pytest.raises(FileFormatError):
            Pattern(text)


def _onnx(nodes: list[Any], weights: list[Any]) -> bytes:
    from onnx import TensorProto, helper

    outs = [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", [], outs, weights)
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def test_constants_that_fold_to_far_more_than_the_file() -> None:
    helper = pytest.importorskip("onnx").helper
    node, tensor = helper.make_node, helper.make_tensor
    start = tensor("v0", 7, [512], list(range(512)))
    doubled = [node("Concat", [f"v{i}"] * 2, [f"v{i + 1}"], axis=0) for i in range(24)]
    many = [node("Concat", ["v0"] * 1000, ["v1"], axis=0),
            node("Concat", ["v1"] * 1000, ["v2"], axis=0)]  # fmt: skip
    words = tensor("v0", 8, [1], [b"x" * 1000])
    longer = [node("StringConcat", [f"v{i}"] * 2, [f"v{i + 1}"]) for i in range(24)]
    for nodes, weights in (
        (doubled, [start]), (many, [start]), (longer, [words]),
    ):  # fmt: skip
        layer = bireme.onnx.load(_onnx(nodes, weights))
        with pytest.raises(FileFormatError, match="bytes"):
            layer()


def test_a_loop_of_a_program_that_never_ends() -> None:
    from bireme.convert.paddle.interpreter import Run
    from bireme.convert.paddle.program import Block, OpDesc, Program

    def fill(name: str, value: float) -> OpDesc:
        attrs = {"shape": [1], "value": value, "dtype": "bool"}
        return OpDesc("fill_constant", {}, {"Out": [name]}, attrs)

    loop = OpDesc("while", {"Condition": ["go"], "X": []}, {"Out": ["x"]}, {"sub_block": 1})
    body = Block([fill("x", 0.0)], parent=0)
    program = Program([Block([fill("go", 1.0), fill("x", 1.0), loop]), body], [], [("x", "x")])
    with pytest.raises(FileFormatError, match="never changes its condition"):
        Run(program, {})({}, {})
    # Loops in loops: each is written out 64 times, until the run has taken enough steps.
    blocks = [Block([fill("go", 1.0), fill("x", 1.0), loop])]
    for i in range(1, 6):
        inner = OpDesc("while", {"Condition": ["go"]}, {"Out": ["x"]}, {"sub_block": i + 1})
        blocks.append(Block([inner, fill("go", 1.0), fill("x", 1.0)], parent=i - 1))
    blocks.append(Block([fill("go", 1.0), fill("x", 0.0)], parent=5))
    with pytest.raises(FileFormatError, match="takes more than"):
        Run(Program(blocks, [], [("x", "x")]), {})({}, {})
