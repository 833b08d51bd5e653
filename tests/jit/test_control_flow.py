"""What captured functions may depend on and change, and what happens where they cannot."""

from __future__ import annotations

import traceback
import warnings

import numpy as np
import pytest

import bireme as paddle
from bireme import jit, nn
from bireme.core import executor, stats
from bireme.core.errors import CaptureError
from bireme.core.tensor import alias
from bireme.host import config
from bireme.static import InputSpec
from bireme.static.nn import case, cond, switch_case, while_loop
from bireme.static.nn.control_flow import Assert


def vector(*values: float, needs: bool = False):
    return paddle.to_tensor(np.array(values, "float32"), stop_gradient=not needs)


def whole(function):
    return jit.to_static(function, full_graph=True)


# --- gradients and compilation --------------------------------------------------------------


@pytest.mark.parametrize("order", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_while_has_derivatives_of_any_order(order) -> None:
    def function(x):
        y = x
        while y.sum() < 100:
            y = y * x
        return y.sum()

    def derivatives(f):
        x = vector(1.0, 2.0, 3.0, needs=True)
        found, y = [], f(x)
        for _ in range(order):
            (y,) = paddle.grad(y.sum(), [x], create_graph=True)
            found.append(y.numpy())
        return found

    for a, b in zip(derivatives(whole(function)), derivatives(function), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("turns", [0, 1, 70, 5000])
def test_gradient_of_a_long_while(turns) -> None:
    def function(x, n):
        i = paddle.zeros([], "int64")
        while i < n:
            x = x * 0.999 + paddle.sin(x) * 0.001
            i += 1
        return x

    x = vector(1.0, needs=True)
    whole(function)(x, paddle.to_tensor(turns)).sum().backward()
    value, slope = np.float64(1.0), np.float64(1.0)
    for _ in range(turns):
        slope *= 0.999 + np.cos(value) * 0.001
        value = value * 0.999 + np.sin(value) * 0.001
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [slope], rtol=2e-3)


def test_all_paths_are_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    @whole
    def function(x):
        if x.sum() > 0:
            x = x * 2
        else:
            x = x - 1
        while x.sum() < 50:
            x = x.abs() * 1.5 + 1
        return x.sum()

    def step(*values: float) -> None:
        x = vector(*values, needs=True)
        function(x).backward()
        assert x.grad is not None
        x.grad.numpy()

    monkeypatch.setattr(config, "compile_mode", "sync")
    step(1.0, 2.0)
    step(-1.0, 2.0)
    executor.wait_for_compilation()
    with stats.count_compiles() as compiled:
        for values in ((3.0, 4.0), (-3.0, 1.0), (60.0, 7.0), (0.1, 0.2)):
            step(*values)
    assert compiled[0] <= 1  # compiled when it came back, and never for a path
    assert len(function._entries) == 1


# --- outer tensors --------------------------------------------------------------------------


def test_value_that_python_looked_at_is_watched() -> None:
    flag = paddle.to_tensor(1)

    @whole
    def function(x):
        return x * 2 if flag else x * 3

    for value, factor in ((1, 2), (0, 3), (1, 2)):
        flag.set_value(np.array(value))
        np.testing.assert_allclose(function(vector(1.0)).numpy(), [factor])


def test_value_that_always_changes_runs_eagerly() -> None:
    count = paddle.to_tensor(0)

    @jit.to_static
    def function(x):
        return x * count.item()

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for i in range(12):
            count.set_value(np.array(i))
            np.testing.assert_allclose(function(vector(1.0)).numpy(), [i])
    assert len(seen) == 1
    assert "captured 8 times" in str(seen[0].message)


def test_detached_alias_keeps_its_own_gradient() -> None:
    w = vector(2.0, 3.0, needs=True)
    cut = w.detach()
    whole(lambda x: (x * cut * w).sum())(vector(1.0, 1.0)).backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), [2.0, 3.0])


