"""Index tensors, `x[...]` and `x[...] = v`, compared with Paddle call by call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme
from bireme.core import stats
from tests.ops.oracle import compare

# Every row is a program of its own; a user's loop would be told about that.
pytestmark = pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")

CALLS = [
    "P.gather(x,I(1))",
    "P.gather(x,I([1,1]))",
    "P.gather(x,I([[1,1]]))",
    "P.gather(x,I([1]),axis=1)",
    "P.gather(x,I([-1]))",
    "P.gather(x,I([7]))",
    "P.gather(x,I([1.0]))",
    "P.index_select(x,I([[1]]))",
    "P.index_select(x,I([1,0]),1)",
    "P.gather_nd(x,I([[1,2],[0,1]]))",
    "P.gather_nd(x,I([[1]]))",
    "P.gather_nd(x,I([1,1]))",
    "P.gather_nd(x,I([[-1]]))",
    "P.scatter(x,I([0,2]),P.ones([2,4]))",
    "P.scatter(x,I([0,0]),P.ones([2,4]),overwrite=False)",
    "P.scatter(x,I(1),P.ones([4]))",
    "P.scatter(x,I([[0],[1]]),P.ones([2,4]))",
    "P.scatter(x,I([0,2]),P.ones([4]))",
    "P.scatter_nd(I([[1],[1]]),P.ones([2,3]),[3,3])",
    "P.scatter_nd_add(x,I([[1],[1]]),P.ones([2,4]))",
    "P.index_sample(x,I([[0,1],[2,2],[3,0]]))",
    "P.index_add(x,I([0,0]),0,P.ones([2,4]))",
    "P.index_add(x,I([0,0]),1,P.ones([3,2]),alpha=2)",
    "P.index_put(x,(I([0,1]),I([1,2])),I([9.,9.]))",
    "P.index_put(x,(I([0,0]),I([1,1])),I(1.),True)",
    "P.index_put(x,(x>5,),I(0.))",
    "P.index_fill(x,I([0,2]),0,7)",
    "P.index_fill(x,I([0,2]),1,I(7.))",
    "P.take_along_axis(x,I([[0,1,2,0]]),0)",
    "P.take_along_axis(x,I([[0]]),1)",
    "P.take_along_axis(x,I([[0,1]]),0,broadcast=False)",
    "P.take_along_axis(x,I([0]),0)",
    "P.take_along_axis(x,I([[-1]]),1)",
    "P.put_along_axis(x,I([[0]]),99.,1)",
    "P.put_along_axis(x,I([[0,1,2,0]]),I([[1.]]),0)",
    'P.put_along_axis(x,I([[0,0]]),I([[1.,2.]]),1,"add",broadcast=False)',
    'P.put_along_axis(x,I([[0,0],[1,1],[2,2]]),2.,1,"add")',
    'P.put_along_axis(x,I([[0,0],[1,1],[2,2]]),2.,1,"add",include_self=False)',
    'P.put_along_axis(x,I([[0,0],[1,1],[2,2]]),2.,1,"mean")',
    'P.put_along_axis(x,I([[0,0],[1,1],[2,2]]),2.,1,"mean",include_self=False)',
    'P.put_along_axis(x,I([[0,0],[1,1],[2,2]]),2.,1,"amin")',
    'P.put_along_axis(x,I([[0,0],[1,1],[2,2]]),2.,1,"amax",include_self=False)',
    'P.put_along_axis(x,I([[0]]),1.,1,"foo")',
    "P.scatter_add(x,1,I([[0,1]]),P.ones([1,2]))",
    'P.scatter_reduce(x,1,I([[0,0]]),P.ones([1,2]),"sum")',
    'P.scatter_reduce(x,1,I([[0,0]]),P.ones([1,2])*3,"mean")',
    'P.scatter_reduce(x,1,I([[0,0]]),P.ones([1,2])*3,"amax")',
    "P.take(x,I([0,5,-1]))",
    "P.take(x,I([0,50]))",
    'P.take(x,I([[0,50]]),mode="wrap")',
    'P.take(x,I([-3,50]),mode="clip")',
    "P.masked_fill(x,x>5,0.)",
    "P.masked_fill(x,I([True,False,False,True]),I(0.))",
    "P.masked_fill(x[0],x>5,0.)",
    "P.masked_scatter(x,x>8,I([1.,2.,3.,4.]))",
    "P.masked_scatter(x,I([True,False,False,True]),P.ones([12]))",
    "P.shape(x)",
    "P.take_along_dim(x,I([[0]]),1)",
    "P.diagonal_scatter(x,P.ones([3]))",
    "P.index_fill(x,I([0]),0,I([7.]))",
]


@pytest.mark.parametrize("call", CALLS)
def test_as_in_paddle(paddle: Any, tier: str, call: str) -> None:
    compare(paddle, call)


INDICES = [
    "0",
    "1",
    "-1",
    "0,3",
    "0,3,1",
    "0,3,1,2",
    "5:",
    "::-1",
    "::-2,1:",
    "1,::-2,1:,::2",
    ":,None",
    "...,None,0",
    "None,...,1:3",
    ":,1:3",
    ":,1:3,1:2",
    "0,1:4,0",
    ":,2,None",
    ":,-2",
    ":,2,:,1:2",
    "True",
    "False",
    "[True,False]",
    "I([True,False])",
    "I([[True,False,True,False,True]]*2)",
    ":,I([True,False,True,False,True])",
    "[0,1]",
    "[[0,1],[1,0]]",
    "np.array([1,0])",
    "I([1,0])",
    "I([1,0]),I([1,0])",
    "I([1,0]),:,I([1,0])",
    "0,:,I([1,0])",
    ":,0,[1,0]",
    "[0,1],0,:",
    "I(1)",
    ":,I(2)",
    "I(1),1:3",
    ":,I(-2)",
    "I([[0],[1]]),[0,1,2]",
    "I([-1])",
    "[]",
    "0:0",
    ":,3:3",
    'I([0,1],dtype="int32")',
    "()",
    "1,...,::2",
    "[[0]],[1]",
    "[True,False],[0,1]",
    ":,[0,4],1:3",
    "1:2,[0,4],1",
    "-5:5:2",
    "range(2)",
    ":,4:0:-1",
    ":,4:1:-2,::3",
    "...",
    ":,:,I([0,2]),I([1,1])",
    ":,:,I([0,2,0])",
    "0,3,I([0,2,2])",
]


def _get(module: Any, index: str) -> tuple[np.ndarray, np.ndarray]:
    x = module.to_tensor(np.arange(120, dtype="float32").reshape(2, 5, 3, 4))
    x.stop_gradient = False
    y = eval(f"x[{index}]", {"x": x, "I": module.to_tensor, "np": np})
    weight = np.linspace(1, 2, int(np.prod(y.shape))).astype("float32").reshape(y.shape)
    y.backward(module.to_tensor(weight))
    return y.numpy(), x.grad.numpy()


@pytest.mark.parametrize("index", INDICES)
def test_getitem(paddle: Any, tier: str, index: str) -> None:
    want, want_grad = _get(paddle, index)
    got, grad = _get(bireme, index)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(grad, want_grad)


WRONG = ["x[2]", "x[-3]", "x[0,0,0]", "x[...,...]", "x[1.0]", "x['a']", "x[:, ::0]", "x[I([1.0])]",
         "x[I([True,False,True])]"]  # fmt: skip


@pytest.mark.parametrize("call", WRONG)
def test_wrong_indices(paddle: Any, call: str) -> None:
    for module in (paddle, bireme):
        x = module.to_tensor(np.ones((2, 3), "float32"))
        with pytest.raises((ValueError, IndexError)):
            eval(call, {"x": x, "I": module.to_tensor})


def test_out_of_range_lists_raise_at_once() -> None:
    x = bireme.ones([2, 3])
    with pytest.raises(IndexError, match=r"index 5 is out of range for dimension 0 of size 2"):
        x[[5]]
    with pytest.raises(IndexError, match=r"index 7 is out of range for dimension 1 of size 3"):
        x[:, 7]


ASSIGNMENTS = [
    "x[0]=1",
    "x[0]=1.5",
    "x[0]=True",
    "x[0]=I([1,2,3])",
    'x[0]=I([1.5,2,3],dtype="float64")',
    "x[0]=np.array([1.,2,3])",
    "x[:,0]=I([[9.]])",
    "x[0]=I([1.,2.])",
    "x[x>2]=0",
    "x[x>2]=I([1.,2.,3.])",
    "x[[0,1],[0,1]]=9",
    "x[[0,1]]=I([1.,2.,3.])",
    "x[I(1)]=5",
    "x[I([True,False])]=I([1.,1.,1.])",
    "x[None]=1",
    "x[...,1]=4",
    "x[::-1]=I([[1.,2,3],[4,5,6]])",
    "x[0,1]=I([5.])",
    "x[0]=I([[1.,2.,3.]])",
    "x[5]=1",
    'x[0]="a"',
    "x[I([True,False]),1:]=3",
    "x[True]=1",
    "x[0:2, [0,2]]=I([[1.,2.]])",
    "x[:]=x+1",
    "x[:,1:3]=7",
    "x[:,::2]=I([[1.,2.]])",
    "x[...]=3",
    "x[1,2]=I(4.)",
    "x[-1,-1]=0",
    "x[:,-2]=I([1.,2.])",
]


def _set(module: Any, statement: str) -> Any:
    a = module.to_tensor(np.arange(6, dtype="float32").reshape(2, 3), stop_gradient=False)
    v = module.to_tensor(np.float32(2), stop_gradient=False)
    x = a * 1
    scope = {"x": x, "I": lambda *p, **k: module.to_tensor(*p, **k) * v, "np": np}
    if "bool" in statement or "True" in statement or "dtype" in statement or "I(1)]" in statement:
        scope["I"] = module.to_tensor
    exec(statement, scope)
    (x * x).sum().backward()
    return x.numpy(), a.grad.numpy(), None if v.grad is None else v.grad.numpy()


@pytest.mark.parametrize("statement", ASSIGNMENTS)
def test_setitem(paddle: Any, tier: str, statement: str) -> None:
    try:
        want = _set(paddle, statement)
    except (ValueError, IndexError, TypeError) as e:
        with pytest.raises(type(e)):
            _set(bireme, statement)
        return
    for got, expected in zip(_set(bireme, statement), want, strict=True):
        if expected is None:
            assert got is None
        else:
            np.testing.assert_allclose(got, expected)


def test_mask_assignment_reaches_a_broadcast_value(tier: str) -> None:
    """Paddle's gradient of `v` is 0 here; this is the right one."""
    x = bireme.to_tensor([1.0, 2.0, 3.0]) * 1
    v = bireme.to_tensor(5.0, stop_gradient=False)
    x[x > 1] = v
    (x * x).sum().backward()
    assert v.grad.item() == 20.0


