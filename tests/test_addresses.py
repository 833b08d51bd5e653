"""Inner addresses: public objects in the modules where Paddle has them."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pathlib
import pickle
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import bireme
from bireme import addresses, compat
from bireme.missing import MissingAttributeError, MissingModuleError


@pytest.fixture(autouse=True)
def _without_the_wheel(monkeypatch):
    """Another test in this process may have imported the real paddle."""
    for name in [m for m in sys.modules if m.partition(".")[0] == "paddle"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def alias():
    with compat.installed():
        yield importlib.import_module("paddle")


def test_every_kind_of_import_finds_the_public_object():
    from bireme.nn.functional.input import one_hot

    import bireme.nn.layer.common as common
    from bireme.nn.layer import Linear

    assert common.Linear is Linear is bireme.nn.Linear
    assert one_hot is bireme.nn.functional.one_hot
    assert bireme.tensor.linalg.matmul is bireme.matmul
    assert importlib.import_module("bireme.distribution.gumbel").Gumbel is (
        bireme.distribution.Gumbel
    )


def test_the_same_under_paddles_name(alias):
    import paddle.jit.api as api
    from paddle.base.framework import program_guard
    from paddle.nn.layer.rnn import LSTM, RNNCellBase

    assert api.to_static is bireme.jit.to_static
    assert program_guard is bireme.static.program_guard
    assert (LSTM, RNNCellBase) == (bireme.nn.LSTM, bireme.nn.RNNCellBase)
    assert alias.base.is_compiled_with_cuda is bireme.device.is_compiled_with_cuda
    assert alias.tensor.math.add is alias.add is bireme.add


def test_a_chain_of_attributes_needs_no_import():
    program = (
        "import bireme\n"
        "assert bireme.nn.layer.common.Linear is bireme.nn.Linear\n"
        "assert bireme.base.dygraph.base.no_grad_ is bireme.no_grad\n"
        "assert bireme.hapi.model.Model is bireme.Model\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_object_under_another_name():
    from bireme.base import in_dygraph_mode
    from bireme.hapi.model import Input

    assert in_dygraph_mode is bireme.in_dynamic_mode
    assert Input is bireme.static.InputSpec


def test_inner_objects_are_found_where_paddle_has_them():
    from bireme.distributed.fleet.layers.mpu.mp_layers import ColumnParallelLinear
    from bireme.io.dataloader.collate import default_collate_fn
    from bireme.nn.functional.activation import in_dynamic_or_pir_mode

    assert ColumnParallelLinear is (
        bireme.distributed.fleet.meta_parallel.ColumnParallelLinear  # type: ignore[attr-defined]
    )
    assert default_collate_fn is importlib.import_module("bireme.io.collate").default_collate_fn
    assert in_dynamic_or_pir_mode is bireme.framework.in_dynamic_or_pir_mode


def test_a_modules_own_names_have_priority():
    core = importlib.import_module("bireme.base.core")
    assert "DataType" in addresses._book().names("base.core")
    assert core.DataType is vars(core)["DataType"]


@pytest.mark.parametrize(
    ("module", "function"),
    [
        ("tensor.einsum", "einsum"),
        ("batch", "batch"),
        ("distributed.spawn", "distributed.spawn"),
        ("vision.models.alexnet", "vision.models.alexnet"),
    ],
)
def test_a_function_hides_the_module_of_its_name(module, function):
    """As in Paddle: an import of the module must not put it in the function's place."""
    program = (
        "import importlib, sys, bireme\n"
        f"before = eval('bireme.{function}')\n"
        f"importlib.import_module('bireme.{module}')\n"
        f"assert 'bireme.{module}' in sys.modules\n"
        f"assert eval('bireme.{function}') is before and callable(before)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_no_inner_module_takes_the_place_of_a_name():
    """All parents and all of their modules in the table."""
    book = addresses._book()
    for parent, children in sorted(book.children.items()):
        try:
            owner = importlib.import_module(f"bireme.{parent}".rstrip("."))
        except ModuleNotFoundError:  # a public module that is not here
            continue
        for child in children:
            before = getattr(owner, child, None)
            try:
                importlib.import_module(f"{owner.__name__}.{child}")
            except ModuleNotFoundError:
                continue
            assert before is None or getattr(owner, child) is before


def test_missing_names_raise_with_the_nearest():
    from bireme.nn.layer import common

    with pytest.raises(MissingAttributeError, match=r"nearest: bireme\.nn\.layer\.common\.Linear"):
        common.Linearr
    with pytest.raises(MissingModuleError, match=r"adamw\.AdamV is not in Bireme; nearest"):
        from bireme.optimizer.adamw import AdamV  # noqa: F401
    with pytest.raises(MissingAttributeError, match=r"nearest: bireme\.metric\.Accuracy"):
        bireme.metric.Accurac  # type: ignore[attr-defined]
    assert not hasattr(common, "Linearr")
    assert not hasattr(common, "__wrapped__")


def test_missing_names_raise_with_the_nearest_under_paddles_name(alias):
    with pytest.raises(AttributeError, match=r"nearest: paddle\.nn\.layer\.common\.Linear"):
        alias.nn.layer.common.Linearr
    with pytest.raises(ImportError, match=r"nearest: paddle\.nn\.layer\.common\.Linear"):
        from paddle.nn.layer.common import Linearr  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match=r"paddle\.nn\.layerr is not in Bireme"):
        importlib.import_module("paddle.nn.layerr")


