"""Ctrl-C ends a training loop between two steps, and leaves no mode behind."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import bireme as paddle
from bireme.autograd import saved_tensors
from bireme.core.trace import state
from tests.core.interrupts import MODES, interrupted


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
# A step that was cut off at another place is another program.
@pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")
@pytest.mark.parametrize("mode", MODES[:2])  # "captured" is in the campaign only
def test_interrupts_of_training_leave_whole_steps(mode: str) -> None:
    assert interrupted(mode, 30) == []


def _interrupted_at(work: Any, number: int) -> bool:
    """Run `work()` with a KeyboardInterrupt at the `number`-th place where Python may raise one: at
    the start of a function and after a call. Whether there are so many."""
    left = number

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal left
        name = frame.f_code.co_filename
        inside = "bireme" in name and "tests" not in name and frame.f_code.co_name != "__del__"
        if inside and event in ("call", "c_return", "return"):
            left -= 1
            if left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


class _Twice(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2


def _modes() -> None:
    x = paddle.ones([2])
    x.stop_gradient = False
    with paddle.no_grad():
        y = x * 2
        with paddle.amp.auto_cast(dtype="bfloat16"), paddle.enable_grad():
            z = x * y
    with paddle.autograd.saved_tensors_hooks(lambda t: t, lambda t: t):
        out = _Twice.apply(x * x).sum()
    (out + z.sum()).backward()
    y[0] = 1.0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_anywhere_leaves_the_modes_as_they_were() -> None:
    _modes()
    number, there = 0, True
    while there:
        number += 1
        there = _interrupted_at(_modes, number)
        assert paddle.is_grad_enabled(), number
        assert state.trace.amp is None, number
        assert saved_tensors._active.hooks == [], number
    assert number > 100