def test_mask_assignment_of_a_number_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from bireme.core import trace

    x = bireme.to_tensor([1.0, 2.0, 3.0]) + 1
    mask = x > 2
    monkeypatch.setattr(trace, "materialize", pytest.fail)
    x[mask] = 0.0
    monkeypatch.undo()
    assert x.tolist() == [2.0, 0.0, 0.0]


@pytest.mark.parametrize(("dtype", "value"), [("int64", 1.7), ("bool", 2), ("float16", 3)])
def test_setitem_casts_the_value(paddle: Any, dtype: str, value: float) -> None:
    results = []
    for module in (paddle, bireme):
        x = module.zeros([2, 2], dtype)
        x[0] = value
        results.append(x.numpy())
    np.testing.assert_array_equal(*results)


def test_a_changing_position_compiles_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from bireme.core import trace
    from bireme.host import config

    x = bireme.to_tensor(np.arange(40, dtype="float32").reshape(20, 2))
    x.sum().item()
    monkeypatch.setattr(config, "compile_mode", "sync")
    trace.flush()

    def row(i: int) -> float:
        return float((x[i] * x[i : i + 2].sum() + 1).sum() * 2 - 1)

    for i in range(1, 5):
        row(i)
    before = stats.compile_count()
    for i in range(5, 15):
        row(i)
    assert stats.compile_count() == before


