"""What is saved without input_spec: the function as it was called last."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme import jit, nn
from bireme.core.errors import InvalidArgument


class Scaled(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    @jit.to_static
    def forward(self, x, factor=1.0, shift=None):
        y = self.linear(x) * factor
        return y if shift is None else y + shift

    @jit.to_static
    def twice(self, x):
        return self.linear(x) * 2.0


def _data(*shape: int) -> paddle.Tensor:
    return paddle.to_tensor(np.random.default_rng(1).normal(size=shape).astype("float32"))


def test_the_last_call_says_what_the_inputs_are(tmp_path):
    layer, x = Scaled(), _data(2, 4)
    layer.eval()
    wanted = layer(x).numpy()
    jit.save(layer, str(tmp_path / "m"))
    loaded = jit.load(str(tmp_path / "m"))
    np.testing.assert_allclose(loaded(x).numpy(), wanted, rtol=1e-6)
    loaded(_data(3, 4))  # the size of a batch stays open
    with pytest.raises(InvalidArgument, match="4"):
        loaded(_data(3, 5))


def test_arguments_by_name_and_constants(tmp_path):
    layer, x, shift = Scaled(), _data(2, 4), _data(3)
    wanted = layer(shift=shift, x=x, factor=3.0).numpy()
    jit.save(layer, str(tmp_path / "m"))
    loaded = jit.load(str(tmp_path / "m"))
    np.testing.assert_allclose(loaded(x, shift).numpy(), wanted, rtol=1e-6)


def test_other_methods_are_saved_as_they_were_called(tmp_path):
    layer, x = Scaled(), _data(2, 4)
    layer(x)
    wanted = layer.twice(x).numpy()
    jit.save(layer, str(tmp_path / "m"))
    np.testing.assert_allclose(jit.load(str(tmp_path / "m")).twice(x).numpy(), wanted, rtol=1e-6)


def test_a_function(tmp_path):
    @jit.to_static
    def double(x):
        return x * 2.0

    x = _data(5)
    double(x)
    jit.save(double, str(tmp_path / "m"))
    np.testing.assert_array_equal(jit.load(str(tmp_path / "m"))(x).numpy(), x.numpy() * 2)


def test_nothing_is_known_before_a_call(tmp_path):
    with pytest.raises(InvalidArgument, match="call the function under to_static first"):
        jit.save(Scaled(), str(tmp_path / "m"))