def test_temporary_alias_is_no_constant() -> None:
    holder = [vector(1.0, 2.0)]

    @whole
    def function(x):
        return x + alias(alias(holder[0]))  # what some library function may do

    function(vector(0.0, 0.0))
    holder[0].set_value(np.array([5.0, 5.0], "float32"))
    np.testing.assert_allclose(function(vector(0.0, 0.0)).numpy(), [5.0, 5.0])


def test_temporary_handle_that_is_no_alias_is_refused() -> None:
    holder = [vector(1.0, 2.0)]

    def function(x):
        return x + paddle.Tensor(holder[0]._value, None)

    with pytest.raises(CaptureError, match="nothing holds any more"):
        whole(function)(vector(0.0, 0.0))


def test_tensor_that_nothing_holds() -> None:
    stack = [vector(1.0), vector(2.0)]

    @jit.not_to_static
    def take():
        return stack.pop()

    def function(x):
        return x + take()

    with pytest.raises(CaptureError, match="nothing holds any more"):
        whole(function)(vector(0.0))


# --- training steps -------------------------------------------------------------------------


def make_training(optimizer, scheduled: bool):
    paddle.seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    rate = paddle.optimizer.lr.StepDecay(0.1, 2, 0.5) if scheduled else 0.1
    opt = optimizer(rate, parameters=model.parameters())

    def step(x, y):
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        opt.clear_grad()
        return loss

    return model, opt, rate, step


@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize("name", ["SGD", "Momentum", "AdamW"])
def test_captured_training_step(name, scheduled) -> None:
    optimizer = getattr(paddle.optimizer, name)
    eager, other = make_training(optimizer, scheduled), make_training(optimizer, scheduled)
    captured = whole(other[3])
    x, y = paddle.ones([4, 3]), paddle.zeros([4, 1])
    for i in range(5):
        a, b = eager[3](x, y), captured(x, y)
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4)
        for _, opt, rate, _ in (eager, other):
            if scheduled:
                rate.step()
            elif i == 2:
                opt.set_lr(0.01)
    for p, q in zip(eager[0].parameters(), other[0].parameters(), strict=True):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-4, atol=1e-6)
    assert len(captured._entries) == 1
    assert len(next(iter(captured._variants.values()))) == 1


def test_gradients_are_left_and_added_to() -> None:
    model = nn.Linear(3, 1)

    @whole
    def step(x):
        loss = model(x).sum()
        loss.backward()
        return loss

    x = paddle.ones([4, 3])
    for wanted in (4.0, 8.0, 12.0):
        step(x)
        np.testing.assert_allclose(model.weight.grad.numpy(), np.full((3, 1), wanted))
    model.clear_gradients()
    step(x)
    np.testing.assert_allclose(model.weight.grad.numpy(), np.full((3, 1), 4.0))


# --- state in branches and loops ------------------------------------------------------------


def test_buffers_change_only_on_the_path_taken() -> None:
    norm = nn.BatchNorm1D(3)

    @whole
    def function(x):
        if x.sum() > 0:
            x = norm(x)
        return x

    x = paddle.to_tensor(np.random.default_rng(0).random((4, 3)).astype("float32"))
    function(x)
    first = norm._mean.numpy()
    function(-x)
    np.testing.assert_array_equal(norm._mean.numpy(), first)
    function(x)
    assert not np.allclose(norm._mean.numpy(), first)


def test_each_iteration_has_its_own_random_numbers() -> None:
    @whole
    def function(x):
        i = paddle.zeros([], "int64")
        rows = paddle.zeros([4, 50])
        while i < 4:
            rows[i] = nn.functional.dropout(paddle.ones([50]), 0.5)
            i += 1
        return rows + x

    rows = function(vector(0.0)).numpy()
    assert len({r.tobytes() for r in rows}) == 4


# --- open sizes -----------------------------------------------------------------------------


