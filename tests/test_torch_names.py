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
