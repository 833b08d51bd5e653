"""Paddle's own files, both ways, against the real wheel; and hostile or broken ones."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import resource
import sys
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bireme
from bireme.core.errors import BiremeError
from bireme.io import paddle_file
from bireme.io.unpickle import UnsafePickle, loads, machine

CONTENTS = {
    "state": lambda p: {"a.w": p.ones([2, 3]), "b": p.zeros([0, 2], "int64")},
    "scheduler": lambda p: {"m": p.ones([2]), "LR_Scheduler": {"last_epoch": 3, "last_lr": 0.1}},
    "masters": lambda p: {"m": p.ones([1]), "master_weights": {"w": p.ones([2])}, "step": 7},
    "nested": lambda p: {"model": {"w": p.ones([2])}, "opt": [p.zeros([1]), (1, "x", None)]},
    "tensor": lambda p: p.to_tensor([[1.5, -2.0]]),
    "scalar": lambda p: p.to_tensor(2.5),
    "list": lambda p: [p.ones([1]), np.ones(2), {"k": True}],
    "arrays": lambda p: {"a": np.arange(6.0).reshape(2, 3), "b": [np.ones(1, "int8")]},
    "ordered": lambda p: OrderedDict(z=p.ones([1]), a=p.ones([2])),
    "half": lambda p: {"h": p.ones([3], "float16"), "b": p.full([3], 1.5, "bfloat16")},
    "complex": lambda p: {"c": p.to_tensor([1 + 2j]), "flag": p.to_tensor([True, False])},
    "empty": lambda p: {},
    "number": lambda p: 5,
}


def plain(value):
    """Tensors of either library as (name, dtype, array)."""
    if hasattr(value, "stop_gradient"):
        name = value.name if hasattr(value, "_name") is False or value._name else None
        array = np.asarray(value.astype("float32").numpy()).tolist()
        if str(value.dtype).endswith(("complex64", "complex128")):
            array = np.asarray(value.numpy()).tolist()
        return ("tensor", name, str(value.dtype), array)
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain(v) for v in value)
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.tolist())
    return value


def unnamed(value):
    """The same without generated names, which differ between the libraries."""
    if isinstance(value, tuple) and value[:1] == ("tensor",):
        return ("tensor", *value[2:])
    if isinstance(value, dict):
        return {k: unnamed(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(unnamed(v) for v in value)
    return value


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("what", CONTENTS)
def test_paddle_writes_and_we_read(paddle, tmp_path, what, protocol):
    path = str(tmp_path / "x.pdparams")
    paddle.save(CONTENTS[what](paddle), path, protocol=protocol)
    named = unnamed if what == "arrays" else lambda v: v  # arrays have no names to keep
    assert named(plain(bireme.load(path))) == named(plain(paddle.load(path)))
    theirs, ours = paddle.load(path, return_numpy=True), bireme.load(path, return_numpy=True)
    assert plain(ours) == plain(theirs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("what", CONTENTS)
def test_we_write_and_paddle_reads(paddle, tmp_path, what, protocol):
    path, reference = str(tmp_path / "x.pdopt"), str(tmp_path / "y.pdopt")
    bireme.save(CONTENTS[what](bireme), path, protocol=protocol)
    paddle.save(CONTENTS[what](paddle), reference, protocol=protocol)
    assert unnamed(plain(paddle.load(path))) == unnamed(plain(paddle.load(reference)))
    assert unnamed(plain(bireme.load(path))) == unnamed(plain(paddle.load(reference)))


def test_names_travel(paddle, tmp_path):
    path = str(tmp_path / "x.pdparams")
    layer = bireme.nn.Linear(2, 3)
    bireme.save(layer.state_dict(), path)
    found = paddle.load(path)
    assert [found["weight"].name, found["bias"].name] == [layer.weight.name, layer.bias.name]
    table = {"weight": layer.weight.name, "bias": layer.bias.name}
    assert bireme.load(path, keep_name_table=True)[paddle_file.NAME_TABLE] == table
    assert bireme.load(path)["weight"].name == layer.weight.name


def train(lib, net, opt, steps):
    for i in range(steps):
        x = lib.to_tensor(np.linspace(-1, 1 + i, 8, dtype="float32").reshape(2, 4))
        (net(x) ** 2).mean().backward()
        opt.step()
        opt._learning_rate.step()
        opt.clear_grad()


def make(lib):
    net = lib.nn.Linear(4, 3)
    schedule = lib.optimizer.lr.StepDecay(0.1, 2)
    return net, lib.optimizer.AdamW(schedule, parameters=net.parameters())


@pytest.mark.parametrize("there_and_back", [False, True])
def test_training_goes_on_in_the_other_library(paddle, tmp_path, there_and_back):
    first, second = (bireme, paddle) if there_and_back else (paddle, bireme)
    with paddle.utils.unique_name.guard(), bireme.utils.unique_name.guard():
        net, opt = make(first)
        train(first, net, opt, 3)
        first.save(net.state_dict(), str(tmp_path / "n.pdparams"))
        first.save(opt.state_dict(), str(tmp_path / "n.pdopt"))
        train(first, net, opt, 3)
        other, other_opt = make(second)
        other.set_state_dict(second.load(str(tmp_path / "n.pdparams")))
        other_opt.set_state_dict(second.load(str(tmp_path / "n.pdopt")))
        train(second, other, other_opt, 3)
    np.testing.assert_allclose(other.weight.numpy(), net.weight.numpy(), rtol=1e-5, atol=1e-6)
    assert other_opt.get_lr() == pytest.approx(opt.get_lr())


def test_several_objects_in_one_buffer(paddle):
    buffer = io.BytesIO()
    paddle.save({"a": paddle.ones([2])}, buffer)
    paddle.save(paddle.zeros([1]), buffer)
    buffer.seek(0)
    assert bireme.load(buffer)["a"].tolist() == [1, 1]
    assert bireme.load(buffer).tolist() == [0]


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "bfloat16", "float16", "uint8"])
def test_binary_tensors(paddle, tmp_path, dtype):
    theirs, ours = str(tmp_path / "t"), str(tmp_path / "o")
    paddle.save(paddle.ones([2, 130]).astype(dtype), theirs, use_binary_format=True)
    bireme.save(bireme.ones([2, 130]).astype(dtype), ours, use_binary_format=True)
    with open(theirs, "rb") as a, open(ours, "rb") as b:
        assert a.read() == b.read()
    found = bireme.load(theirs)
    assert found.shape == [2, 130]
    assert found.dtype.name == dtype
    assert bireme.load(theirs, return_numpy=True).shape == (2, 130)
    folder = bireme.load(str(tmp_path))
    assert sorted(folder) == ["o", "t"]


def test_dense_tensor_of_a_static_graph(paddle, tmp_path):
    tensor = paddle.base.core.DenseTensor()
    tensor.set(np.ones((2, 2), "float32"), paddle.CPUPlace())
    paddle.save([tensor], str(tmp_path / "d"))
    assert bireme.load(str(tmp_path / "d"))[0].tolist() == [[1, 1], [1, 1]]


def test_large_tensors_come_in_pieces(paddle, tmp_path, monkeypatch):
    monkeypatch.setattr(paddle_file, "_PIECE_BYTES", 16)
    path = str(tmp_path / "x.pdparams")
    bireme.save({"w": bireme.arange(12).reshape([3, 4]).astype("float32")}, path, protocol=2)
    with open(path, "rb") as file:
        assert b"w@@.2" in file.read()
    for lib in (paddle, bireme):
        assert lib.load(path)["w"].tolist() == np.arange(12.0).reshape(3, 4).tolist()


def test_python_2_files():
    array = pickle.dumps(np.arange(3, dtype="float32"), 2)
    assert loads(array).tolist() == [0, 1, 2]
    # What Python 2 wrote: byte strings as text.
    old = (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x02\x85cnumpy\ndtype\nU\x02f4K\x00K\x01\x87R"
        b"(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x08\x00\x00\x80?\x00\x00\x00@tb."
    )
    assert loads(old).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"protocol": 5}, "protocol must be 2, 3 or 4"),
        ({"protocol": 1}, "protocol"),
        ({"colour": 1}, "unknown option 'colour'"),
    ],
)
def test_bad_options(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        bireme.save({"a": bireme.ones([1])}, str(tmp_path / "x.pdparams"), **options)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda: bireme.nn.Linear(1, 1), "save its state_dict"),
        (lambda: {"f": print}, "at 'f'"),
        (lambda: {"x": bireme.ones([1], "float8_e4m3fn")}, "safetensors"),
        (lambda: np.array([{}]), "array of object"),
    ],
)
def test_what_cannot_be_saved(tmp_path, value, message):
    with pytest.raises(TypeError, match=message):
        bireme.save(value(), str(tmp_path / "x.pdparams"))


class Call:
    """Pickles as a call of `function`."""

    def __init__(self, function, *args):
        self.what = (function, args)

    def __reduce__(self):
        return self.what

    def __str__(self):
        return f"{self.what[0].__name__} {self.what[1]}"


class Attributes:
    def __init__(self):
        self.x = 1


MARKER = "BIREME_TEST_MARKER"


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "value",
    [
        Call(os.putenv, MARKER, "1"),
        Call(eval, "1 + 1"),
        Call(eval, "data", {"data": 1}),
        Call(eval, "data", {"data": [], "x": 1}),
        Call(exec, "import os"),
        Call(getattr, "", "join"),
        Call(__import__, "os"),
        Call(bytearray, 10**12),
        Call(bytes, 10**12),
        Call(np.dtype, "O"),
        Call(np.dtype, "V1000000000000"),
        Call(np.dtype, [("a", "f4")]),
        Call(np.zeros, 10**10),
        Call(list, range(5)),
        np.array([None]),
        print,
        np.ndarray,
        {"a": np.dtype("f4")},
        Attributes(),
        bireme.core.errors.BiremeError,
        pytest.raises,
    ],
    ids=lambda v: str(v).partition(" at 0x")[0][:60],
)
def test_hostile_pickles_run_nothing(value, protocol):
    data = pickle.dumps(value, protocol)
    with pytest.raises(BiremeError, match=r"pickle"):
        loads(data)
    with pytest.raises(BiremeError):
        bireme.load(io.BytesIO(data))
    assert MARKER not in os.environ


BOMBS = {
    "length": b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7f.",
    "text length": b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7f.",
    "negative": b"\x80\x02\x8b\xff\xff\xff\xff.",
    "deep list": b"\x80\x04" + b"]" * 50_000 + b"a" * 49_999 + b".",
    "deep tuple key": b"\x80\x04}" + b"N" + b"\x85" * 50_000 + b"Ns.",
    "deep tuple": b"\x80\x04N" + b"\x85" * 50_000 + b".",
    "itself": b"\x80\x04]\x94h\x00a.",
    "same bytes as many arrays": (
        b"\x80\x04B\x00\x00\x01\x00" + b"x" * 65536 + b"\x94"
        b"(" + b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR"
        b"(K\x01J\x00\x00\x01\x00\x85cnumpy\ndtype\n(\x8c\x02u1K\x00K\x01tR\x89h\x00tb"
        * 100
        + b"l."
    ),
    "same text as many bytes": (
        b"\x80\x02X\x00\x00\x01\x00" + b"x" * 65536 + b"q\x00"
        b"(" + b"c_codecs\nencode\n(h\x00X\x06\x00\x00\x00latin1tR" * 3000 + b"l."
    ),
    "copies of a list": (
        b"\x80\x02](" + b"N" * 50_000 + b"eq\x00(" + b"cbuiltins\nlist\n(h\x00tR" * 3000 + b"l."
    ),
    "many lists": b"\x80\x04(" + b"]" * 1_100_000,
    "huge number": b"\x80\x02\x8b\xff\xff\x00\x00" + b"\x01" * 65535 + b".",
    "digits": b"I" + b"9" * 5000 + b"\n.",
    "wrong size": (
        b"\x80\x04cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR"
        b"(K\x01\x8a\x08" + b"\xff" * 7 + b"\x3f" + b"\x85cnumpy\ndtype\n(\x8c\x02u1K\x00K\x01tR"
        b"\x89C\x01xtb."
    ),
    "persistent": b"\x80\x02U\x01aQ.",
    "extension": b"\x80\x02\x82\x01.",
    "instance": b"(ios\nsystem\n.",
    "old object": b"(cos\nsystem\nU\x02lso.",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_bounded(bomb, monkeypatch):
    monkeypatch.setattr(machine, "MAX_STEPS", 1_000_000)  # sooner
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BiremeError, match=r"\[load\]"):
        loads(BOMBS[bomb])
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 1_500_000  # kilobytes


def test_a_high_memo_number_costs_nothing():
    assert loads(b"\x80\x02Nr\xff\xff\xff\xffj\xff\xff\xff\xff" + b"0.") is None


def test_shared_containers_are_not_unfolded():
    """Thirty lists, each twice in the next: a billion paths, thirty objects."""
    value: list = []
    for _ in range(30):
        value = [value, value]
    found = bireme.load(io.BytesIO(pickle.dumps(value, 4)))
    assert found[0] is found[1]


VALID = [
    pickle.dumps(v, p)
    for p in (2, 3, 4)
    for v in (
        {"a": np.arange(4.0), "b": [1, (2.5, "x"), None], "o": OrderedDict(x=np.float32(1))},
        {"w": ("name", np.ones((2, 2), "float32")), "s": {1, 2}, "t": b"x" * 5000},
    )
]


@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    data=st.sampled_from(VALID),
    edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=6),
    cut=st.integers(0, 10**6),
)
def test_damaged_files_give_data_or_a_clear_error(data, edits, cut):
    broken = bytearray(data)
    for at, byte in edits:
        broken[at % len(broken)] = byte
    if cut % 3 == 0:
        del broken[cut % len(broken) :]
    try:
        bireme.load(io.BytesIO(bytes(broken)))
    except BiremeError as e:
        message = str(e)
    else:
        message = "[load]"
    assert any(word in message for word in ("[load]", "damaged", "truncated"))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_noise(data):
    for start in (b"\x80\x04", b"(", b"}", b""):
        with contextlib.suppress(BiremeError):
            loads(start + data)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(-(2**60), 2**60), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(PLAIN, st.integers(0, 5))
def test_plain_values_as_pythons_own_reader(value, protocol):
    data = pickle.dumps(value, protocol)
    assert loads(data) == pickle.loads(data)


def test_errors_do_not_mention_a_missing_python_module(tmp_path):
    path = tmp_path / "x.pdparams"
    path.write_bytes(pickle.dumps(Call(sys.exit, 3), 4))
    with pytest.raises(UnsafePickle, match=r"x\.pdparams.*sys\.exit.*Nothing of it was run"):
        bireme.load(str(path))
