"""Ctrl-C in the middle of training. `python -m tests.core.interrupts 1000` interrupts so often.

Every parameter counts the steps: its gradient is 1, so with a momentum of 1 its velocity is k after
k steps and it is -k (k + 1) / 2 itself, exactly. After each interrupt all of them must tell of the
same step, and gradients must be recorded as before.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from typing import Any

import numpy as np

import bireme as paddle
from bireme import nn
from bireme.core.trace import state
from bireme.host import config

MODES = ("never", "sync", "captured")
_MOST_STEPS = 2500  # twice as many can be counted: float32 holds k (k + 1) / 2 up to k = 5792


class Counters(nn.Layer):
    """Many parameters, each with the gradient 1, and a place where modes change."""

    def __init__(self, count: int = 40):
        super().__init__()
        self.all = nn.ParameterList([self.create_parameter([2, 3]) for _ in range(count)])

    def forward(self) -> Any:
        with paddle.no_grad():
            base = self.all[0] * 0.0
        with paddle.amp.auto_cast(enable=False):
            total = base.sum()
        for p in self.all:
            total = total + p.sum()
        return total


class Run:
    def __init__(self, mode: str):
        config.compile_mode = "sync" if mode == "captured" else mode
        self.net = Counters()
        self.steps = 0.0
        self._begin()
        self.step: Any = paddle.jit.to_static(self._step) if mode == "captured" else self._step

    def _begin(self) -> None:
        for p in self.net.parameters():
            p.set_value(np.zeros(p.shape, "float32"))
        self.optimizer = paddle.optimizer.Momentum(
            1.0, momentum=1.0, parameters=self.net.parameters()
        )

    def _step(self) -> None:
        self.net().backward()
        self.optimizer.step()
        self.optimizer.clear_grad()

    def train(self) -> None:
        """Until it is interrupted."""
        for _ in range(_MOST_STEPS):
            self.step()
        while True:
            time.sleep(1)

    def wrong(self) -> str:
        """What an interrupt has left wrong; empty if nothing."""
        if not paddle.is_grad_enabled() or state.trace.amp is not None:
            return f"modes: gradients {paddle.is_grad_enabled()}, autocast {state.trace.amp}"
        self.optimizer.clear_grad()
        found = {k: v.numpy() for k, v in self.optimizer.state_dict().items() if "velocity" in k}
        steps = {float(v) for a in found.values() for v in a.ravel()} or {0.0}
        if len(steps) > 1:
            return f"velocities of steps {sorted(steps)}"
        (k,) = steps
        self.steps = k
        values = {float(v) for p in self.net.parameters() for v in p.numpy().ravel()}
        if values != {-k * (k + 1) / 2}:
            return f"parameters {sorted(values)} after {k} steps"
        return ""


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def interrupted(mode: str, count: int, longest: float = 0.01) -> list[str]:
    """What went wrong in `count` interrupts of a training loop."""
    failures = []
    before, compile_mode = signal.signal(signal.SIGALRM, _interrupt), config.compile_mode
    draw = random.Random(count)
    try:
        run = Run(mode)
        for _ in range(4):
            run.step()
        for i in range(count):
            if i % 25 == 24 or run.steps > _MOST_STEPS:
                run = Run(mode)
                run.step()
            # Once more later: Python drops what is raised in a callback of the garbage collector.
            try:
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-4, longest), 1.0)
                run.train()
            except KeyboardInterrupt:
                signal.setitimer(signal.ITIMER_REAL, 0)
            wrong = run.wrong()
            if wrong:
                failures.append(wrong)
                run = Run(mode)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        config.compile_mode = compile_mode
    return failures


def main(count: int = 1000) -> int:
    failed = 0
    for mode in MODES:
        wrong = interrupted(mode, -(-count // len(MODES)))
        failed += len(wrong)
        print(mode, wrong or "whole steps only, gradients on", flush=True)
    print(f"{count - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