def test_open_sizes() -> None:
    @jit.to_static(input_spec=[InputSpec([None, None, 4])], full_graph=True)
    def function(x):
        batch, length, width = x.shape
        flat = x.reshape([batch * length, width])
        total = paddle.zeros([4])
        for i in range(length):
            total = total + x[:, i].sum(0) * i
        for row in x:
            if row.sum() > 0:
                total = total + row.sum(0)
        scaled = 2 * length * total * width**-0.5 / len(x)
        return flat, scaled, batch + 1, paddle.zeros([batch, length])

    for shape in ((2, 3, 4), (5, 1, 4)):
        x = paddle.to_tensor(np.random.default_rng(0).normal(size=shape).astype("float32"))
        for a, b in zip(function(x), function.dygraph_function(x), strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-6)
    assert len(function._entries) == 1


def test_saved_with_control_flow(tmp_path) -> None:
    class Model(nn.Layer):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            if x.sum() > 0:
                x = self.fc(x)
            i = paddle.zeros([], "int64")
            while i < 3:
                x = x * 2
                i += 1
            for row in x:
                x = x + row
            return x

    model = Model()
    path = str(tmp_path / "model")
    jit.save(model, path, input_spec=[InputSpec([None, 3])])
    loaded = jit.load(path)
    for n in (2, 5):
        for sign in (1.0, -1.0):
            x = paddle.full([n, 3], sign)
            np.testing.assert_allclose(loaded(x).numpy(), model(x).numpy(), rtol=1e-5)
    loaded.train()
    x.stop_gradient = False
    loaded(x).sum().backward()
    assert x.grad is not None


# --- what cannot be captured ----------------------------------------------------------------


def grows(x):
    for _ in range(x.sum().astype("int64")):
        x = paddle.concat([x, x])
    return x


def test_error_is_at_the_users_line() -> None:
    line = grows.__code__.co_firstlineno + 1
    with pytest.raises(CaptureError, match=rf"'x' is a float32\[1\].*test_control_flow.py:{line}"):
        whole(grows)(vector(2.0))
    with pytest.warns(jit.CaptureWarning, match="runs eagerly: 'x' is a float32") as seen:
        np.testing.assert_allclose(jit.to_static(grows)(vector(2.0)).numpy(), [2.0] * 4)
    assert len(seen) == 1


def bad_shapes(x):
    if x.sum() > 0:
        y = x + paddle.ones([7])
    else:
        y = x
    return y


def test_traceback_shows_the_source() -> None:
    with pytest.raises(CaptureError, match="do not broadcast") as caught:
        whole(bad_shapes)(vector(1.0, 2.0))
    error = caught.value.__cause__
    assert isinstance(error, ValueError)
    frames = traceback.extract_tb(error.__traceback__)
    assert any(
        f.filename == __file__ and f.lineno == bad_shapes.__code__.co_firstlineno + 2
        for f in frames
    )


def test_branches_must_agree() -> None:
    def function(x):
        if x.sum() > 0:
            y = x
        else:
            y = None
        return y

    with pytest.raises(CaptureError, match=r"'y' is a float32.* in one branch and None"):
        whole(function)(vector(1.0))


def test_list_cannot_grow_in_a_graph_loop() -> None:
    def function(x):
        parts = []
        i = paddle.zeros([], "int64")
        while i < 3:
            parts.append(x * i)
            i += 1
        return paddle.stack(parts)

    with pytest.raises(CaptureError, match="cannot grow"):
        whole(function)(vector(1.0))
    with pytest.warns(jit.CaptureWarning, match="cannot grow"):
        assert jit.to_static(function)(vector(1.0)).shape == [3, 1]


def test_custom_gradient_in_a_branch() -> None:
    class Five(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 5

    def function(x):
        if x.sum() > 0:
            return Five.apply(x)
        return x

    x = vector(1.0, needs=True)
    with pytest.warns(jit.CaptureWarning, match="the PyLayer Five"):
        jit.to_static(function)(x).backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [5.0])


