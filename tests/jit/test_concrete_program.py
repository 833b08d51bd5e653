"""A captured function as a static program."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme import static
from bireme.core.errors import CaptureError


class Net(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.linear = paddle.nn.Linear(3, 2)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.linear(x) * 2


def test_it_computes_the_same() -> None:
    net = paddle.jit.to_static(Net(), input_spec=[static.InputSpec([None, 3], "float32")])
    made = net.forward.concrete_program
    assert made.inputs[0].shape == [-1, 3]
    assert [p.name for p in made.parameters] == [p.name for p in net.parameters()]
    x = np.ones((2, 3), "float32")
    (out,) = static.Executor().run(made.main_program, feed={"x": x}, fetch_list=made.outputs)
    np.testing.assert_allclose(out, net(paddle.to_tensor(x)).numpy(), rtol=1e-6)
    assert paddle.in_dynamic_mode()
    assert "self.linear(x) * 2" in net.forward.code


def test_arguments_must_be_known() -> None:
    function = paddle.jit.to_static(lambda x: x + 1)
    with pytest.raises(CaptureError, match="not captured yet"):
        _ = function.main_program
    function(paddle.ones([2]))
    assert isinstance(function.main_program, static.Program)
