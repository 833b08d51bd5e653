"""Initializers: distributions, reproducibility, the exact ones against the real wheel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme
from bireme.core import executor
from bireme.nn import initializer as init


def _made(initializer: Any, shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    attr = bireme.ParamAttr(initializer=initializer)
    return bireme.create_parameter(shape, dtype, attr=attr).numpy()


@pytest.mark.parametrize(
    ("initializer", "mean", "std", "low", "high"),
    [
        (init.Uniform(-0.5, 1.0), 0.25, 1.5 / 12**0.5, -0.5, 1.0),
        (init.Normal(1.0, 2.0), 1.0, 2.0, -20, 20),
        (init.TruncatedNormal(0.0, 1.0), 0.0, 0.8796, -2, 2),
        (init.XavierUniform(), 0.0, (2 / 500) ** 0.5, -((6 / 500) ** 0.5), (6 / 500) ** 0.5),
        (init.XavierNormal(gain=2.0), 0.0, 2 * (2 / 500) ** 0.5, -2, 2),
        (init.KaimingUniform(), 0.0, (2 / 200) ** 0.5, -((6 / 200) ** 0.5), (6 / 200) ** 0.5),
        (init.KaimingNormal(mode="fan_out"), 0.0, (2 / 300) ** 0.5, -2, 2),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, init.Initializer) else "",
)
def test_distributions(initializer: Any, mean: float, std: float, low: float, high: float) -> None:
    bireme.seed(3)
    values = _made(initializer, (200, 300))
    assert values.mean() == pytest.approx(mean, abs=5 * std / 60000**0.5 + 1e-6)
    assert values.std() == pytest.approx(std, rel=0.02)
    assert values.min() >= low
    assert values.max() <= high


def test_seed_makes_models_repeatable() -> None:
    bireme.seed(11)
    first = bireme.nn.Linear(4, 5).weight.numpy()
    second = bireme.nn.Linear(4, 5).weight.numpy()
    bireme.seed(11)
    np.testing.assert_array_equal(bireme.nn.Linear(4, 5).weight.numpy(), first)
    assert not np.array_equal(first, second)


def test_building_a_model_runs_nothing() -> None:
    before = executor.program_count()
    bireme.nn.TransformerEncoderLayer(16, 2, 32)
    bireme.nn.Conv2D(3, 4, 3)
    assert executor.program_count() == before


@pytest.mark.parametrize(
    ("name", "options", "shape"),
    [
        ("Constant", {"value": 2.5}, (2, 3)),
        ("Assign", {"value": np.arange(6.0).reshape(2, 3)}, (2, 3)),
        ("Dirac", {}, (4, 4, 3)),
        ("Dirac", {"groups": 2}, (6, 2, 3, 3)),
        ("Bilinear", {}, (2, 1, 4, 4)),
    ],
)
def test_exact(paddle: Any, name: str, options: Any, shape: tuple[int, ...]) -> None:
    attr = paddle.ParamAttr(initializer=getattr(paddle.nn.initializer, name)(**options))
    want = paddle.create_parameter(list(shape), "float32", attr=attr).numpy()
    np.testing.assert_allclose(_made(getattr(init, name)(**options), shape), want, rtol=1e-6)


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (3, 2, 5)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    matrix = _made(init.Orthogonal(gain=2.0), shape).reshape(shape[0], -1) / 2.0
    small = matrix @ matrix.T if matrix.shape[0] < matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(small, np.eye(small.shape[0]), atol=1e-5)


def test_gains(paddle: Any) -> None:
    for name in ("sigmoid", "linear", "conv2d", "tanh", "relu", "leaky_relu", "selu"):
        assert init.calculate_gain(name) == paddle.nn.initializer.calculate_gain(name)
    assert init.calculate_gain("leaky_relu", 0.3) == pytest.approx(
        paddle.nn.initializer.calculate_gain("leaky_relu", 0.3)
    )
    with pytest.raises(ValueError, match="unknown nonlinearity"):
        init.calculate_gain("nothing")


def test_global_initializer() -> None:
    init.set_global_initializer(init.Constant(3.0), init.Constant(4.0))
    try:
        layer = bireme.nn.Linear(2, 2)
        own = bireme.nn.Linear(2, 2, weight_attr=init.Constant(1.0))
    finally:
        init.set_global_initializer(None)
    assert set(layer.weight.numpy().ravel()) == {3.0}
    assert set(layer.bias.numpy()) == {4.0}
    assert set(own.weight.numpy().ravel()) == {1.0}


def test_initialise_again_in_place() -> None:
    layer = bireme.nn.Linear(2, 2)
    init.Constant(7.0)(layer.weight)
    assert set(layer.weight.numpy().ravel()) == {7.0}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes(dtype: str) -> None:
    attr = bireme.ParamAttr(initializer=init.Normal())
    made = bireme.create_parameter([8, 8], dtype, attr=attr)
    assert made.dtype.name == dtype