def test_assertion_on_a_tensor() -> None:
    @whole
    def function(x):
        i = paddle.zeros([], "int64")
        while i < 3:
            assert x.sum() < 10, "too big"
            x = x + 2
            i += 1
        return x

    np.testing.assert_allclose(function(vector(1.0)).numpy(), [7.0])
    with pytest.raises(AssertionError, match="too big"):
        function(vector(7.0))


def test_functions_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    @jit.not_to_static
    def helper(x):
        return x * 2 if x.sum() > 0 else x

    def function(x):
        return helper(x)

    with pytest.raises(CaptureError, match="was read at"):
        whole(function)(vector(1.0))
    jit.set_code_level(100, also_to_stdout=True)
    try:
        whole(lambda x: x * 2 if x.sum() > 0 else x)(vector(1.0))
    finally:
        jit.set_code_level(-1)
    assert "choose" in capsys.readouterr().out


def test_ignored_module(monkeypatch: pytest.MonkeyPatch) -> None:
    from bireme.jit import convert

    monkeypatch.setattr(convert, "_IGNORED", set(convert._IGNORED))
    assert convert.is_users(grows)
    jit.ignore_module([__name__])
    assert not convert.is_users(grows)
    convert._is_ignored.cache_clear()


# --- static.nn ------------------------------------------------------------------------------


def choose(x, i):
    y = switch_case(i, {1: lambda: x * 2, 3: lambda: x * x}, default=lambda: -x)
    z = case([(y.sum() > 10, lambda: y), (y.sum() > 5, lambda: -y)], lambda: y * 0)
    a, b = cond(y.sum() > 0, lambda: (y, 1.0), lambda: (z, 2.0), return_names=["a", "b"])
    n, w = while_loop(lambda n, w: n < 3, lambda n, w: [n + 1, w * 2], [paddle.zeros([]), a])
    return z, a, b, n, w


@pytest.mark.parametrize("index", [1, 3, 5])
def test_functions_of_static_nn(index) -> None:
    x, i = vector(1.0, 2.0, 3.0, needs=True), paddle.to_tensor(index)
    for a, b in zip(whole(choose)(x, i), choose(x, i), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6)


def test_assert_function() -> None:
    Assert(paddle.to_tensor(True))
    with pytest.raises(ValueError, match=r"\[1.0, 2.0\]"):
        Assert(paddle.to_tensor(False), [vector(1.0, 2.0)])

    @whole
    def function(x):
        Assert(x.sum() < 5)
        return x

    function(vector(1.0))
    with pytest.raises(ValueError, match=r"test_control_flow\.py"):
        function(vector(9.0))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: cond(True, lambda: 1), TypeError, "must be a Tensor"),
        (lambda: cond(paddle.to_tensor(True), 1), TypeError, "true_fn must be callable"),
        (lambda: cond(paddle.to_tensor([True, False]), lambda: 1), TypeError, "one element"),
        (lambda: while_loop(1, 2, [3]), TypeError, "cond must be callable"),
        (lambda: while_loop(bool, bool, []), ValueError, "must not be empty"),
        (
            lambda: while_loop(lambda i: i < 3, lambda i: [i, i], [paddle.to_tensor(1)]),
            ValueError,
            "as many values",
        ),
        (lambda: case([]), ValueError, "must not be empty"),
        (lambda: case([1, 2]), TypeError, "predicate, function"),
        (lambda: switch_case(paddle.to_tensor(1), {1: 3}), TypeError, "must be callable"),
        (
            lambda: switch_case(paddle.to_tensor(1), [(1, int), (1, int)]),
            ValueError,
            "unique",
        ),
    ],
)
def test_bad_input(call, error, message) -> None:
    with pytest.raises(error, match=message):
        call()
