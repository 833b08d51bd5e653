"""Views and in-place writes: the same scenario in Paddle and here, errors included.

In Paddle a view shares contents with its base but not history: only the tensor that is written
to gets the write's gradient.
"""

from __future__ import annotations

import gc
import inspect
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bireme
from bireme.core import trace

Scenario = Callable[[Any], Any]
SCENARIOS: list[Scenario] = []


def scenario(function: Scenario) -> Scenario:
    SCENARIOS.append(function)
    return function


def leaf(p: Any) -> Any:
    return p.to_tensor([[1.0, 2.0], [3.0, 4.0]], stop_gradient=False)


def number(p: Any, value: float) -> Any:
    return p.to_tensor(value)


@scenario
def write_to_a_slice_then_use_the_base(p):
    a = leaf(p)
    x = a * 1
    y = x[0]
    y.multiply_(number(p, 2.0))
    x.sum().backward()
    return x.tolist(), a.grad.tolist()


@scenario
def write_to_the_base_then_use_the_slice(p):
    a = leaf(p)
    x = a * 1
    y = x[0]
    x.multiply_(number(p, 2.0))
    y.sum().backward()
    return y.tolist(), a.grad.tolist()


@scenario
def write_to_a_slice_then_use_it(p):
    a = leaf(p)
    x = a * 1
    y = x[0]
    y.multiply_(number(p, 2.0))
    y.sum().backward()
    return y.tolist(), a.grad.tolist()


@scenario
def siblings_follow(p):
    a = leaf(p)
    x = a * 1
    y = x[0]
    z = x[:, 0]
    y.multiply_(number(p, 2.0))
    z.sum().backward()
    return z.tolist(), a.grad.tolist()


@scenario
def slice_of_a_leaf_can_be_written(p):
    a = leaf(p)
    y = a[0]
    y.multiply_(number(p, 2.0))
    return a.tolist()


@scenario
def detached_leaf_shares(p):
    a = leaf(p)
    y = a.detach()
    y.multiply_(number(p, 2.0))
    a.sum().backward()
    return a.tolist(), a.grad.tolist()


@scenario
def detached_result_shares(p):
    a = leaf(p)
    x = a * a
    y = x.detach()
    y.multiply_(number(p, 2.0))
    x.sum().backward()
    return x.tolist(), a.grad.tolist()


@scenario
def write_through_detach_spoils_saved(p):
    a = leaf(p)
    x = a * 1
    y = x * x
    d = x.detach()
    d.zero_()
    y.sum().backward()
    return y.tolist(), a.grad.tolist()


@scenario
def write_spoils_saved(p):
    a = leaf(p)
    x = a * 1
    y = x * x
    x.add_(number(p, 1.0))
    y.sum().backward()
    return a.grad.tolist()


@scenario
def write_to_a_view_spoils_saved(p):
    a = leaf(p)
    x = a * 1
    y = x * x
    v = x[0]
    v.add_(number(p, 1.0))
    y.sum().backward()
    return a.grad.tolist()


@scenario
def slice_of_a_leaf_under_no_grad(p):
    a = leaf(p)
    with p.no_grad():
        a[0].add_(number(p, 1.0))
    (a * a).sum().backward()
    return a.tolist(), a.grad.tolist()


@scenario
def leaf_cannot_change(p):
    a = leaf(p)
    a.add_(number(p, 1.0))


@scenario
def leaf_cannot_be_assigned_to(p):
    a = leaf(p)
    a[0] = 5.0
    return a.tolist()


@scenario
def assignment_has_gradients_for_both(p):
    a = leaf(p)
    x = a * 1
    v = p.to_tensor([7.0, 8.0], stop_gradient=False)
    x[0] = v * 2
    (x * x).sum().backward()
    return x.tolist(), a.grad.tolist(), v.grad.tolist()


@scenario
def assignment_starts_history(p):
    x = p.ones([2, 2])
    v = p.to_tensor([7.0, 8.0], stop_gradient=False)
    x[0] = v
    (x * x).sum().backward()
    return x.stop_gradient, x.tolist(), v.grad.tolist()


@scenario
def assignment_to_a_view_starts_its_history_only(p):
    x = p.ones([2, 2])
    y = x[0]
    v = p.to_tensor([7.0, 8.0], stop_gradient=False)
    y[:] = v
    return x.stop_gradient, y.stop_gradient, x.tolist()