def test_nearest_names_are_not_looked_for_before_an_error_is_shown(monkeypatch):
    asked = []
    monkeypatch.setattr("bireme.missing._nearest", lambda *a: asked.append(a) or "")
    layer = importlib.import_module("bireme.nn.layer")
    assert not hasattr(layer, "no_such_thing")
    assert not hasattr(bireme, "no_such_thing")
    assert not asked
    with pytest.raises(AttributeError) as caught:
        layer.no_such_thing
    assert str(caught.value) == "bireme.nn.layer.no_such_thing is not in Bireme"
    assert asked


def test_errors_of_missing_names_can_be_sent():
    with pytest.raises(AttributeError) as caught:
        bireme.no_such_thing  # type: ignore[attr-defined]
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_public_modules_are_here_or_not():
    """A program that asks for one by importing it is told the truth."""
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("bireme.nn.attention")
    assert not hasattr(bireme.nn, "attention")


def test_inner_modules_can_be_inspected():
    module = importlib.import_module("bireme.nn.layer.common")
    inner = importlib.import_module("bireme.optimizer.fusion_utils")
    assert isinstance(inner, addresses.InnerModule)
    assert isinstance(inner, ModuleType)
    assert inner.__name__ == inner.__spec__.name == "bireme.optimizer.fusion_utils"
    assert not hasattr(inner, "__file__")
    assert (
        repr(inner) == "<module 'bireme.optimizer.fusion_utils' (names of Paddle's inner module)>"
    )
    assert list(pkgutil.iter_modules(inner.__path__)) == []
    assert pkgutil.resolve_name("bireme.nn.layer.common:Linear") is bireme.nn.Linear
    assert inspect.getmodule(module.Linear) is not None
    assert importlib.util.find_spec("bireme.optimizer.fusion_utils") is inner.__spec__


def test_an_inner_module_lists_what_it_has():
    module = importlib.import_module("bireme.distribution.gumbel")
    scope: dict[str, object] = {}
    exec("from bireme.distribution.gumbel import *", scope)
    assert "Gumbel" in module.__all__
    assert "Gumbel" in dir(module)
    assert scope["Gumbel"] is vars(module)["Gumbel"] is bireme.distribution.Gumbel
    assert all(hasattr(module, name) for name in module.__all__)


def test_classes_are_unpickled_by_paddles_inner_path(alias):
    text = b"cpaddle.nn.layer.common\nLinear\n."
    assert pickle.loads(text) is bireme.nn.Linear


def test_importing_bireme_does_not_read_the_table():
    program = (
        "import bireme\n"
        "from bireme import addresses\n"
        "assert addresses._book.cache_info().currsize == 0\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_almost_every_address_is_here():
    """Those whose public name is here: 99 of 100 are the public object itself."""
    book = addresses._book()
    wrong, right = [], 0
    for module in sorted({*book._lines} - {""}):
        for name, (owner, there) in book.names(module).items():
            try:
                wanted = getattr(addresses._owner(owner), there) if owner is not None else None
            except AttributeError:
                continue  # docs/not-provided.md
            if wanted is None:
                continue
            try:
                found = getattr(importlib.import_module(f"bireme.{module}"), name)
            except (ImportError, AttributeError):
                found = None
            right += found is wanted
            if found is not wanted:
                wrong.append(f"{module}.{name}")
    assert len(wrong) < 0.01 * right, wrong


@pytest.mark.slow
def test_the_table_is_what_the_wheel_gives(paddle):
    root = pathlib.Path(bireme.__file__).parents[1]
    made = subprocess.run(
        [sys.executable, str(root / "scripts" / "make_addresses.py"), "--check"], check=False
    )
    assert made.returncode == 0, "write it again: make addresses"
