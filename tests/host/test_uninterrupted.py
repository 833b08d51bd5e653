"""A first call of a compiled program goes through Python, and Ctrl-C in it loses nothing."""

from __future__ import annotations

import _thread
import signal
import threading
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import nn
from bireme.core.errors import ExecutionError
from bireme.core.program import Program
from bireme.host import config, uninterrupted

# One line here runs every step.
pytestmark = pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")


def _ctrl_c() -> None:
    """Python calls the handler between two instructions of the main thread."""
    signal.raise_signal(signal.SIGINT)


def _steps(count: int, captured: bool, interrupted_at: int | None, monkeypatch: Any) -> Any:
    paddle.seed(0)
    net = nn.Linear(40, 40)
    optimizer = paddle.optimizer.Adam(parameters=net.parameters())
    x = paddle.to_tensor(np.linspace(-1, 1, 80, dtype="float32").reshape(2, 40))

    def step() -> None:
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.clear_grad()

    run = paddle.jit.to_static(step) if captured else step
    for i in range(count):
        if i == interrupted_at:
            _interrupt_every_call(monkeypatch)
            with pytest.raises(KeyboardInterrupt):
                _read_after(run, net)
            monkeypatch.undo()
            monkeypatch.setattr(config, "compile_mode", "always")
        else:
            run()
    found = {**net.state_dict(), **optimizer.state_dict()}
    return [v.numpy() for v in found.values() if hasattr(v, "numpy")]


def _read_after(run: Any, net: Any) -> None:
    run()
    net.weight.numpy()


def _interrupt_every_call(monkeypatch: Any) -> None:
    """As if all calls were first ones, with Ctrl-C before JAX's Python functions return."""
    real = Program._call

    class Slow:
        def __init__(self, executable: Any):
            self.executable = executable

        def call(self, *arguments: Any) -> Any:
            results = self.executable.call(*arguments)
            _ctrl_c()
            return list(results)

    def call(self: Any, arguments: Any, deliver: Any) -> None:
        executable, self.executable = self.executable, Slow(self.executable)
        self.called.clear()
        try:
            real(self, arguments, deliver)
        finally:
            self.executable = executable

    monkeypatch.setattr(Program, "_call", call)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("at", [1, 3, 8])
def test_steps_are_whole(monkeypatch, captured, at):
    """The step that was interrupted has happened whole or not at all, and so has the one before it,
    which runs when the next begins."""
    monkeypatch.setattr(config, "compile_mode", "always")
    found = _steps(10, captured, at, monkeypatch)
    wanted = [_steps(n, captured, None, monkeypatch) for n in (8, 9, 10)]
    assert any(all(np.array_equal(a, b) for a, b in zip(found, w, strict=True)) for w in wanted)


def test_it_is_done_when_the_interrupt_arrives():
    done: list[int] = []
    begun = threading.Event()

    def work() -> None:
        begun.set()
        _ctrl_c()
        done.extend(range(100_000))

    for _ in range(20):
        done.clear()
        with pytest.raises(KeyboardInterrupt):
            uninterrupted.run(work)
        assert len(done) == 100_000


def test_errors_arrive():
    def work() -> None:
        raise ExecutionError("as planned")

    with pytest.raises(ExecutionError, match="as planned"):
        uninterrupted.run(work)


def test_without_another_thread_it_is_done_here(monkeypatch):
    def refuse(*_: Any) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    done: list[int] = []
    uninterrupted.run(lambda: done.append(1))
    assert done == [1]