@scenario
def in_place_starts_history(p):
    x = p.ones([2, 2])
    v = p.to_tensor([7.0, 8.0], stop_gradient=False)
    x.add_(v)
    return x.stop_gradient


@scenario
def in_place_keeps_the_shape(p):
    a = leaf(p)
    x = a * 1
    x.add_(p.ones([3, 2, 2]))


@scenario
def in_place_does_not_mix_kinds(p):
    x = p.ones([2, 2], "int32")
    x.add_(p.ones([2, 2]))
    return str(x.dtype).split(".")[-1].lower().split(":")[0]


@scenario
def augmented_assignment_rebinds(p):
    a = leaf(p)
    x = a * 1
    b = x
    x += 1
    return b is x, b.tolist()


@scenario
def augmented_assignment_of_a_leaf(p):
    a = leaf(p)
    a += 1
    return a.tolist()


@scenario
def no_grad_keeps_history(p):
    a = leaf(p)
    x = a * 1
    with p.no_grad():
        x.multiply_(number(p, 3.0))
    x.sum().backward()
    return x.tolist(), a.grad.tolist(), x.stop_gradient


@scenario
def write_to_a_view_spoils_what_it_saved(p):
    a = leaf(p)
    x = a * 1
    y = x[0]
    z = y * y
    y.multiply_(number(p, 2.0))
    z.sum().backward()
    return a.grad.tolist()


@scenario
def assignment_to_a_view_then_use_the_base(p):
    a = leaf(p)
    x = a * 1
    y = x[0]
    y[0] = 9.0
    x.sum().backward()
    return x.tolist(), a.grad.tolist()


@scenario
def assignment_cuts(p):
    a = leaf(p)
    x = a * 1
    x[0] = 9.0
    x.sum().backward()
    return x.tolist(), a.grad.tolist()


@scenario
def assignment_to_a_view_of_a_leaf(p):
    a = leaf(p)
    y = a[0]
    y[0] = 9.0
    return a.tolist(), y.tolist()


@scenario
def assignment_to_a_view_of_a_leaf_under_no_grad(p):
    a = leaf(p)
    y = a[0]
    with p.no_grad():
        y[0] = 9.0
    return a.tolist(), y.tolist()


@scenario
def t_in_place_leaves_views(p):
    x = p.ones([2, 3])
    y = x.t()
    x.t_()
    return x.shape, y.shape


@scenario
def unsqueeze_and_cast_in_place(p):
    x = p.ones([2, 3])
    x.unsqueeze_(0)
    x.cast_("int32")
    return x.shape, str(x.dtype).split(".")[-1].lower().split(":")[0]


@scenario
def reshape_in_place_has_a_gradient(p):
    a = leaf(p)
    x = a * 1
    x.reshape_([4])
    x.sum().backward()
    return a.grad.tolist()


@scenario
def reshape_in_place_of_a_leaf(p):
    a = leaf(p)
    a.reshape_([4])
    return a.shape


@scenario
def zero_of_a_leaf(p):
    a = leaf(p)
    a.zero_()
    return a.tolist(), a.stop_gradient


@scenario
def fill_of_a_leaf(p):
    a = leaf(p)
    a.fill_(3.0)
    return a.tolist(), a.stop_gradient


@scenario
def zero_has_a_zero_gradient(p):
    a = leaf(p)
    x = a * 1
    x.zero_()
    x.sum().backward()
    return a.grad.tolist()


@scenario
def set_value_reaches_views(p):
    a = leaf(p)
    a.set_value(p.ones([2, 2]))
    y = a.detach()
    a.set_value(p.zeros([2, 2]))
    return y.tolist()


@scenario
def stopped_stays_stopped(p):
    a = leaf(p)
    x = a * 1
    x.stop_gradient = True
    x.add_(number(p, 1.0))
    return x.stop_gradient


@scenario
def exp_in_place(p):
    a = leaf(p)
    x = a * 1
    x.exp_()
    x.sum().backward()
    return a.grad.tolist()


@scenario
def second_write_spoils_the_first(p):
    a = leaf(p)
    x = a * 1
    x.sqrt_()
    x.add_(number(p, 1.0))
    x.sum().backward()
    return a.grad.tolist()


