"""`isinstance(x, paddle.pir.Value)`: whether a program computes x."""

from __future__ import annotations

import bireme as paddle
from bireme import pir, static


def test_variables_of_programs() -> None:
    eager = paddle.to_tensor([1.0])
    assert not isinstance(eager, pir.Value)
    assert not isinstance(eager + 1, pir.Value)
    assert not isinstance([1.0], pir.Value)
    paddle.enable_static()
    try:
        with static.program_guard(static.Program(), static.Program()):
            x = static.data("x", [2])
            w = static.create_parameter([2], "float32")
            assert all(isinstance(v, pir.Value) for v in (x, w, x + w))
            assert not isinstance(eager, pir.Value)
    finally:
        paddle.disable_static()


def test_inputs_of_captured_functions() -> None:
    seen = []

    @paddle.jit.to_static(full_graph=True)
    def f(x: paddle.Tensor) -> paddle.Tensor:
        seen.append((isinstance(x, pir.Value), isinstance(x * 2, pir.Value)))
        return x

    f(paddle.to_tensor([1.0]))
    assert seen[0] == (True, True)


def test_classes() -> None:
    assert issubclass(paddle.Tensor, pir.Value)
    assert not issubclass(int, pir.Value)
