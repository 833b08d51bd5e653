"""Bodies in one pass over memory: what the cold tier makes of elementwise functions and sums."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bireme as paddle
import bireme.nn.functional as F
from bireme.backends import fused
from bireme.core import kernels
from bireme.host import config
from bireme.kernels import native
from tests.kernels.kernel_oracle import MARKS

pytestmark = MARKS


@pytest.fixture(autouse=True)
def cold(monkeypatch):
    monkeypatch.setattr(config, "compile_mode", "never")
    native.load()


@pytest.fixture
def ran(monkeypatch):
    """The names of the ops that ran in one pass."""
    names: list[str] = []
    real = fused._Fused.run

    def run(self: Any, call: Any, arrays: Any) -> Any:
        if not kernels.is_off(fused.NAME):
            names.append(call.op.name)
        return real(self, call, arrays)

    monkeypatch.setattr(fused._Fused, "run", run)
    return names


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def values(f: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    """The result of `f` and its gradients."""
    paddle.seed(7)
    inputs = [paddle.to_tensor(a, stop_gradient=False) for a in arrays]
    out = f(*inputs)
    (out * paddle.to_tensor(numbers(*out.shape, seed=9))).sum().backward()
    return [out.numpy(), *(i.grad.numpy() for i in inputs if i.grad is not None)]


def same(f: Callable[..., Any], *arrays: np.ndarray, rtol: float = 2e-6) -> None:
    found = values(f, *arrays)
    with kernels.disabled():
        plain = values(f, *arrays)
    assert len(found) == 1 + len(arrays)
    for a, b in zip(found, plain, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=rtol * float(np.abs(b).max(initial=0)))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate=True),
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "elu": F.elu,
    "leaky_relu": F.leaky_relu,
    "hardswish": F.hardswish,
    "sigmoid": F.sigmoid,
    "log_sigmoid": F.log_sigmoid,
    "tanh": paddle.tanh,
    "expm1": paddle.expm1,
    "square": paddle.square,
    "clip": lambda x: paddle.clip(x, -0.5, 0.7),
    "dropout": lambda x: F.dropout(x, 0.3),
    "softmax": F.softmax,
    "log_softmax": F.log_softmax,
    "logsumexp": lambda x: paddle.logsumexp(x, axis=-1),
    "mean": lambda x: paddle.tanh(x).mean(axis=-1),
}


# Pieces, rows and registers end where they do not fill a whole one; 2 x 3 x 4096 is shared.
@pytest.mark.parametrize("shape", [(4099,), (97, 61), (5, 7, 129), (2, 3, 4096), (16384, 9)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_those_of_their_bodies(name, shape):
    same(FUNCTIONS[name], numbers(*shape))


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in ("square", "clip", "mean")])
def test_compositions_run_in_one_pass(name, ran):
    values(FUNCTIONS[name], numbers(64, 128))
    assert any(n.lstrip("_").startswith(name.removesuffix("_tanh")) for n in ran), ran


def test_norms():
    x, weight, bias = numbers(6, 11, 200), numbers(200, seed=1), numbers(200, seed=2)
    same(lambda x, w, b: F.layer_norm(x, 200, w, b), x, weight, bias, rtol=2e-5)
    same(lambda x, w: F.rms_norm(x, (200,), w), x, weight, rtol=2e-5)
    same(lambda x: F.group_norm(x, 4), numbers(4, 16, 9, 13), rtol=2e-5)
    same(lambda x: F.layer_norm(x, [11, 200]), x, rtol=2e-5)


def test_broadcasting():
    x = numbers(40, 30, 8)
    gelu = F.gelu
    same(lambda x, y: gelu(x * y), x, numbers(8))
    same(lambda x, y: gelu(x * y), x, numbers(30, 8))
    same(lambda x, y: F.swiglu(x, y), x, numbers(40, 30, 8, seed=3))
    same(lambda x, y: x - gelu(y), numbers(300, 40), numbers(300, 1))
    same(lambda x, y: x - gelu(y), numbers(300, 40), numbers(1, 40))
    same(lambda x, y: x * y * 0.5 + y, numbers(40, 1, 30, 8), numbers(1, 2, 30, 1))
    same(lambda x: gelu(x) * 2.5 + 1, x)


def test_strided_and_odd_inputs():
    x = numbers(80, 70, 2)
    same(lambda x: F.gelu(x.transpose([1, 0, 2])), x)
    same(lambda x: F.gelu(x[::2, :, 0]), numbers(200, 70, 2))
    same(lambda x: F.softmax(x, axis=0), numbers(80, 70))
    same(lambda x: F.softmax(x, axis=1), numbers(8, 70, 30))
    for shape in ((), (0, 5000), (1, 1), (5000, 0)):
        same(F.gelu, numbers(*shape))


def test_images_keep_the_layout_of_the_convolutions():
    x = paddle.to_tensor(numbers(2, 16, 20, 24), stop_gradient=False)
    weight = paddle.to_tensor(numbers(16, 16, 3, 3, seed=1))

    def f(x: Any) -> Any:
        y = F.conv2d(x, weight, padding=1)
        return F.silu(y) + F.relu(y) * x

    same(f, numbers(2, 16, 20, 24), rtol=2e-5)
    order = (0, 2, 3, 1)
    images = numbers(2, 16, 20, 24).transpose(order).copy().transpose(np.argsort(order))
    same(lambda x, y: F.silu(x) * y, images, numbers(2, 16, 20, 24, seed=3))
    out = fused._empty(images.shape, np.float32, order)
    assert out.strides == images.strides
    shapes = [images.shape]
    assert fused._common_order([images, images, x.numpy()], shapes) == order
    assert fused._common_order([x.numpy(), x.numpy(), images], shapes) is None
    assert fused._common_order([images], [(2, 16, 480)]) is None
    spread = np.broadcast_to(numbers(24), images.shape)
    assert fused._common_order([spread, images], shapes) == order
    same(lambda x: F.silu(x.transpose([0, 2, 3, 1]).reshape([2, -1])), images)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16", "int32"])
def test_other_types_run_as_they_are(dtype, ran):
    x = paddle.to_tensor(numbers(100, 100) * 9).astype(dtype)
    for f in (paddle.abs, lambda x: x * x + x, lambda x: paddle.maximum(x, x * 2)):
        found = f(x).numpy()
        with kernels.disabled():
            np.testing.assert_array_equal(found, f(x).numpy())
    assert not [n for n in ran if n != "cast"]


def test_masks_go_in_and_out():
    x, y = (paddle.to_tensor(numbers(100, 90, seed=s)) for s in (1, 2))
    mask = (x > 0).logical_and(y <= 0.3)

    def f() -> list[np.ndarray]:
        chosen = paddle.where(mask, x, y * 2)
        isnan = paddle.isnan(x)
        return [chosen.numpy(), mask.numpy(), isnan.numpy(), mask.logical_not().numpy()]

    found = f()
    with kernels.disabled():
        for a, b in zip(found, f(), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def _called(module: Any, name: str, *args: Any) -> Any:
    return getattr(module, name)(*args)


_EDGES = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-45, 1e-38, 3e38, -3e38, 88.7, 88.8, -87.3, -103.0,
     -104.0, 1e-8, -1e-8, -0.9999999, 0.5, 1.5, 2.5, -0.5],
    np.float32,
)  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["exp", "log", "tanh", "expm1", "log1p", "sqrt", "sign", "round", "abs", "floor", "ceil"],
)
def test_functions_at_their_edges(name):
    x = np.concatenate([_EDGES, np.random.default_rng(0).uniform(-100, 100, 5000)])
    x = x.astype(np.float32)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        want = _called(np, "rint" if name == "round" else name, x.astype(np.float64))
        want = want.astype(np.float32)
    found = _called(paddle, name, paddle.to_tensor(x)).numpy()
    np.testing.assert_allclose(found, want, rtol=4e-7, atol=1e-44)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_nan_is_passed_on(name):
    x, y = numbers(500, 300), numbers(500, 300, seed=1)
    x[3, 4] = y[5, 6] = np.nan
    found = getattr(paddle, name)(paddle.to_tensor(x), paddle.to_tensor(y)).numpy()
    np.testing.assert_array_equal(found, getattr(np, name)(x, y))
    soft = F.softmax(paddle.to_tensor(x)).numpy()
    assert np.isnan(soft[3]).all()
    assert np.isfinite(soft[4]).all()


@pytest.mark.parametrize("kind", ["SGD", "Momentum", "Adam", "AdamW", "RMSProp", "Adagrad"])
def test_optimizers(kind, ran):
    def trained() -> list[np.ndarray]:
        paddle.seed(1)
        net = paddle.nn.Linear(70, 90)
        optimizer = getattr(paddle.optimizer, kind)(0.01, parameters=net.parameters())
        for i in range(3):
            net(paddle.to_tensor(numbers(9, 70, seed=i))).square().mean().backward()
            optimizer.step()
            optimizer.clear_grad()
        return [p.numpy() for p in net.parameters()]

    found = trained()
    assert [n for n in ran if n.endswith("_update")]
    with kernels.disabled():
        for a, b in zip(found, trained(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_step_repeats_to_the_last_bit(monkeypatch):
    """Sums over columns do not depend on which thread came first."""
    x, weight, bias = numbers(900, 300), numbers(300, seed=1), numbers(300, seed=2)
    runs = [values(lambda *a: F.layer_norm(a[0], 300, *a[1:]), x, weight, bias) for _ in range(4)]
    monkeypatch.setattr(fused, "threads", lambda: 1)
    runs.append(values(lambda *a: F.layer_norm(a[0], 300, *a[1:]), x, weight, bias))
    for run in runs[1:]:
        for a, b in zip(run, runs[0], strict=True):
            np.testing.assert_array_equal(a, b)


def test_both_tiers_agree(both_tiers):
    x = numbers(40, 256)

    def step() -> list[Any]:
        paddle.seed(5)
        t = paddle.to_tensor(x, stop_gradient=False)
        out = F.dropout(F.gelu(F.layer_norm(t, 256)), 0.2)
        out.square().sum().backward()
        return [out, t.grad]

    both_tiers(step, rtol=1e-4, atol=1e-4)


def test_jax_is_not_asked_while_a_body_is_noted(monkeypatch):
    """A body that calls JAX runs as it is, and importing JAX is not the price of finding out."""
    from bireme.host import jax_door

    error = RuntimeError("refused")
    with jax_door.refused(error), pytest.raises(RuntimeError, match="refused"):
        jax_door.jnp()
    same(lambda x: paddle.lgamma(x * x + 1), numbers(90, 90))
