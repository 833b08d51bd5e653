"""Which inputs a saved model has, and which of their sizes are open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme.core.errors import InvalidArgument
from bireme.static import InputSpec

nn = paddle.nn
RNG = np.random.RandomState(0)


def _array(*shape: int) -> paddle.Tensor:
    return paddle.to_tensor(RNG.randn(*shape).astype("float32"))


class Trained(nn.Layer):
    """Predictions, and the loss that needs the labels."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, image: Any, label: Any, scale: float = 2.0) -> Any:
        out = nn.functional.dropout(self.linear(image) * scale, 0.5, training=self.training)
        return out, nn.functional.cross_entropy(out, label)


def _declared(**named: Any) -> Any:
    names = {"image": "image", "label": "label", **named}
    specs = [
        InputSpec([None, 4], "float32", names["image"]),
        InputSpec([None, 1], "int64", names["label"]),
    ]
    return paddle.jit.to_static(Trained(), input_spec=specs, full_graph=True)


def _check(net: Any, path: str) -> None:
    loaded: Any = paddle.jit.load(path)
    for batch in (1, 5):
        x = _array(batch, 4)
        net.eval()
        want = net.forward.dygraph_function(x, paddle.zeros([batch, 1], "int64"))[0]
        np.testing.assert_allclose(loaded(x).numpy(), want.numpy(), rtol=1e-6)
    loaded.train()
    assert (loaded(_array(64, 4)).numpy() == 0).any()  # the program for training is pruned, too


@pytest.mark.parametrize("how", ["spec", "names", "both", "port"])
def test_inputs_that_are_not_needed_may_be_left_out(how: str, tmp_path: Path) -> None:
    net = _declared(**({"image": None, "label": None} if how == "port" else {}))
    path = str(tmp_path / "m")
    settings: dict[str, Any] = {"output_spec": net.forward.outputs[:1]}
    if how in ("names", "both"):
        settings["input_names_after_prune"] = ["image"]
    if how in ("spec", "both"):
        settings["input_spec"] = [InputSpec([None, 4], "float32", "image")]
    if how == "port":
        settings["input_spec"] = [net.forward.inputs[0]]
    paddle.jit.save(net, path, **settings)
    _check(net, path)


def test_what_is_needed_stays(tmp_path: Path) -> None:
    net, path = _declared(), str(tmp_path / "m")
    with pytest.raises(InvalidArgument, match="need the input 'label'"):
        paddle.jit.save(net, path, input_names_after_prune=["image"])
    with pytest.raises(InvalidArgument, match="no input 'x'"):
        paddle.jit.save(net, path, output_spec=[0], input_names_after_prune=["x"])
    with pytest.raises(InvalidArgument, match="must name them"):
        paddle.jit.save(net, path, [InputSpec([None, 4])], output_spec=[0])
    with pytest.raises(InvalidArgument, match="list of names"):
        paddle.jit.save(net, path, input_names_after_prune=[0])


def test_a_batch_that_only_examples_gave_is_open(tmp_path: Path) -> None:
    path = str(tmp_path / "m")
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    called = paddle.jit.to_static(net, full_graph=True)
    called(_array(6, 4))
    for settings in ({}, {"input_spec": [_array(6, 4)]}):
        paddle.jit.save(called, path, **settings)
        x = _array(3, 4)
        np.testing.assert_allclose(paddle.jit.load(path)(x).numpy(), net(x).numpy(), rtol=1e-5)


def test_a_batch_that_the_function_needs_stays(tmp_path: Path) -> None:
    class Fixed(nn.Layer):
        def forward(self, x: Any) -> Any:
            return x + paddle.to_tensor(np.arange(int(x.shape[0]), dtype="float32"))[:, None]

    path = str(tmp_path / "m")
    paddle.jit.save(Fixed(), path, [_array(6, 4)])
    x = _array(6, 4)
    want = x.numpy() + np.arange(6, dtype="float32")[:, None]
    np.testing.assert_allclose(paddle.jit.load(path)(x).numpy(), want)
    with pytest.raises(InvalidArgument):
        paddle.jit.load(path)(_array(3, 4))


def test_sizes_that_a_spec_gives_stay(tmp_path: Path) -> None:
    path = str(tmp_path / "m")
    paddle.jit.save(nn.Linear(4, 2), path, [InputSpec([6, 4])])
    with pytest.raises(InvalidArgument):
        paddle.jit.load(path)(_array(3, 4))


def test_a_captured_function_may_be_declared_again() -> None:
    first = paddle.jit.to_static(lambda x: x * 2, full_graph=True)
    second = paddle.jit.to_static(first, input_spec=[InputSpec([None, 3])], full_graph=True)
    assert second is not first
    assert second.inputs[0].shape == (-1, 3)
    assert paddle.jit.to_static(first) is first


def test_specs_are_kept_by_shape_and_dtype() -> None:
    a, b = InputSpec([2, None]), InputSpec([2, None], name="x")
    assert hash(a) == hash(b)
    assert a != b
    with pytest.raises(ValueError, match="identifier"):
        InputSpec(["None", 2])  # type: ignore[list-item]
