"""A failed step leaves every tensor as it was before it, and training goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import nn
from bireme.core.errors import InvalidArgument, PositionOutOfRange
from bireme.host import config
from bireme.nn import functional as F
from tests.core.failing_steps import KINDS, MODES, leaves_all

# One for each way to fail: found on the host, found by the device, in the user's code, no memory.
_OFTEN = ("label too large", "label of the device's", "singular inverse", "custom op",
          "gradient hook", "out of memory")  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # a capture that fails says that it runs eagerly
@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_step_in_the_cold_tier(kind: str) -> None:
    assert leaves_all(kind, "cold") == ""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("kind", _OFTEN)
def test_a_failed_step_of_a_compiled_program(kind: str, mode: str) -> None:
    assert leaves_all(kind, mode) == ""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("kind", [k for k in KINDS if k not in _OFTEN])
def test_every_kind_of_failed_step(kind: str, mode: str) -> None:
    assert leaves_all(kind, mode) == ""


def _bad_label() -> Any:
    return F.cross_entropy(paddle.zeros([2, 3]), paddle.to_tensor([0, 7]))


def test_writes_of_the_user_stand_when_something_later_fails(tier: Any) -> None:
    count = paddle.zeros([])
    for _ in range(3):
        count.add_(1.0)
    bad = _bad_label()
    with pytest.raises(PositionOutOfRange):
        bad.item()
    assert count.item() == 3.0


def test_data_that_was_assigned_stands(tier: Any) -> None:
    layer = nn.Linear(2, 2)
    layer.weight.set_value(np.full((2, 2), 5.0, "float32"))
    optimizer = paddle.optimizer.SGD(0.1, parameters=layer.parameters())
    loss = layer(paddle.ones([1, 2])).sum() + _bad_label()
    loss.backward()
    optimizer.step()
    with pytest.raises(PositionOutOfRange):
        optimizer.clear_grad()
    np.testing.assert_array_equal(layer.weight.numpy(), 5.0)


def test_a_first_step_that_fails_leaves_fresh_parameters(tier: Any) -> None:
    layer = nn.Linear(2, 2)
    optimizer = paddle.optimizer.Adam(0.1, parameters=layer.parameters())
    loss = layer(paddle.ones([1, 2])).sum() + _bad_label()
    loss.backward()
    optimizer.step()
    with pytest.raises(PositionOutOfRange):
        optimizer.clear_grad()
    assert np.isfinite(layer.weight.numpy()).all()
    assert [k for k in optimizer.state_dict() if k != "LR_Scheduler"] == []


def test_gradients_of_steps_before_stay(tier: Any) -> None:
    layer = nn.Linear(2, 1, bias_attr=False)
    x = paddle.to_tensor([[1.0, 2.0]])
    layer(x).sum().backward()
    (layer(x).sum() + _bad_label()).backward()
    with pytest.raises(PositionOutOfRange):
        layer.weight.grad.numpy()
    np.testing.assert_array_equal(layer.weight.grad.numpy(), [[1.0], [2.0]])


def test_gradients_that_a_captured_function_leaves_are_taken_back(tier: Any) -> None:
    layer = nn.Linear(2, 3)
    x = paddle.ones([2, 2])

    @paddle.jit.to_static
    def backward(labels: Any) -> Any:
        loss = F.cross_entropy(layer(x), labels)
        loss.backward()
        return loss

    with pytest.raises(PositionOutOfRange):
        backward(paddle.to_tensor([0, 7])).item()
    assert layer.weight.grad is None
    for _ in range(3):
        backward(paddle.to_tensor([0, 1])).item()
    before = layer.weight.grad.numpy()
    with pytest.raises(PositionOutOfRange):
        backward(paddle.to_tensor([0, 7])).item()
    np.testing.assert_array_equal(layer.weight.grad.numpy(), before)


def test_what_does_not_depend_on_the_failure_can_be_read(tier: Any) -> None:
    good = paddle.ones([2]) * 3
    bad = _bad_label()
    with pytest.raises(PositionOutOfRange):
        bad.item()
    np.testing.assert_array_equal(good.numpy(), 3.0)
    with pytest.raises(PositionOutOfRange):
        bad.item()


def test_a_failed_trace_is_freed_at_once() -> None:
    import gc
    import weakref

    gc.collect()
    gc.disable()
    try:
        bad = _bad_label()
        trace = bad._value.trace
        leaf = weakref.ref(next(iter(trace.leaves)).buf)
        with pytest.raises(PositionOutOfRange):
            bad.item()
        del bad, trace
        assert leaf() is None
    finally:
        gc.enable()


def test_a_failed_run_of_a_static_program_leaves_the_scope(tier: Any) -> None:
    paddle.enable_static()
    try:
        main, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.static.program_guard(main, startup):
            x = paddle.static.data("x", [4, 3])
            y = paddle.static.data("y", [4], "int64")
            loss = F.cross_entropy(paddle.static.nn.fc(x, 3), y)
            paddle.optimizer.Adam(0.1).minimize(loss)
        exe, scope = paddle.static.Executor(), paddle.static.Scope()
        with paddle.static.scope_guard(scope):
            exe.run(startup)
            feed = {"x": np.ones((4, 3), "float32"), "y": np.array([0, 1, 2, 0])}
            for _ in range(3):
                exe.run(main, feed, [loss])
            names = [v.name for v in main.list_vars() if scope.find_var(v.name) is not None]
            before = {n: np.array(scope.find_var(n).get_tensor()) for n in names}
            with pytest.raises(PositionOutOfRange):
                exe.run(main, {**feed, "y": np.array([0, 1, 2, 9])}, [loss])
            after = {n: np.array(scope.find_var(n).get_tensor()) for n in names}
            assert {n: a.tobytes() for n, a in before.items()} == {
                n: a.tobytes() for n, a in after.items()
            }
            assert np.isfinite(exe.run(main, feed, [loss])[0]).all()
    finally:
        paddle.disable_static()


def test_no_requirement_costs_a_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels from the host are proved there: another batch of them runs the same program."""
    layer = nn.Linear(4, 3)
    optimizer = paddle.optimizer.SGD(0.1, parameters=layer.parameters())

    def step(labels: list[int]) -> float:
        loss = F.cross_entropy(layer(paddle.ones([2, 4])), paddle.to_tensor(labels))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return loss.item()

    monkeypatch.setattr(config, "compile_mode", "sync")
    with paddle.profiler.count_compiles() as compiled:
        for labels in ([0, 1], [1, 2], [2, -100], [0, 0], [1, 1], [2, 2], [0, 2]) * 3:
            step(labels)
    assert compiled == [1]