@scenario
def data_shares(p):
    a = leaf(p)
    d = a.data
    d.zero_()
    return a.tolist()


@scenario
def write_to_one_sibling_spoils_the_other(p):
    a = leaf(p)
    x = a * 1
    y = x[0]
    z = x[1]
    w = y * z
    z.zero_()
    w.sum().backward()
    return a.grad.tolist()


@scenario
def stopped_view(p):
    a = leaf(p)
    x = a * 1
    y = x[0]
    y.stop_gradient = True
    y.add_(number(p, 1.0))
    x.sum().backward()
    return x.tolist(), a.grad.tolist()


@scenario
def view_of_a_constant_gets_history(p):
    b = leaf(p)
    x = p.zeros([2, 2])
    y = x[0]
    y.add_(b[0])
    return x.tolist(), x.stop_gradient, y.stop_gradient


def _outcome(module: Any, function: Scenario) -> Any:
    try:
        return _plain(function(module))
    except (ValueError, TypeError, RuntimeError) as e:
        return type(e)


def _plain(result: Any) -> Any:
    """Lists of numbers, rounded; sizes and dtypes as plain values."""
    if isinstance(result, tuple | list):
        return [_plain(r) for r in result]
    if isinstance(result, float):
        return round(result, 3)
    return result if isinstance(result, int | bool | type(None)) else "other"


@pytest.mark.parametrize("function", SCENARIOS, ids=lambda f: f.__name__)
def test_as_in_paddle(paddle: Any, tier: str, function: Scenario) -> None:
    assert inspect.getdoc(function) is None  # the name says it
    mine, theirs = _outcome(bireme, function), _outcome(paddle, function)
    if isinstance(theirs, type):
        assert issubclass(mine, theirs)
    else:
        assert mine == theirs


VIEWS = [
    "x.reshape([6,4])", "x.transpose([2,1,0]).reshape([24])", "x.transpose([1,0,2])",
    "x.transpose([1,0,2]).reshape([3,2,2,2])", "x[:,1].reshape([2,2,2])", "x[:,1].flatten()",
    "x[:,1].unsqueeze(0)", "x[:,1:2].squeeze(1)", "x[0].reshape([12])", "x[::-1].flatten()",
    "x.transpose([1,0,2]).transpose([1,0,2]).reshape([24])", "x.transpose([1,0,2]).ravel()",
    "x.transpose([1,0,2]).view([3,2,2,2])", "x.transpose([1,0,2]).contiguous()",
    "x.transpose([1,0,2]).unsqueeze(0).squeeze(0)", "x.squeeze()", "x.unsqueeze(0)",
    "x.flatten()", "x.split(2,axis=2)[0]", "x.chunk(2,axis=2)[0]", "x.unbind(0)[0]",
    "p.unstack(x,0)[0]", "x.expand([2,3,4])", "x.expand_as(p.zeros([2,3,4]))",
    "x.broadcast_to([2,2,3,4])", "x.diagonal()", "p.moveaxis(x,0,1)", "x.swapaxes(0,1)", "x.T",
    "x.mT", "p.slice(x,[0],[0],[1])", "p.strided_slice(x,[0],[0],[1],[1])", "x.narrow(0,0,1)",
    "x.view([24])", "x.view_as(p.zeros([24]))", "x.as_strided([2,2],[1,1])", "x.unfold(0,1,1)",
    "x[0]", "x[:,1:2]", "x[:,::2]", "x[:,::-1]", "x[None]", "x[...]", "x[...,0]", "x[[0]]",
    "x[0,[0,1]]", "x[p.to_tensor(0)]", "x[0,1,2]", "x[x>3]", "x.detach()", "x.clone()",
    "x.astype('float32')", "x.cast('float32')", "x.contiguous()", "p.atleast_1d(x)",
    "x.tile([1])", "x.flip([0])", "x.ravel()", "x.unflatten(2,[2,2])", "x.tensor_split(2)[0]",
    "x.gather(p.to_tensor([0]))", "x.index_select(p.to_tensor([0]))", "p.crop(x,[1,3,4])",
    "p.assign(x)", "x.cpu()", "x.permute([1,0,2])", "+x", "x.data", "p.rot90(x,0)",
    "x.repeat_interleave(1,0)", "next(iter(x))",
]  # fmt: skip


