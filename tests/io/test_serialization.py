"""save and load: round trips, other readers, and every way in which a file can be bad."""

from __future__ import annotations

import io
import json
import os
from argparse import Namespace
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bireme
from bireme.core.errors import BiremeError
from bireme.io.serialization import FileFormatError, load, save


def same(a, b):
    if isinstance(a, bireme.Tensor):
        return isinstance(b, bireme.Tensor) and a.dtype is b.dtype and same(a.numpy(), b.numpy())
    if isinstance(a, np.ndarray | np.generic):
        return (
            type(a) is type(b)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.tobytes() == b.tobytes()
        )
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


def round_trip(value):
    buffer = io.BytesIO()
    save(value, buffer)
    buffer.seek(0)
    return load(buffer)


def tensor(dtype, shape=(2, 3)):
    return bireme.to_tensor(np.arange(np.prod(shape)).reshape(shape).astype(dtype.numpy))


@pytest.mark.parametrize("dtype", bireme.core.dtype.ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)], ids=str)
def test_every_dtype(dtype, shape):
    value = {"x": tensor(dtype, shape)}
    assert same(value, round_trip(value))


def test_nested_containers_and_plain_values(tmp_path):
    value = {
        "model": OrderedDict(weight=bireme.to_tensor([[1.0, 2.0]]), bias=bireme.to_tensor([0.5])),
        "list": [1, (2.5, 'é\n"', None, True), [], {}, ()],
        "numpy": np.arange(6).reshape(2, 3)[:, ::-1],
        "scalar": np.float32(1.5),
        "odd": {1: "int key", (1, 2): "tuple key", "$x": float("inf"), None: float("nan")},
        "other": [b"\x00\xff", 1 + 2j, bireme.float16, -(2**80), -0.0, 1e-320],
        "": bireme.to_tensor([1]),
        "a.b": bireme.to_tensor([2]),
        "a": {"b": bireme.to_tensor([3])},
        "__metadata__": bireme.to_tensor([4]),
    }
    path = tmp_path / "deep" / "er" / "file.safetensors"
    save(value, path)
    assert same(value, load(path))
    assert os.listdir(path.parent) == ["file.safetensors"]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.builds(lambda n: np.arange(n, dtype="int16"), st.integers(0, 5)),
    lambda v: (
        st.lists(v, max_size=4)
        | st.lists(v, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers(), v, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES)
@settings(max_examples=150, deadline=None)
def test_any_nest_of_values(value):
    assert same(value, round_trip(value))


def test_a_header_length_that_looks_like_a_pickle():
    for n in range(600):
        assert round_trip("x" * n) == "x" * n


def test_a_lone_tensor_and_names(tmp_path):
    x = bireme.to_tensor([1.0, 2.0])
    x.name = "linear_0.w_0"
    loaded = round_trip(x)
    assert same(x, loaded)
    assert loaded.name == "linear_0.w_0"
    assert loaded.stop_gradient


def test_tied_weights_are_stored_once_and_stay_tied():
    x = bireme.to_tensor(np.zeros(1000, "float32"))
    buffer = io.BytesIO()
    save({"a": x, "b": x}, buffer)
    assert buffer.tell() < 5000
    buffer.seek(0)
    loaded = load(buffer)
    assert loaded["a"] is loaded["b"]


def test_return_numpy():
    buffer = io.BytesIO()
    save({"x": bireme.to_tensor([1.0])}, buffer)
    buffer.seek(0)
    assert same({"x": np.array([1.0], "float32")}, load(buffer, return_numpy=True))


def test_other_safetensors_programs_understand_each_other(tmp_path):
    from safetensors.numpy import load_file, save_file

    arrays = {"w": np.arange(6, dtype="float32").reshape(2, 3), "b": np.ones(3, "int64")}
    save({k: bireme.to_tensor(v) for k, v in arrays.items()}, tmp_path / "ours")
    assert same(arrays, dict(sorted(load_file(tmp_path / "ours").items(), reverse=True)))
    save_file(arrays, tmp_path / "theirs")
    loaded = load(tmp_path / "theirs", return_numpy=True)
    assert same(arrays, {k: loaded[k] for k in arrays})


def test_sets_namespaces_and_generator_states(tmp_path):
    bireme.seed(5)
    bireme.rand([2])
    state = bireme.get_rng_state()
    obj = {"s": {3, 1}, "f": frozenset("ab"), "n": Namespace(lr=0.1, names=["x"]), "r": state}
    bireme.save(obj, tmp_path / "any.pth")
    found = bireme.load(tmp_path / "any.pth")
    assert found == obj
    assert found["r"][0].current_seed() == 5
    bireme.set_rng_state(found["r"])
    assert bireme.get_rng_state() == state


def test_layers_and_other_objects_are_refused(tmp_path):
    class Layer:
        def state_dict(self):
            return {}

    with pytest.raises(TypeError, match=r"at 'net'.*Received: Layer; save its state_dict"):
        save({"net": Layer()}, tmp_path / "x")
    with pytest.raises(TypeError, match=r"at 'f.0'.*Received: function"):
        save({"f": [lambda: 1]}, tmp_path / "x")
    with pytest.raises(TypeError, match="array of"):
        save(np.array(["text"]), tmp_path / "x")
    assert not os.listdir(tmp_path)


def test_a_failed_save_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model"
    save({"x": bireme.to_tensor([1.0])}, path)

    def broken(*args):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(OSError, match="disk full"):
        save({"x": bireme.to_tensor([2.0])}, path)
    assert load(path)["x"].item() == 1.0
    assert os.listdir(tmp_path) == ["model"]


def test_a_symbolic_link_keeps_pointing(tmp_path):
    (tmp_path / "real").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    save(1, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert load(tmp_path / "real") == 1


def test_paths(tmp_path):
    (tmp_path / "model.pdparams").touch()
    with pytest.raises(ValueError, match=r"there is no file.*did you mean 'model.pdparams'"):
        load(tmp_path / "model.pdparam")
    with pytest.raises(ValueError, match="is a folder"):
        load(tmp_path)
    with pytest.raises(ValueError, match="name a file"):
        save(1, tmp_path)
    with pytest.raises(ValueError, match="protocol must be"):
        save(1, tmp_path / "x", protocol=1)


FOREIGN = {
    "zip": (b"PK\x03\x04" + bytes(40), "File is not a zip file"),
    "npy": (b"\x93NUMPY" + bytes(40), "numpy.load"),
    "empty": (b"", "truncated"),
    "text": (b"hello, this is no model file at all", "truncated or no safetensors"),
    "zeros": (bytes(100), "no tensor file"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_foreign_files(tmp_path, kind):
    data, message = FOREIGN[kind]
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(FileFormatError, match=message) as info:
        load(tmp_path / "file")
    assert "file" in str(info.value)


def _with_header(header, body=b"", metadata=None):
    if metadata is not None:
        header = {"__metadata__": metadata, **header}
    encoded = json.dumps(header).encode()
    return io.BytesIO(len(encoded).to_bytes(8, "little") + encoded + body)


def _entry(**changes):
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"x": _entry(dtype="F99")}, "cannot be understood"),
        ({"x": _entry(shape=[-2])}, "impossible sizes"),
        ({"x": _entry(shape=[2.0])}, "impossible sizes"),
        ({"x": _entry(shape=[3])}, "cannot have 8 bytes"),
        ({"x": _entry(shape=[2**62, 4])}, "impossible sizes"),
        ({"x": _entry(), "y": _entry()}, "overlap"),
        ({"x": _entry(data_offsets=[8, 16])}, "overlap or leave gaps"),
        ({"x": _entry(shape=[4], data_offsets=[0, 16])}, "8 bytes are missing"),
        ({}, "8 unknown bytes"),
        ({"x": 3}, "cannot be understood"),
        ([], "not a JSON object"),
    ],
)
def test_damaged_headers(header, message):
    with pytest.raises(FileFormatError, match=message):
        load(_with_header(header, bytes(8)))


