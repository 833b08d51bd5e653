"""A function is defined in one place: what its record makes of it."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import pathlib
import textwrap
import traceback
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import bireme
from bireme.api import public
from bireme.core.op import OPS, op
from bireme.host.signatures import LazySignature
from tests.parity.rows_from_functions import calls
from tests.parity.table import T

ROOT = pathlib.Path(__file__).parents[2]
SPACE = "paddle.test"


@pytest.fixture(scope="module")
def stubs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_stubs", ROOT / "scripts" / "make_stubs.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.fixture
def doubled_sum() -> Iterator[Callable[..., Any]]:
    """A new op, all of it."""

    @public.public(
        spaces=(SPACE,),
        also={"input": "x", "other": "y"},
        out=True,
        method=True,
        inplace=True,
        sample=[((3, 4), (4,)), ((2,), 3.0, {"name": None})],
    )
    @op(promote="binary", infer="elementwise")
    def doubled_sum(xp, x, y):
        """2 * (x + y)."""
        return 2 * (x + y)

    yield doubled_sum
    del public.RECORDS[SPACE], public._BY_FUNCTION[doubled_sum], OPS["doubled_sum"]


def test_one_definition_is_all(doubled_sum: Callable[..., Any], stubs: ModuleType) -> None:
    made = public.functions(SPACE)
    assert sorted(made) == ["doubled_sum", "doubled_sum_"]
    function, x = made["doubled_sum"], bireme.to_tensor([1.0, 2.0])
    assert function(x, 1).tolist() == [4.0, 6.0]
    assert function(input=x, other=x).tolist() == [4.0, 8.0]
    with pytest.raises(TypeError, match="'input' is another name for 'x'"):
        function(x=x, y=x, input=x)
    out = bireme.zeros([1])
    assert function(x, x, out=out) is out
    assert out.tolist() == [4.0, 8.0]

    method = public.methods()["doubled_sum"]
    assert method(x, other=x).tolist() == [4.0, 8.0]
    changed = x.clone()
    assert public.methods()["doubled_sum_"](changed, 1) is changed
    assert made["doubled_sum_"](changed, 0).tolist() == [8.0, 12.0]
    assert changed.tolist() == [8.0, 12.0]

    line = stubs.function_stub("doubled_sum", function)
    assert line.startswith("def doubled_sum(x: Tensor, y: Operand, name: ")
    assert line.endswith("*, out: Tensor | None = None) -> Tensor: ...")

    (record,) = public.RECORDS[SPACE].values()
    assert list(calls(record)) == [
        ("test.doubled_sum", [T(3, 4), T(4)], {}),
        ("test.doubled_sum", [T(2), 3.0], {"name": None}),
    ]
    assert "return 2 * (x + y)" in inspect.getsource(function)
    assert inspect.getdoc(function) == "2 * (x + y)."


def test_another_name_has_the_options_of_the_first(doubled_sum: Callable[..., Any]) -> None:
    public.another_name("twice", doubled_sum, inplace=False, also={})
    made = public.functions(SPACE)
    assert sorted(made) == ["doubled_sum", "doubled_sum_", "twice"]
    x = bireme.ones([2])
    assert made["twice"](x, x, out=bireme.zeros([2])).tolist() == [4.0, 4.0]
    with pytest.raises(TypeError):
        made["twice"](input=x, other=x)
    with pytest.raises(ImportError, match=r"paddle\.test\.twice is defined twice"):
        public.another_name("twice", doubled_sum)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match=r"does not take \['inplaced'\]"):
        public.public(inplaced=True)(len)  # type: ignore[call-overload]


def test_constructors_take_second_names() -> None:
    assert repr(bireme.nn.CosineSimilarity(dim=0)) == repr(bireme.nn.CosineSimilarity(0))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^\[CosineSimilarity\] 'dim' is another name for 'axis'"):
        bireme.nn.CosineSimilarity(axis=1, dim=1)  # type: ignore[call-arg]
    with pytest.raises(
        TypeError, match=r"^\[CosineSimilarity\] got an unexpected keyword argument 'dims'"
    ):
        bireme.nn.CosineSimilarity(dims=1)  # type: ignore[call-arg]


def _everything() -> list[tuple[str, public.Public]]:
    return [
        (f"{space}.{record.name}", record)
        for space in list(public.RECORDS)
        for record in public.every(space)
    ]


def test_every_second_name_is_that_of_a_parameter() -> None:
    for name, record in _everything():
        own = set(inspect.signature(record.function).parameters)
        assert set(record.also.values()) <= own, name
        assert own.isdisjoint(record.also), name
        assert set(record.implies) <= set(record.also), name
        assert not (record.out and "out" in own), name


def test_every_function_shows_its_definition() -> None:
    made = _everything()
    assert len(made) > 600
    for name, record in made:
        for function in (record.as_function(), record.as_method()):
            definition = inspect.unwrap(function)
            source = inspect.getsource(function)
            file = pathlib.Path(inspect.getsourcefile(definition) or "")
            assert file.parent.name in ("ops", "core"), name
            (node,) = ast.parse(textwrap.dedent(source)).body
            assert isinstance(node, ast.FunctionDef), name
            assert inspect.getdoc(function), name
            names = list(inspect.signature(function).parameters)
            assert "xp" not in names, name
            inside = [a.arg for a in (*node.args.posonlyargs, *node.args.args) if a.arg != "xp"]
            assert [n for n in names if n in inside] == inside, name


@pytest.mark.parametrize("name", ["exp", "add", "matmul", "add_", "sum", "gammaln", "tril"])
def test_getsource_shows_the_op(name: str) -> None:
    function = getattr(bireme, name, None) or getattr(bireme.Tensor, name)
    definition = inspect.unwrap(function)
    assert inspect.getsource(function) == inspect.getsource(definition)
    assert f"def {definition.__name__}(" in inspect.getsource(function)


def test_tracebacks_show_generated_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIREME_FULL_TRACEBACK", "1")
    with pytest.raises(TypeError) as caught:
        bireme.nn.functional.relu("x")  # type: ignore[arg-type]
    shown = "".join(traceback.format_exception(caught.value))
    assert "return _invoke(_op, (x, ), ())" in shown


def test_a_lazy_signature_is_a_signature() -> None:
    made: list[inspect.Signature] = []

    def make() -> inspect.Signature:
        made.append(inspect.signature(lambda x, y=1, *, z: None))
        return made[-1]

    lazy = LazySignature.of(make)
    assert not made
    assert str(lazy) == "(x, y=1, *, z)"
    assert lazy == make()
    assert lazy.bind(1, z=2).arguments == {"x": 1, "z": 2}
    assert str(lazy.replace(parameters=list(lazy.parameters.values())[:1])) == "(x)"
    assert len(made) == 2
    with pytest.raises(AttributeError, match="nonsense"):
        lazy.nonsense  # type: ignore[attr-defined]


def test_methods_answer_as_functions() -> None:
    x = np.linspace(0.1, 0.9, 5, dtype=np.float32)
    for name, record in _everything():
        if record.sample and record.is_method and record.inplace:
            t = bireme.to_tensor(x)
            want = record.as_function()(t).numpy()
            np.testing.assert_array_equal(getattr(t, record.name)().numpy(), want, err_msg=name)
