"""Small names of the package's top level."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import bireme
from bireme.core.errors import BiremeError
from bireme.host import config


def test_lazy_guard(paddle):
    with bireme.utils.unique_name.guard(), bireme.LazyGuard():
        lazy = bireme.nn.Linear(3, 4)
    ready = bireme.nn.Linear(3, 4)
    assert not lazy.weight._is_initialized()
    assert ready.weight._is_initialized()
    assert lazy.weight.shape == [3, 4]
    for use in (lambda: lazy(bireme.ones([2, 3])), lambda: lazy.weight.numpy()):
        with pytest.raises(BiremeError, match=r"linear_0.w_0.*LazyGuard.*initialize"):
            use()
    for p in lazy.parameters():
        p.initialize()
    before = lazy.weight.numpy()
    assert np.abs(before).max() > 0
    lazy.weight.initialize()  # keeps what is there
    np.testing.assert_array_equal(lazy.weight.numpy(), before)
    with bireme.LazyGuard():
        loaded = bireme.nn.Linear(3, 4)
    loaded.set_state_dict(ready.state_dict())
    np.testing.assert_array_equal(loaded.weight.numpy(), ready.weight.numpy())
    (loaded(bireme.ones([2, 3])) ** 2).sum().backward()
    assert loaded.weight.grad.shape == [3, 4]


def test_flags(monkeypatch):
    monkeypatch.setattr(config, "check_nan_inf", False)
    names = ["FLAGS_check_nan_inf", "FLAGS_benchmark"]
    assert bireme.get_flags(names) == dict.fromkeys(names, False)
    bireme.set_flags({"FLAGS_check_nan_inf": 1})
    assert bireme.get_flags(names[0]) == {names[0]: True}
    with pytest.raises(BiremeError, match="NaN or infinity"):
        (bireme.to_tensor([0.0]) / 0.0).numpy()
    bireme.set_flags({"FLAGS_check_nan_inf": False})
    assert np.isnan((bireme.to_tensor([0.0]) / 0.0).numpy()).all()
    bireme.set_flags({"FLAGS_benchmark": True})
    try:
        assert (bireme.ones([2]) + 1)._value.buf is not None  # ran at once
    finally:
        bireme.set_flags({"FLAGS_benchmark": False})
    assert (bireme.ones([2]) + 1)._value.buf is None
    for call in (lambda: bireme.get_flags("FLAGS_x"), lambda: bireme.set_flags({"FLAGS_x": 1})):
        with pytest.raises(ValueError, match="no flag of this engine"):
            call()
    for call in (lambda: bireme.get_flags(3), lambda: bireme.set_flags("FLAGS_x")):
        with pytest.raises(TypeError, match="flags"):
            call()
    bireme.disable_signal_handler()


@pytest.mark.parametrize(
    "name",
    ["Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long", "Bool"],
)
def test_typed_tensors(paddle, name):
    theirs, ours = (getattr(lib, f"{name}Tensor") for lib in (paddle, bireme))
    for args in ((), (2, 3), ([1, 0],), ((1, 2),)):
        a, b = ours(*args), theirs(*args)
        assert (a.shape, str(a.dtype)) == (list(b.shape), str(b.dtype))
    assert ours([1, 0]).astype("float32").tolist() == theirs([1, 0]).astype("float32").tolist()


def test_batch(paddle):
    for options in ({}, {"drop_last": True}):
        reader = lambda: iter(range(7))  # noqa: E731
        ours = list(bireme.batch(reader, 3, **options)())
        assert ours == list(paddle.batch(reader, 3, **options)())
    with pytest.raises(ValueError, match="positive"):
        bireme.batch(list, 0)


def test_generator():
    generator = bireme.Generator("cpu")
    generator.manual_seed(5)
    first = bireme.rand([3]).tolist()
    bireme.seed(5)
    assert bireme.rand([3]).tolist() == first
    with pytest.raises(ValueError, match="no device"):
        bireme.Generator("gpu:99")


def test_mmap_storage(paddle, tmp_path):
    path = str(tmp_path / "x.bin")
    np.arange(20, dtype="float32").tofile(path)
    for lib in (paddle, bireme):
        storage = lib.MmapStorage(path, 80)
        assert storage.get_slice("float32", 0, 20).tolist() == list(range(20))
    ours = bireme.MmapStorage(path, 80)
    assert ours.get_slice("float32", 3, 9, 2).tolist() == [3, 5, 7]
    assert ours.get_slice().shape == [80]
    with pytest.raises(ValueError, match="20 elements"):
        ours.get_slice("float32", 0, 21)
    with pytest.raises(ValueError, match="80 bytes"):
        bireme.MmapStorage(path, 81)


def test_check_shape():
    bireme.check_shape([2, 3], "full")
    bireme.check_shape(bireme.to_tensor([2]), "full")
    for bad in (3, [1.5], [True], [bireme.ones([1])]):
        with pytest.raises(TypeError, match="full"):
            bireme.check_shape(bad, "full")


def test_unsigned_types():
    for name in ("uint16", "uint32", "uint64"):
        assert bireme.ones([2], getattr(bireme, name)).dtype.name == name


def test_flags_of_paddles_own_engine_are_kept(paddle):
    """Their values at the start are the wheel's, where the wheel for CPUs has them."""
    from bireme import flags

    names = list(flags._OF_PADDLE)
    before = bireme.get_flags(names)
    for name, value in before.items():
        with contextlib.suppress(ValueError):
            assert paddle.get_flags(name)[name] == pytest.approx(value), name
    bireme.set_flags({"FLAGS_sort_sum_gradient": True})
    try:
        assert bireme.get_flags("FLAGS_sort_sum_gradient") == {"FLAGS_sort_sum_gradient": True}
    finally:
        bireme.set_flags(before)
    assert bireme.get_flags(names) == before


def test_except_clauses_for_either_of_paddles_classes():
    """Paddle checks arguments in Python (TypeError) or in C++ (ValueError)."""
    for expected in (TypeError, ValueError):
        with pytest.raises(expected, match=r"\[add\]"):
            bireme.add("a", bireme.ones([2]))
        with pytest.raises(expected, match=r"\[eye\]"):
            bireme.eye(-1)
