"""One interface: every backend compiles every kind of graph, and answers for its devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import backends
from bireme.backends import Backend, Executable, get_backend
from bireme.capture.capture import capture
from bireme.core import place
from bireme.core.aval import aval
from bireme.core.dtype import float32
from bireme.core.errors import InvalidArgument
from bireme.core.graph import Graph

NAMES = ["xla", "numpy", "null"]


def affine() -> Graph:
    """x * w * 2 + 1, of two inputs."""
    types = [aval((2, 3), float32), aval((3,), float32)]
    captured = capture(lambda xs: xs[0] * xs[1] * 2.0 + 1.0, types, label="affine", tape=False)
    return captured.graph


X = np.arange(6, dtype="float32").reshape(2, 3)
W = np.array([1, 2, 3], "float32")


def numbers(graph: Graph) -> list[np.ndarray]:
    floats, ints = graph.vectors()
    return [np.array(floats, np.float64), np.array(ints, np.int64)]


def expected(name: str) -> np.ndarray:
    return np.zeros((2, 3), "float32") if name == "null" else X * W * 2 + 1


@pytest.mark.parametrize("name", NAMES)
def test_a_graph(name: str) -> None:
    graph = affine()
    executable = get_backend(name).compile(graph)
    (out,) = executable.call(*numbers(graph), X, executable.put(W))
    np.testing.assert_array_equal(np.asarray(out), expected(name))
    assert np.asarray(out).dtype == np.float32


@pytest.mark.parametrize("fixed", [{1: W}, {0: X}, {0: X, 1: W}, {}])
@pytest.mark.parametrize("name", NAMES)
def test_fixed_inputs_are_not_passed(name: str, fixed: dict[int, np.ndarray]) -> None:
    executable = get_backend(name).compile(affine(), place=place.CPUPlace(), fixed=fixed)
    others = [a for i, a in enumerate((X, W)) if i not in fixed]
    (out,) = executable.call(*others)
    np.testing.assert_array_equal(np.asarray(out), expected(name))


@pytest.mark.parametrize("fixed", [None, {1: W}])
def test_xla_overwrites_what_is_donated(fixed: dict[int, np.ndarray] | None) -> None:
    graph = affine()
    executable = get_backend("xla").compile(graph, fixed=fixed, donated=(0,))
    x, w = executable.put(X), executable.put(W)
    arguments = [x] if fixed else [*numbers(graph), x, w]
    (out,) = executable.call(*arguments)
    np.testing.assert_array_equal(np.asarray(out), expected("xla"))
    assert x.is_deleted()
    assert not w.is_deleted()


@pytest.mark.parametrize("name", NAMES)
def test_buffers(name: str) -> None:
    backend = get_backend(name)
    buffer = backend.put(X, place.CPUPlace())
    np.testing.assert_array_equal(np.asarray(buffer), X)
    assert backend.compile(affine()).takes(buffer)
    backend.synchronize(place.CPUPlace())
    assert backend.device_count("cpu") >= 1
    assert all(a.is_ready() for a in backend.unfinished(place.CPUPlace()))


def test_places_choose() -> None:
    for where in (place.CPUPlace(), place.CUDAPlace(3), place.CustomPlace("no_such_chip")):
        assert where.backend() is get_backend("xla")
    assert place.CustomPlace("numpy").backend() is get_backend("numpy")
    assert place.CustomPlace("null", 1).backend() is get_backend("null")


def test_the_place_that_is_asked_for_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the current one, which may be another by the time that a thread compiles."""
    monkeypatch.setattr(place, "_default", place.CUDAPlace(0))  # there is none here
    graph = affine()
    executable = get_backend("xla").compile(graph, place=place.CPUPlace())
    (out,) = executable.call(*numbers(graph), X, W)
    np.testing.assert_array_equal(np.asarray(out), expected("xla"))
    with pytest.raises(InvalidArgument, match="no device"):
        get_backend("xla").compile(graph)


def test_a_place_that_does_not_exist() -> None:
    with pytest.raises(InvalidArgument, match=r"no device Place\(no_such_chip:0\): 0 no_such_chip"):
        place.CustomPlace("no_such_chip").check()
    with pytest.raises(InvalidArgument, match=r"no device Place\(null:1\): 1 null"):
        paddle.set_device("null:1")
    with pytest.raises(InvalidArgument, match="served by the backend 'null'"):
        place.CustomPlace("null").device()


def test_unknown_names_are_listed() -> None:
    with pytest.raises(InvalidArgument, match=r"'xlla'\. Installed: numpy, xla, null"):
        get_backend("xlla")


class Nothing:
    """What is no backend."""


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in ("_registered", "_loaded", "_by_kind"):
        monkeypatch.setattr(backends, table, dict(getattr(backends, table)))


@pytest.mark.usefixtures("registered")
def test_registering() -> None:
    backends.register("wrong_chip", Nothing)  # type: ignore[arg-type]
    assert "wrong_chip" in backends.available_backends()
    with pytest.raises(InvalidArgument, match=r"must be a subclass.*Received: Nothing"):
        get_backend("wrong_chip")
    for name in ("xla", "cpu", "gpu", "numpy"):
        with pytest.raises(InvalidArgument, match=f"'{name}' is Bireme's own"):
            backends.register(name, Nothing)  # type: ignore[arg-type]


def test_the_interface_is_abstract() -> None:
    for kind in (Backend, Executable):
        with pytest.raises(TypeError, match="abstract"):
            kind()  # type: ignore[abstract]


def test_the_numpy_backend_as_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs on it are compiled by it: its errors come as they are."""
    paddle.set_device("numpy")
    try:
        x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        assert x.place == place.CustomPlace("numpy")
        assert paddle.get_device() == "numpy:0"
        np.testing.assert_array_equal((x @ x + 1).numpy(), [[8, 11], [16, 23]])
        wrong: Any = paddle.nn.functional.cross_entropy(x, paddle.to_tensor([0, 7]))
        with pytest.raises(paddle.core.errors.PositionOutOfRange, match="holds 7"):
            wrong.item()
    finally:
        paddle.set_device("cpu")
    assert (x + 1).place.is_cpu_place()