@pytest.mark.parametrize(
    ("structure", "version", "message"),
    [
        ('{"$array": "y", "kind": "tensor"}', "1", "'y' is missing"),
        ('{"$bogus": 1}', "1", "unknown mark"),
        ("[" * 100_000, "1", "structure cannot be read"),
        ("{", "1", "structure cannot be read"),
        ('{"$tuple": 3}', "1", "structure cannot be read"),
        ("1", "99", "version '99'.*Update"),
    ],
)
def test_damaged_structures(structure, version, message):
    metadata = {"format": "bireme", "version": version, "structure": structure}
    with pytest.raises(FileFormatError, match=message):
        load(_with_header({}, metadata=metadata))


GOOD = io.BytesIO()
save({"w": bireme.to_tensor(np.arange(4.0)), "t": (1, "two", {"three": [4.0]})}, GOOD)


@given(data=st.data())
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
def test_fuzzed_files_load_or_raise_our_error(data):
    raw = bytearray(GOOD.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        action = data.draw(st.sampled_from(["flip", "cut", "insert", "header"]))
        at = data.draw(st.integers(0, len(raw) - 1)) if raw else 0
        if action == "flip" and raw:
            raw[at] = data.draw(st.integers(0, 255))
        elif action == "cut":
            del raw[at:]
        elif action == "insert":
            raw[at:at] = data.draw(st.binary(max_size=6))
        elif len(raw) > 8:  # most of the bytes that decide are here
            raw[8 + at % max(len(raw) - 40, 1)] = data.draw(st.sampled_from(b'{}[]":,0123456789$-'))
    try:
        load(io.BytesIO(bytes(raw)))
    except BiremeError as e:
        assert "the buffer" in str(e)  # noqa: PT017 (many of the damaged files are still good)


def test_several_objects_follow_each_other_in_a_buffer():
    buffer = io.BytesIO()
    for value in ({"w": bireme.ones([2, 3])}, bireme.zeros([4]), {"step": 3}):
        bireme.save(value, buffer)
    buffer.seek(0)
    assert bireme.load(buffer)["w"].shape == [2, 3]
    assert bireme.load(buffer).shape == [4]
    assert bireme.load(buffer) == {"step": 3}
    buffer = io.BytesIO()
    bireme.save({"w": bireme.ones([2, 3])}, buffer)
    with pytest.raises(FileFormatError, match="truncated"):
        bireme.load(io.BytesIO(buffer.getvalue()[:-1]))
