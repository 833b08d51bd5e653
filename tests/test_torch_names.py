"""`import torch` as Bireme."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

import bireme
from bireme import compat
from bireme.core.errors import InvalidArgument
from bireme.torch_names import _finder


@pytest.fixture(autouse=True)
def _afterwards():
    blocked = set(_finder.blocked)
    yield
    _finder.blocked = blocked
    if _finder in sys.meta_path:
        bireme.disable_compat()


def test_torch_is_bireme_until_it_is_disabled(monkeypatch):
    theirs = ModuleType("torch")
    monkeypatch.setitem(sys.modules, "torch", theirs)
    bireme.enable_compat()
    import torch
    import torch.nn.functional as F

    assert torch.sin is bireme.sin
    assert torch.relu is bireme.nn.functional.relu
    assert F.softmax is bireme.nn.functional.softmax
    with pytest.raises(AttributeError, match=r"torch\.sine is not in Bireme"):
        _ = torch.sine
    with pytest.raises(compat.MissingModuleError, match=r"torch\.cudnn"):
        import torch.cudnn
    bireme.disable_compat()
    assert sys.modules["torch"] is theirs
    assert "torch.nn" not in sys.modules


def run_in(module: str, code: str) -> dict:
    names: dict = {"__name__": module}
    exec(code, names)
    return names


def test_only_in_some_modules(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setitem(sys.modules, "here", ModuleType("here"))
    bireme.enable_compat(scope="here", blocked_modules=["here.not"])
    with pytest.raises(ModuleNotFoundError):
        run_in("elsewhere", "import torch")
    with pytest.raises(ModuleNotFoundError):
        run_in("here.not.there", "import torch")
    assert run_in("here.inside", "import torch")["torch"].cos is bireme.cos


def test_what_is_warned_about():
    with pytest.warns(UserWarning, match="was not called"):
        bireme.disable_compat()
    bireme.enable_compat(scope="a")
    with pytest.warns(UserWarning, match=r"grows from \['a'\] by \['b'\]"):
        bireme.enable_compat(scope="b")
    assert _finder.scope == {"a", "b"}
    bireme.enable_compat(silent=True)
    assert _finder.scope is None
    with pytest.raises(InvalidArgument, match="backend"):
        bireme.enable_compat(backend="jax")


def test_parts_of_one_size(paddle):
    def parts(p, given, dim=0):
        x = p.reshape(p.arange(14), [7, 2])
        try:
            found = p.functional.split(x, given, dim)
        except Exception as e:
            return type(e)
        return [t.tolist() for t in found]

    for given in (1, 3, 7, 10, [3, 4], (1, 6), [3, 3], [8, -1]):
        ours, theirs = parts(bireme, given), parts(paddle, given)
        if isinstance(theirs, type):
            assert issubclass(ours, theirs), given
        else:
            assert ours == theirs, given
    assert parts(bireme, 1, -1) == parts(paddle, 1, -1)
    assert bireme.functional.split(bireme.zeros([0, 2]), 3) == ()
    for given, error in ((0, ValueError), (2.5, TypeError)):
        with pytest.raises(error, match="split"):
            bireme.functional.split(bireme.ones([4]), given)
    with pytest.raises(TypeError, match=r"'tensor' must be a Tensor.*to_tensor"):
        bireme.functional.split([1, 2], 1)
    with pytest.raises(ValueError, match="dim must be in"):
        bireme.functional.split(bireme.ones([4]), 2, 1)


def test_other_addresses(paddle):
    for module in ("functional", "special", "random"):
        for name in getattr(paddle, module).__all__:
            assert callable(getattr(getattr(bireme, module), name)), name
    bireme.seed(77)
    assert bireme.random.initial_seed() == 77
    assert bireme.special.expm1 is bireme.expm1


def test_layers_have_pytorchs_names_too(paddle):
    """Those that the wheel has, and for the same layers."""
    found = {
        name: kind.__name__
        for name, kind in vars(paddle.nn).items()
        if isinstance(kind, type) and issubclass(kind, paddle.nn.Layer) and kind.__name__ != name
    }
    assert found["HuberLoss"] == "SmoothL1Loss"
    wrong = [
        n for n, known in found.items() if getattr(bireme.nn, n) is not getattr(bireme.nn, known)
    ]
    assert wrong == []


def test_a_window_of_something_else_than_points_says_so():
    with pytest.raises(TypeError, match=r"a number of points\. Received: '4'"):
        bireme.hann_window("4")
