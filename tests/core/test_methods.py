"""Operators, methods, in-place forms and second keywords of Tensor, compared with Paddle."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import pathlib
from typing import Any

import numpy as np
import pytest

import bireme
from bireme.api import public

OPERATIONS = [
    "x+y", "x+1", "1+x", "x-y", "1-x", "x*y", "2*x", "x/y", "2/x", "x//2", "7//i", "i//2", "x%2",
    "7%i", "x**2", "2**x", "x**y", "i**2", "i/2", "2/i", "i*1.5", "b*2", "b+1.5", "x+1j", "i+True",
    "-x", "+x", "abs(-x)", "~b", "~i", "b&b", "b|b", "b^b", "1&i", "i<<1", "1<<i", "i>>1", "8>>i",
    "x>1", "1>x", "x>=y", "x<y", "x<=2", "x==y", "x!=y", "x==2", "x@x", "x@m", "m.T@x",
    "x+np.array([1.,2.,3.],'float32')", "np.array([1.,2.,3.],'float32')-x", "np.float32(2)*x",
    "x*np.float64(2)", "x.__div__(2)", "x.__rdiv__(2)", "x.to('float64')", "x.to('cpu')",
    "x.to(dtype='int32')", "x.to(i)", "x.to('cpu','float16')", "x.astype('int32')", "x.double()",
    "x.half()", "x.long()", "x.int()", "x.bool()", "x.byte()", "x.short()", "x.char()",
    "x.cfloat()", "x.type_as(i)", "x.numel()", "x.clone()", "x.new_zeros([2])",
    "x.new_full([2],3)", "x.new_ones(2,3)", "x.copy_(y)", "i.fill_(2.7)", "x.fill_(3)",
    "x.zero_()", "x.exp_()", "x.add_(y)", "x.subtract_(y)", "x.scale_(2.,1.)", "x.clip_(1.5,2.)",
    "x.sqrt_()", "x.pow_(2)", "x.tanh_()", "x.equal_(y)", "x.divide_(y)", "i.divide_(i)",
    "x.add_(y.astype('float64'))", "x.reshape_([3,1])", "x.unsqueeze_(0)", "m.t_()",
    "m.flatten_()", "x.cast_('int32')", "x.set_(m)", "p.sqrt(x.abs_())", "m.transpose_([1,0])",
    "x.lerp_(y,p.to_tensor(0.5))", "x.apply(lambda t:t*2)", "x.apply_(lambda t:t*2)",
]  # fmt: skip


def _evaluate(module: Any, expression: str) -> Any:
    scope = {
        "p": module, "np": np,
        "x": module.to_tensor(np.array([1, 2, 3], "float32")),
        "y": module.to_tensor(np.array([3, 2, 1], "float32")),
        "i": module.to_tensor(np.array([1, 2, 3])),
        "b": module.to_tensor(np.array([True, False, True])),
        "m": module.to_tensor(np.arange(6, dtype="float32").reshape(3, 2)),
    }  # fmt: skip
    return eval(expression, scope)


@pytest.mark.parametrize("expression", OPERATIONS)
def test_as_in_paddle(paddle: Any, expression: str) -> None:
    want, got = (_evaluate(module, expression) for module in (paddle, bireme))
    assert isinstance(got, bireme.Tensor)
    assert str(got.dtype).split(".")[-1] == str(want.dtype).split(".")[-1]
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)


class Foreign:
    def __radd__(self, other: Any) -> str:
        return "radd"

    def __rmatmul__(self, other: Any) -> str:
        return "rmatmul"


def test_foreign_operands_get_their_turn() -> None:
    x = bireme.ones([2])
    assert x + Foreign() == "radd"
    assert (x == None) is False  # noqa: E711 (the comparison is what is tested)
    assert (x != None) is True  # noqa: E711
    with pytest.raises(TypeError):
        x + None
    with pytest.raises(TypeError):
        x + [1, 2]  # noqa: RUF005


def test_operators_are_the_generated_functions() -> None:
    """No wrapper: one Python frame from `x + y` to the recorder."""
    for operator, name in ((bireme.Tensor.__add__, "add"), (bireme.Tensor.__eq__, "equal")):
        assert operator.__code__.co_filename.startswith("<bireme op>")
        assert operator.__globals__["_op"].name == name


def test_iteration() -> None:
    x = bireme.to_tensor([[1.0, 2.0], [3.0, 4.0]])
    assert [row.tolist() for row in x] == [[1.0, 2.0], [3.0, 4.0]]
    assert 3 in x
    assert 9 not in x
    with pytest.raises(TypeError, match="0-d"):
        iter(bireme.to_tensor(1.0))


def test_paddle_methods_are_there(paddle: Any) -> None:
    functions = {n for n in dir(paddle) if inspect.isfunction(getattr(paddle, n, None))}
    wanted = {n for n in dir(paddle.Tensor) if n in functions and not n.startswith("_")}
    have = {n for n in wanted if n in vars(bireme) and n not in bireme._LAZY_NAMES}
    missing = sorted(n for n in have if not hasattr(bireme.Tensor, n))
    assert not missing
    refused = {r.name for r in public.every("paddle") if not r.is_method}
    extra = sorted(
        n for n in refused if hasattr(paddle.Tensor, n) and not hasattr(bireme.Tensor, n)
    )
    assert not extra


def test_in_place_signature_is_the_functions() -> None:
    assert inspect.signature(bireme.lerp) == inspect.signature(bireme.Tensor.lerp_)


def test_second_keywords(paddle: Any) -> None:
    calls = [
        "p.add(input=x, other=y)", "p.sum(input=m, dim=0)", "m.sum(dim=1)", "m.mean(dim=0)",
        "p.concat(tensors=[x, y], dim=0)", "p.expand(x, size=[2, 3])", "m.flatten(start_dim=0)",
        "p.unsqueeze(input=x, dim=0)", "x.pow(exponent=2)", "x.mul_(other=y)",
        "p.take_along_axis(m, dim=0, indices=i.reshape([3,1])*0)",
    ]  # fmt: skip
    for call in calls:
        want, got = (_evaluate(module, call).numpy() for module in (paddle, bireme))
        np.testing.assert_array_equal(got, want)


def test_second_keywords_do_not_mix() -> None:
    x = bireme.ones([2])
    with pytest.raises(TypeError, match="'input' is another name for 'x'"):
        bireme.add(x=x, input=x, y=x)
    with pytest.raises(TypeError):
        bireme.add(x, nonsense=x)


def test_out_takes_the_result(paddle: Any) -> None:
    for module in (paddle, bireme):
        x = module.to_tensor([1.0, 2.0], stop_gradient=False)
        out = module.zeros([3], "float64")
        module.add(x, x, out=out)
        assert out.tolist() == [2.0, 4.0]
        out.sum().backward()
        assert x.grad.tolist() == [2.0, 2.0]


def test_the_shim_keeps_the_signature() -> None:
    assert list(inspect.signature(bireme.sum).parameters)[:2] == ["x", "axis"]
    assert bireme.cat is bireme.concat


def test_stubs_are_current() -> None:
    path = pathlib.Path(__file__).parents[2] / "scripts" / "make_stubs.py"
    spec = importlib.util.spec_from_file_location("make_stubs", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.main(check=True) == 0, "run python scripts/make_stubs.py"


def test_a_tensor_becomes_another(paddle):
    for module in (bireme, paddle):
        x = module.to_tensor([[1.0, 2.0]])
        y = module.to_tensor([3, 4, 5])
        assert x.reconstruct_from_(y) is None
        assert x.dtype == module.int64
        y[0] = 9
        x[1] = 7
        assert x.tolist() == y.tolist() == [9, 7, 5]
        with pytest.raises(ValueError):
            x.reconstruct_from_(3)
        assert x.num_shard is None
        assert x.get_selected_rows() is None


@pytest.mark.parametrize("whole", [False, True])
def test_deep_copies_begin_without_a_gradient(whole: bool, paddle: Any) -> None:
    for module in (bireme, paddle):
        model = module.nn.Linear(2, 2)
        model(module.ones([1, 2])).sum().backward()
        made = copy.deepcopy(model).weight if whole else copy.deepcopy(model.weight)
        assert model.weight.grad is not None
        assert made.grad is None
        assert not made.stop_gradient
        made.sum().backward()
        assert (made.grad.numpy() == 1).all()
