"""train() and eval() of a captured function, and conversions inside of one."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle


def test_a_function_in_eval_mode_records_no_gradient() -> None:
    f = paddle.jit.to_static(lambda x: x * 2, full_graph=True)
    x = paddle.ones([2])
    x.stop_gradient = False
    f.eval()
    assert f(x).stop_gradient
    f.train()
    f(x).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_a_method_of_a_layer_has_its_layers_mode() -> None:
    net = paddle.jit.to_static(paddle.nn.Linear(2, 2), full_graph=True)
    with pytest.raises(RuntimeError, match="of the layer"):
        net.forward.eval()  # pyright: ignore[reportFunctionMemberAccess]


def converted(x):
    x = paddle.to_tensor(x)
    return bool(x), int(x), float(x)


@pytest.mark.parametrize("shape", [(1,), (2, 3)])
def test_conversions_of_unknown_values(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).normal(0, 5, shape).astype("float32")
    f = paddle.jit.to_static(converted, full_graph=True)
    for made, dtype in zip(f(x), ("bool", "int64", "float32"), strict=True):
        np.testing.assert_array_equal(made.numpy().reshape(shape), x.astype(dtype))


def test_versions_are_those_of_the_family() -> None:
    x = paddle.rand([1, 4])
    x[0] = 2.0
    view = paddle.squeeze(x)
    assert view.inplace_version == 1
    x[0] = 3.0
    assert (x.inplace_version, view.inplace_version) == (2, 2)


class TwoResults(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(4, 2)

    def forward(self, x):
        y = self.linear(x)
        return y, y.mean()


def test_inputs_and_outputs_of_a_function(tmp_path) -> None:
    spec = paddle.static.InputSpec([None, 4], name="x")
    net = paddle.jit.to_static(TwoResults(), input_spec=[spec], full_graph=True)
    forward = net.forward
    assert [(s.name, s.shape) for s in forward.inputs] == [("x", (-1, 4))]  # pyright: ignore[reportFunctionMemberAccess]
    outputs = forward.outputs  # pyright: ignore[reportFunctionMemberAccess]
    assert [(s.name, s.shape) for s in outputs] == [("output_0", (-1, 2)), ("output_1", ())]
    paddle.jit.save(net, str(tmp_path / "m"), output_spec=outputs[:1])
    loaded = paddle.jit.load(str(tmp_path / "m"))
    assert loaded(paddle.ones([3, 4])).shape == [3, 2]
    assert loaded._input_spec() == [spec]
    assert [s.shape for s in loaded._output_spec()] == [(-1, 2)]
    with pytest.raises(RuntimeError, match="not captured yet"):
        paddle.jit.to_static(lambda x: x).outputs
