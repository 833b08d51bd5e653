"""Initializers under the names of Paddle 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme

DRAWN = {
    "UniformInitializer": ({"low": 2.0, "high": 3.0}, (2.5, 1 / 12**0.5)),
    "NormalInitializer": ({"loc": 2.0, "scale": 0.5}, (2.0, 0.5)),
    "TruncatedNormalInitializer": ({"loc": 1.0, "scale": 0.1}, (1.0, 0.1)),
    "XavierInitializer": ({"fan_in": 4, "fan_out": 4}, (0.0, 0.5)),
    "MSRAInitializer": ({"uniform": False, "fan_in": 8}, (0.0, 0.5)),
}


def _made(name: str, **settings: Any) -> np.ndarray:
    initializer = getattr(bireme.nn.initializer, name)(**settings)
    return bireme.create_parameter([60, 50], "float32", default_initializer=initializer).numpy()


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_drawn(name: str) -> None:
    settings, (mean, std) = DRAWN[name]
    made = _made(name, **settings)
    assert abs(made.mean() - mean) < 0.1 * std
    assert abs(made.std() - std) < 0.1 * std
    assert not np.array_equal(made, _made(name, **settings))
    np.testing.assert_array_equal(_made(name, **settings, seed=3), _made(name, **settings, seed=3))


def test_a_seed_leaves_the_other_numbers_alone() -> None:
    bireme.seed(5)
    want = bireme.rand([3]).numpy()
    bireme.seed(5)
    _made("NormalInitializer", seed=7)
    np.testing.assert_array_equal(bireme.rand([3]).numpy(), want)


def test_given() -> None:
    assert (_made("ConstantInitializer", value=3.0, force_cpu=True) == 3).all()
    array = np.arange(3000, dtype="float32").reshape(60, 50)
    np.testing.assert_array_equal(_made("NumpyArrayInitializer", value=array), array)
    diagonal = _made("UniformInitializer", diag_num=50, diag_step=50, diag_val=9.0)
    assert (np.diag(diagonal) == 9).all()
    assert (diagonal == 9).sum() == 50
    with pytest.raises(ValueError, match="do not fit"):
        _made("UniformInitializer", diag_num=61, diag_step=50)


def test_the_wheel_has_the_same_parameters(paddle: Any) -> None:
    import inspect

    for name in bireme.nn.initializer._OLDER:
        mine, theirs = (
            inspect.signature(getattr(m.nn.initializer, name)).parameters for m in (bireme, paddle)
        )
        assert [(p.name, p.default) for p in mine.values()] == [
            (p.name, p.default) for p in theirs.values()
        ]