def test_the_index_is_not_frozen() -> None:
    x = bireme.to_tensor(np.arange(10, dtype="float32"))
    assert [float(x[i]) for i in range(10)] == list(range(10))
    assert [x[i : i + 2].tolist() for i in range(9)] == [[i, i + 1.0] for i in range(9)]


_ONES = 600  # added one by one, bfloat16 ones end at 256


def _sum_by_put(x: Any, zeros: Any, index: Any) -> Any:
    return bireme.put_along_axis(zeros, index.unsqueeze(1), x, 0, "add")


def _mean_by_put(x: Any, zeros: Any, index: Any) -> Any:
    mean = bireme.put_along_axis(zeros, index.unsqueeze(1), x, 0, "mean", include_self=False)
    return mean * _ONES


@pytest.mark.parametrize(
    "added",
    [
        lambda x, zeros, index: bireme.index_add(zeros, index, 0, x),
        lambda x, zeros, index: bireme.scatter_nd_add(zeros, index.unsqueeze(1), x),
        lambda x, zeros, index: bireme.geometric.segment_sum(x, index),
        lambda x, zeros, index: bireme.incubate.segment_sum(x, index),
        _sum_by_put,
        _mean_by_put,
        lambda x, zeros, index: _gradient(zeros, lambda z: z[index]),
        lambda x, zeros, index: _gradient(zeros, lambda z: bireme.gather(z, index)),
        lambda x, zeros, index: _gradient(zeros, lambda z: bireme.index_select(z, index)),
        lambda x, zeros, index: _gradient(
            zeros, lambda z: bireme.nn.functional.embedding(index, z)
        ),
        lambda x, zeros, index: _gradient(zeros, lambda z: z.as_strided([_ONES, 1], [0, 1])),
        lambda x, zeros, index: _gradient(
            zeros, lambda z: z.repeat_interleave(index[:1] + _ONES, 0)
        ),
    ],
)
def test_half_precision_adds_up_in_float32(added: Any, tier: str) -> None:
    x = bireme.ones([_ONES, 1], dtype="bfloat16")
    zeros = bireme.zeros([1, 1], dtype="bfloat16")
    out = added(x, zeros, bireme.zeros([_ONES], dtype="int64"))
    assert out.dtype == bireme.bfloat16
    assert out.flatten()[0].item() == _ONES


def _gradient(zeros: Any, function: Any) -> Any:
    zeros.stop_gradient = False
    function(zeros)[:_ONES].sum().backward()
    return zeros.grad