def _shares(module: Any, expression: str) -> Any:
    x = module.to_tensor(np.arange(24, dtype="float32").reshape(2, 3, 4))
    y = eval(expression, {"x": x, "p": module})
    y.fill_(99.0)
    return x.numpy()


@pytest.mark.parametrize("expression", VIEWS)
def test_what_is_a_view(paddle: Any, expression: str) -> None:
    np.testing.assert_array_equal(_shares(bireme, expression), _shares(paddle, expression))


def test_a_view_that_would_need_a_copy_is_refused(paddle: Any) -> None:
    for module in (paddle, bireme):
        x = module.ones([2, 3, 4]).transpose([1, 0, 2])
        with pytest.raises(ValueError):
            x.view([24])


def test_strides(paddle: Any) -> None:
    for expression in ("x", "x.T", "x[0]", "x[:,1]", "x[::-1]", "x[:,::2].unsqueeze(0)"):
        scope = [{"x": module.ones([2, 3, 4])} for module in (paddle, bireme)]
        want, got = (eval(expression, s) for s in scope)
        assert list(got.strides) == list(want.strides)
        assert got.is_contiguous() == want.is_contiguous()


def test_offsets_and_shared_memory(paddle: Any) -> None:
    def told(p: Any) -> list[Any]:
        x = p.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        views = [x, x[1], x[1, 1], x[:, 1], x[1:].reshape([2]), x.detach()]
        shared = [a._is_shared_buffer_with(b) for a in views for b in (*views, x + 1)]
        return [[v.offset for v in views], shared]

    assert told(bireme) == told(paddle)


def test_chains_reach_the_root_and_back() -> None:
    x = bireme.zeros([2, 3, 4])
    deep = x[1].transpose([1, 0])[2:].reshape([2, 3])[:, 1]
    deep.fill_(7.0)
    want = np.zeros((2, 3, 4), "float32")
    want[1, 1, 2:] = 7
    np.testing.assert_array_equal(x.numpy(), want)
    x.fill_(5.0)
    assert deep.tolist() == [5.0, 5.0]


def test_siblings_stay_together_when_the_base_is_gone() -> None:
    x = bireme.zeros([2, 2]) + 1
    row, column = x[0], x[:, 0]
    del x
    row.fill_(4.0)
    assert column.tolist() == [4.0, 1.0]


def test_a_lone_view_does_not_keep_its_base() -> None:
    x = bireme.zeros([2, 2]) + 1
    value = weakref.ref(x)
    row = x[0]
    del x
    gc.collect()
    assert value() is None
    row.fill_(2.0)
    assert row.tolist() == [2.0, 2.0]


def test_dead_views_are_forgotten() -> None:
    x = bireme.zeros([4, 2])
    for _ in range(200):
        x[1]
    assert len(x._views) <= 2
    rows = [x[i % 4] for i in range(200)]
    assert len(x._views) <= 256
    x.fill_(3.0)
    assert all(r.tolist() == [3.0, 3.0] for r in rows)


def test_shape_changing_writes_keep_the_family() -> None:
    x = bireme.zeros([2, 3])
    row = x[0]
    x.reshape_([3, 2])
    x.fill_(1.0)
    assert row.tolist() == [1.0, 1.0, 1.0]
    row.fill_(2.0)
    assert x.tolist() == [[2.0, 2.0], [2.0, 1.0], [1.0, 1.0]]
    x.cast_("float64")
    row.fill_(9.0)
    assert x.tolist() == [[2.0, 2.0], [2.0, 1.0], [1.0, 1.0]]


def test_in_place_square_knows_what_it_replaced() -> None:
    """Paddle refuses; values are immutable here, so the right gradient is at hand."""
    a = leaf(bireme)
    x = a * 1
    x.multiply_(x)
    x.sum().backward()
    assert a.grad.tolist() == [[2.0, 4.0], [6.0, 8.0]]


def test_writes_work_across_flushes() -> None:
    x = bireme.zeros([3]) + 1
    part = x[1:]
    trace.flush()
    part.add_(bireme.to_tensor(1.0))
    trace.flush()
    x.add_(bireme.to_tensor(1.0))
    assert x.tolist() == [2.0, 3.0, 3.0]
    assert part.tolist() == [3.0, 3.0]
