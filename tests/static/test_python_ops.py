"""Ops that call Python while a program runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import static
from bireme.core.errors import ExecutionError, InvalidArgument


@pytest.fixture(autouse=True)
def main() -> Iterator[Any]:
    program = static.Program()
    paddle.enable_static()
    try:
        with static.scope_guard(static.Scope()), static.program_guard(program, static.Program()):
            yield program
    finally:
        paddle.disable_static()


def test_py_func_and_its_gradient(main: Any, tier: str) -> None:
    seen: list[tuple[int, ...]] = []

    def tanh(a: np.ndarray) -> np.ndarray:
        return np.tanh(a)

    def tanh_grad(y: np.ndarray, dy: np.ndarray) -> np.ndarray:
        return dy * (1 - y * y)

    x = static.data("x", [None, 3])
    x.stop_gradient = False
    out = main.current_block().create_var(name="out", shape=[-1, 3], dtype="float32")
    static.py_func(tanh, x, out, tanh_grad, skip_vars_in_backward_input=x)
    static.nn.py_func(lambda a: seen.append(a.shape), x, None)
    (grad,) = static.gradients(out.sum(), x)
    exe = static.Executor()
    for size in (2, 4):
        given = np.random.RandomState(size).rand(size, 3).astype("float32")
        got = exe.run(feed={"x": given}, fetch_list=["out", grad])
        np.testing.assert_allclose(got[0], np.tanh(given), rtol=1e-6)
        np.testing.assert_allclose(got[1], 1 - np.tanh(given) ** 2, rtol=1e-4, atol=1e-6)
    assert seen == [(2, 3), (4, 3)]


def test_a_result_of_the_wrong_shape(main: Any, monkeypatch: Any) -> None:
    from bireme.host import config

    monkeypatch.setattr(config, "compile_mode", "never")
    x = static.data("x", [2])
    out = main.current_block().create_var(name="out", shape=[2], dtype="float32")
    static.py_func(lambda a: a[:1], x, out)
    with pytest.raises(ExecutionError, match="must return float32"):
        static.Executor().run(feed={"x": [1.0, 2.0]}, fetch_list=[out])


def test_a_variable_that_nothing_fills(main: Any) -> None:
    out = main.current_block().create_var(name="out", shape=[2], dtype="float32")
    with pytest.raises(InvalidArgument, match="no op fills it"):
        static.Executor().run(fetch_list=[out + 1])


def test_print(main: Any, tier: str, capfd: pytest.CaptureFixture[str]) -> None:
    x = static.data("x", [None, 2])
    x.stop_gradient = False
    y = static.Print(x * 2, first_n=2, message="look", summarize=3, print_tensor_lod=False)
    (grad,) = static.gradients(y.sum(), x)
    exe = static.Executor()
    for _ in range(3):
        exe.run(feed={"x": [[1.0, 2.0], [3.0, 4.0]]}, fetch_list=[grad])
    said = capfd.readouterr().out
    assert said.count("look") == 4  # twice the value and twice its gradient
    assert said.count("data: [2.0, 4.0, 6.0]\n") == 2
    assert said.count("@GRAD") == 2
    assert "shape: [2, 2]" in said
    assert "lod" not in said


def test_a_program_with_python_in_it_cannot_be_saved(main: Any, tmp_path: Any) -> None:
    x = static.data("x", [2])
    out = main.current_block().create_var(name="out", shape=[2], dtype="float32")
    static.py_func(lambda a: a, x, out)
    with pytest.raises(ValueError, match=r"\[py_func\] attribute 'function'"):
        static.save_inference_model(str(tmp_path / "m"), x, out, static.Executor())
