"""Captured functions that read gradients which a backward pass outside of them made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import jit, nn
from bireme.profiler import count_compiles

Build = Callable[[nn.Linear], "tuple[Callable[[], Any], Callable[[], Any]]"]


def _nothing() -> None:
    pass


def _steps(optimizer: Any, clear: bool = False, **more: Any) -> Build:
    def build(net: nn.Linear) -> Any:
        made = optimizer(0.1, parameters=net.parameters())

        def step() -> None:
            made.step()
            if clear:
                made.clear_grad(**more)

        return step, _nothing if clear else made.clear_grad

    return build


def _scaled(net: nn.Linear) -> Any:
    made = paddle.optimizer.SGD(0.1, parameters=net.parameters())
    scaler = paddle.amp.GradScaler(init_loss_scaling=4.0)

    def step() -> None:
        scaler.step(made)
        scaler.update()

    return step, made.clear_grad


def _added(net: nn.Linear) -> Any:
    made = paddle.optimizer.SGD(0.1, parameters=net.parameters())

    def step() -> None:
        (net(paddle.ones([1, 3])) ** 2).sum().backward()
        made.step()

    return step, made.clear_grad


BUILDS: dict[str, Build] = {
    "SGD": _steps(paddle.optimizer.SGD),
    "Adam": _steps(paddle.optimizer.Adam),
    "Momentum": _steps(paddle.optimizer.Momentum),
    "cleared": _steps(paddle.optimizer.Adam, clear=True),
    "set to zero": _steps(paddle.optimizer.SGD, clear=True, set_to_zero=True),
    "scaled": _scaled,
    "added to": _added,
    "clipped": lambda net: (
        lambda: nn.utils.clip_grad_norm_(net.parameters(), 0.5),
        net.clear_gradients,
    ),
    "read": lambda net: (lambda: net.weight.grad * 2, net.clear_gradients),
    "read while they grow": lambda net: (lambda: net.weight.grad * 2, _nothing),
    "norms": lambda net: (lambda: [p.grad.norm() for p in net.parameters()], net.clear_gradients),
}


def _batches() -> Iterator[paddle.Tensor]:
    for i in range(5):
        sign = 1 if i % 2 else -1
        yield paddle.to_tensor(np.outer([1, 1], [1, -1, 2]).astype("float32") * sign * (i + 1))


def _trained(build: Build, captured: bool) -> list[np.ndarray]:
    net = nn.Linear(3, 2)
    for p in net.parameters():
        p.set_value(paddle.ones_like(p))
    function, after = build(net)
    if captured:
        function = jit.to_static(function)
    found = []
    for x in _batches():
        net(x).sum().backward()
        result = function()
        found += [np.asarray(r) for r in (result if isinstance(result, list) else [result])
                  if r is not None]  # fmt: skip
        found += [np.asarray(p) for p in net.parameters()]
        found += [np.asarray(p.grad) for p in net.parameters() if p.grad is not None]
        after()
    return found


@pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")
@pytest.mark.parametrize("case", BUILDS)
def test_gradients_are_those_of_each_call(case: str) -> None:
    """Not those that the capture met, whose tensors are gone by the next call."""
    eager, captured = _trained(BUILDS[case], False), _trained(BUILDS[case], True)
    assert len(eager) == len(captured)
    for a, b in zip(eager, captured, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6)


def test_new_gradients_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from bireme.host import config

    monkeypatch.setattr(config, "compile_mode", "always")
    net = nn.Linear(3, 2)
    optimizer = paddle.optimizer.Adam(0.1, parameters=net.parameters())
    step = jit.to_static(optimizer.step)
    counts = []
    for x in _batches():
        net(x).sum().backward()
        with count_compiles() as compiled:
            step()
            optimizer.clear_grad()
            net.weight.numpy()
        counts += compiled
    assert counts[2:] == [0, 0, 0]
