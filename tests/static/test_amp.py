"""static.amp.decorate: programs in mixed precision, against eager training by the same rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import static
from bireme.core.errors import InvalidArgument, TypeMismatch

X = np.random.default_rng(1).standard_normal((8, 4)).astype("float32")
W = 0.3 * np.random.default_rng(2).standard_normal((4, 16)).astype("float32")
V = 0.3 * np.random.default_rng(3).standard_normal((16, 1)).astype("float32")


@pytest.fixture(autouse=True)
def programs() -> Iterator[None]:
    paddle.enable_static()
    main, startup = static.Program(), static.Program()
    try:
        with static.program_guard(main, startup), static.scope_guard(static.Scope()):
            yield
    finally:
        paddle.disable_static()


def weight(array: np.ndarray, name: str) -> Any:
    value = paddle.nn.initializer.Assign(array)
    return static.create_parameter(array.shape, "float32", name, default_initializer=value)


def net(x: Any) -> tuple[Any, Any]:
    hidden = paddle.matmul(x, weight(W, "w"))
    return hidden, paddle.matmul(paddle.tanh(hidden), weight(V, "v")).exp().mean()


def trained(fetch: list[Any], steps: int = 3, feed: np.ndarray = X) -> list[list[np.ndarray]]:
    exe = static.Executor()
    exe.run(static.default_startup_program())
    return [exe.run(feed={"x": feed}, fetch_list=fetch) for _ in range(steps)]


def eager(dtype: str, level: str, scale: float, steps: int = 3) -> tuple[list[float], np.ndarray]:
    """The same by hand: autocast, a scaled loss, gradients unscaled."""
    paddle.disable_static()
    w, v = (paddle.create_parameter(a.shape, "float32") for a in (W, V))
    w.set_value(W)
    v.set_value(V)
    optimizer = paddle.optimizer.SGD(0.1, parameters=[w, v])
    losses = []
    for _ in range(steps):
        with paddle.amp.auto_cast(True, level=level, dtype=dtype, use_promote=False):
            hidden = paddle.matmul(paddle.to_tensor(X), w)
            loss = paddle.matmul(paddle.tanh(hidden), v).exp().mean()
        (loss.astype("float32") * scale).backward()
        for p in (w, v):
            assert p.grad is not None
            p.grad.set_value(p.grad / scale)
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    result = w.numpy()
    paddle.enable_static()
    return losses, result


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_as_autocast_by_hand(dtype: str, level: str) -> None:
    x = static.data("x", [None, 4])
    hidden, loss = net(x)
    assert hidden.dtype == paddle.float32
    optimizer = static.amp.decorate(
        paddle.optimizer.SGD(0.1), level=level, dtype=dtype, init_loss_scaling=128.0,
        use_dynamic_loss_scaling=False,
    )  # fmt: skip
    optimizer.minimize(loss)
    assert hidden.dtype == getattr(paddle, dtype)  # whoever held it holds the new one
    w = static.default_main_program().global_block().var("w")
    runs = trained([loss, w, optimizer.get_scaled_loss()])
    losses, last = eager(dtype, level, 128.0)
    np.testing.assert_allclose([float(r[0]) for r in runs], losses, rtol=1e-6)
    np.testing.assert_allclose(runs[-1][1], last, rtol=1e-6)
    np.testing.assert_allclose(runs[0][2], runs[0][0].astype("float32") * 128, rtol=1e-6)
    assert runs[-1][1].dtype == np.float32


def test_level_od_and_lists() -> None:
    """OD leaves everything that is not white in float32; lists and names keep more."""
    kinds = {}
    for case, options in {
        "OD": {"level": "OD"},
        "O1": {},
        "white": {"amp_lists": static.amp.CustomOpLists(custom_white_list=["exp"])},
        "black": {"amp_lists": static.amp.CustomOpLists(custom_black_list=["matmul"])},
        "name": {"amp_lists": static.amp.CustomOpLists(custom_black_varnames=["w"])},
        "O0": {"level": "O0"},
    }.items():
        with static.program_guard(static.Program(), static.Program()):
            x = static.data("x", [None, 4])
            hidden = paddle.matmul(x, weight(W, "w"))
            after = paddle.tanh(hidden)
            out = after.exp()
            static.amp.decorate(paddle.optimizer.SGD(0.1), **options).minimize(out.mean())
            kinds[case] = [t.dtype.name for t in (hidden, after, out)]
    assert kinds == {
        "OD": ["float16", "float32", "float32"],
        "O1": ["float16", "float16", "float32"],
        "white": ["float16", "float16", "float16"],
        "black": ["float32", "float32", "float32"],
        "name": ["float32", "float32", "float32"],
        "O0": ["float32", "float32", "float32"],
    }


def test_only_what_is_guarded() -> None:
    x = static.data("x", [None, 4])
    first = paddle.matmul(x, weight(W, "w"))
    with static.amp.fp16_guard():
        second = paddle.matmul(paddle.tanh(first), weight(V, "v"))
    loss = second.mean()
    static.amp.decorate(paddle.optimizer.SGD(0.1), use_pure_fp16=True).minimize(loss)
    assert [t.dtype.name for t in (first, second, loss)] == ["float32", "float16", "float32"]


def test_the_scale_follows_overflows() -> None:
    x = static.data("x", [None, 4])
    _, loss = net(x)
    optimizer = static.amp.decorate(
        paddle.optimizer.SGD(0.01), init_loss_scaling=4.0, incr_every_n_steps=2,
        decr_every_n_nan_or_inf=1, decr_ratio=0.125,
    )  # fmt: skip
    optimizer.minimize(loss)
    w = static.default_main_program().global_block().var("w")
    fetch = [optimizer.get_loss_scaling(), w]
    exe = static.Executor()
    exe.run(static.default_startup_program())
    feeds = [X, X, X * np.inf, X, X, X * np.inf, X * np.inf]
    runs = [exe.run(feed={"x": f}, fetch_list=fetch) for f in feeds]
    assert [float(s[0]) for s, _ in runs] == [4.0, 8.0, 1.0, 1.0, 2.0, 1.0, 1.0]
    np.testing.assert_array_equal(runs[2][1], runs[1][1])  # no update
    assert np.abs(runs[3][1] - runs[2][1]).max() > 0
    assert np.isfinite(runs[-1][1]).all()


def test_running_statistics_and_dropout() -> None:
    """Updates of state belong to the new ops, and random numbers are still drawn."""
    x = static.data("x", [None, 4])
    normed = static.nn.batch_norm(x, name="bn")
    loss = paddle.nn.functional.dropout(paddle.matmul(normed, weight(W, "w")), 0.5).square().mean()
    static.amp.decorate(paddle.optimizer.SGD(0.0), level="O1").minimize(loss)
    names = [n for n in static.default_main_program().state_names() if "mean" in n or "w_1" in n]
    mean = static.default_main_program().global_block().var(names[0])
    runs = trained([loss, mean])
    np.testing.assert_allclose(runs[0][1], X.mean(0) * 0.1, rtol=1e-3, atol=1e-6)
    assert len({float(r[0]) for r in runs}) == 3
    assert not np.array_equal(runs[0][1], runs[1][1])


def test_a_test_program_is_cast_too() -> None:
    x = static.data("x", [None, 4])
    hidden, loss = net(x)
    test = static.default_main_program().clone(for_test=True)
    optimizer = static.amp.decorate(paddle.optimizer.SGD(0.0), level="O2")
    with pytest.raises(InvalidArgument, match="minimize"):
        optimizer.amp_init(paddle.CPUPlace())
    optimizer.minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    before = exe.run(test, feed={"x": X}, fetch_list=[hidden])[0]
    optimizer.amp_init(paddle.CPUPlace(), test_program=test)
    after = exe.run(test, feed={"x": X}, fetch_list=[hidden])[0]
    later = static.default_main_program().clone(for_test=True)
    late = exe.run(later, feed={"x": X}, fetch_list=[hidden])[0]
    assert [a.dtype for a in (before, after, late)] == [np.float32, np.float16, np.float16]
    np.testing.assert_array_equal(after, late)
    np.testing.assert_allclose(after, before, rtol=1e-2, atol=1e-2)


def test_what_is_refused() -> None:
    sgd = paddle.optimizer.SGD(0.1)
    with pytest.raises(InvalidArgument, match="use_promote"):
        static.amp.decorate(sgd, level="O2", use_promote=True)
    with pytest.raises(InvalidArgument, match="master"):
        static.amp.decorate(sgd, level="O2", master_weight=False)
    with pytest.raises(ValueError, match="level"):
        static.amp.decorate(sgd, level="O3")
    with pytest.raises(TypeMismatch, match="by name"):
        static.amp.decorate(sgd, None, 128.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="float16"):
        static.amp.decorate(sgd, dtype="float64")
    with pytest.raises(TypeError, match="use_fp8"):
        static.amp.decorate(sgd, use_fp8=True)
    with pytest.raises(ValueError, match="both"):
        static.amp.CustomOpLists(["exp"], ["exp"])
    with pytest.warns(UserWarning, match="bfloat16"):
        static.amp.decorate(sgd, dtype="bfloat16", use_dynamic_loss_scaling=True)
    with pytest.warns(UserWarning, match="not used"):
        static.amp.decorate(sgd, static.amp.CustomOpLists(), level="OD")
    with pytest.raises(InvalidArgument, match="minimize"):
        static.amp.decorate(sgd).get_loss_scaling()
    with pytest.raises(TypeMismatch, match="static program"):
        static.amp.decorate(sgd).minimize(1.0)  # type: ignore[arg-type]
