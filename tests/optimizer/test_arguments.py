"""Arguments that Paddle's optimizers refuse, and what an optimizer says of itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme

REFUSED: list[tuple[str, dict[str, Any], type[Exception]]] = [
    ("Adam", {"learning_rate": 1}, TypeError),
    ("SGD", {"learning_rate": -1}, TypeError),
    ("Momentum", {"learning_rate": "0.1"}, TypeError),
    ("AdamW", {"learning_rate": np.float32(0.1)}, TypeError),
    ("Adam", {"beta1": None}, AssertionError),
    ("Adamax", {"epsilon": None}, AssertionError),
    ("NAdam", {"learning_rate": -1.0}, ValueError),
    ("NAdam", {"momentum_decay": -1.0}, ValueError),
    ("RAdam", {"learning_rate": -1.0}, ValueError),
    ("Rprop", {"learning_rate": None}, ValueError),
    ("Adadelta", {"rho": None}, ValueError),
    ("Adadelta", {"epsilon": None}, ValueError),
    ("Adagrad", {"epsilon": None}, AssertionError),
    ("SGD", {"parameters": [1]}, AttributeError),
]


@pytest.mark.parametrize(("name", "arguments", "error"), REFUSED)
def test_refused_as_in_paddle(
    name: str, arguments: dict[str, Any], error: type[Exception], paddle: Any
) -> None:
    for module in (bireme, paddle):
        usual = {"learning_rate": 0.1, "parameters": module.nn.Linear(2, 2).parameters()}
        with pytest.raises(error):
            getattr(module.optimizer, name)(**(usual | arguments))


def test_a_tensor_is_a_learning_rate_in_programs_only() -> None:
    weights = bireme.nn.Linear(2, 2).parameters()
    with pytest.raises(TypeError, match="float"):
        bireme.optimizer.SGD(bireme.to_tensor(0.1), parameters=weights)  # pyright: ignore[reportArgumentType]


def test_the_rate_is_a_tensor_for_those_who_ask() -> None:
    model = bireme.nn.Linear(2, 2)
    optimizer = bireme.optimizer.SGD(0.25, parameters=model.parameters())
    assert float(optimizer._global_learning_rate()) == 0.25
    assert optimizer._dtype is bireme.float32


def test_a_program_fetches_the_rate_of_each_run() -> None:
    bireme.enable_static()
    try:
        main = bireme.static.Program()
        with bireme.static.program_guard(main, bireme.static.Program()):
            x = bireme.static.data("x", [2, 3])
            loss = bireme.nn.Linear(3, 1)(x).mean()
            schedule = bireme.optimizer.lr.StepDecay(0.5, step_size=1)
            optimizer = bireme.optimizer.SGD(schedule)
            optimizer.minimize(loss)
            rate = optimizer._global_learning_rate()
            exe = bireme.static.Executor()
            exe.run(bireme.static.default_startup_program())
            got = []
            for _ in range(3):
                got += exe.run(main, feed={"x": np.ones((2, 3), "float32")}, fetch_list=[rate])
                schedule.step()
    finally:
        bireme.disable_static()
    np.testing.assert_allclose(np.ravel(got), [0.5, 0.05, 0.005], rtol=1e-6)