def _ctc(labels: list[list[int]], lengths: list[int]) -> Any:
    frames = paddle.to_tensor(np.random.default_rng(0).normal(size=(5, 1, 3)).astype("float32"))
    given = paddle.to_tensor(labels, "int32"), paddle.to_tensor([5]), paddle.to_tensor(lengths)
    return F.ctc_loss(frames, *given)


def _rnnt(labels: list[list[int]], lengths: list[int]) -> Any:
    given = [paddle.to_tensor(a, "int32") for a in (labels, [3], lengths)]
    return F.rnnt_loss(paddle.ones([1, 3, 2, 3]), *given)


def test_labels_behind_the_end_of_a_row_may_be_anything(tier: Any) -> None:
    for _ in range(3):
        assert _ctc([[1, 99]], [1]).item() == _ctc([[1, 0]], [1]).item()
        assert _rnnt([[-7]], [0]).item() == _rnnt([[0]], [0]).item()


@pytest.mark.filterwarnings("ignore:.*has now compiled")  # every row is another program
@pytest.mark.parametrize(
    "make",
    [
        lambda: paddle.linalg.inv(paddle.zeros([2, 2])),
        lambda: paddle.linalg.solve(paddle.zeros([2, 2]), paddle.ones([2, 1])),
        lambda: paddle.linalg.cholesky(-paddle.eye(2)),
        lambda: paddle.multinomial(paddle.to_tensor([0.5, -0.1])),
        lambda: paddle.multinomial(paddle.to_tensor([0.5, 0.0]), 2),
        lambda: paddle.bernoulli(paddle.to_tensor([2.0])),
        lambda: F.binary_cross_entropy(paddle.to_tensor([2.0]), paddle.ones([1])),
        lambda: F.one_hot(paddle.to_tensor([3]), 3),
        lambda: F.multi_margin_loss(paddle.ones([1, 3]), paddle.to_tensor([3])),
        lambda: F.embedding(paddle.to_tensor([-1]), paddle.ones([2, 2])),
        lambda: _ctc([[1, 3]], [2]),
        lambda: _ctc([[-1, 1]], [2]),
        lambda: _ctc([[1, 2]], [3]),
        lambda: _rnnt([[3]], [1]),
        lambda: _rnnt([[2]], [2]),
        lambda: F.hsigmoid_loss(
            paddle.ones([1, 3]), paddle.to_tensor([[4]]), 4, paddle.ones([3, 3])
        ),
        lambda: F.margin_cross_entropy(paddle.zeros([1, 3]), paddle.to_tensor([3])),
        lambda: F.adaptive_log_softmax_with_loss(
            paddle.ones([1, 4]),
            paddle.to_tensor([5]),
            paddle.ones([4, 3]),
            [[paddle.ones([4, 2]), paddle.ones([2, 3])]],
            [2, 5],
        )[1],
        lambda: F.gather_tree(*[paddle.full([2, 1, 2], i, "int64") for i in (1, 2)]),
        lambda: paddle.searchsorted(
            paddle.ones([3]), paddle.ones([1]), sorter=paddle.to_tensor([0, 1, 3])
        ),
        lambda: nn.GRU(2, 2)(paddle.ones([1, 3, 2]), None, paddle.to_tensor([4]))[1],
        lambda: F.max_unpool2d(paddle.ones([1, 1, 1, 1]), paddle.to_tensor([[[[4]]]]), 2),
    ],
)
def test_what_paddle_refuses_is_refused(tier: Any, make: Any) -> None:
    for _ in range(3):
        with pytest.raises(InvalidArgument, match="recorded at"):
            make().numpy()


def test_a_system_without_a_solution_stays_one_without_numbers(tier: Any) -> None:
    got = paddle.linalg.solve(paddle.eye(2), paddle.full([2, 1], float("nan")))
    assert np.isnan(got.numpy()).all()
