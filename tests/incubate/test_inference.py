"""`paddle.incubate.inference`: layers that a predictor runs."""

from __future__ import annotations

import os

import numpy as np
import pytest

import bireme as paddle
from bireme import nn
from bireme.core.errors import InvalidArgument
from bireme.incubate import inference

RNG = np.random.default_rng(4)


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.drop = nn.Dropout(0.5)

    def forward(self, x, scale=2.0):
        return self.linear(self.drop(x)) * scale

    def pair(self, xs, y=None):
        total = xs[0] + xs[1]
        return total, total if y is None else total * y


def rows(n):
    return paddle.to_tensor(RNG.standard_normal((n, 8)).astype("float32"))


def plain(net, x, scale=2.0):
    return (x.numpy() @ net.linear.weight.numpy() + net.linear.bias.numpy()) * scale


def test_a_layer(tmp_path):
    net = Net()
    assert inference(net, save_model_dir=str(tmp_path)) is net
    assert inference(net) is net  # a second time changes nothing
    for n in (2, 2, 5, 7):  # the second size opens the dimension
        x = rows(n)
        np.testing.assert_allclose(net(x).numpy(), plain(net, x), rtol=1e-4, atol=1e-5)
    shapes, predictor = next(iter(net.forward._met.values()))
    assert shapes == [[None, 8]]
    assert predictor.get_input_names()
    x = rows(3)
    np.testing.assert_allclose(net(x, scale=3.0).numpy(), plain(net, x, 3.0), rtol=1e-4, atol=1e-5)
    assert len(net.forward._met) == 2, "another number is another model"
    assert net(x).stop_gradient


def test_a_method_with_lists(tmp_path):
    net = Net()
    pair = inference(net.pair, save_model_dir=str(tmp_path))
    a, b, c = rows(2), rows(2), rows(2)
    first, second = pair([a, b], y=c)
    np.testing.assert_allclose(first.numpy(), (a + b).numpy(), rtol=1e-6)
    np.testing.assert_allclose(second.numpy(), ((a + b) * c).numpy(), rtol=1e-5)
    np.testing.assert_allclose(pair([a, b])[1].numpy(), (a + b).numpy(), rtol=1e-6)


def test_as_a_decorator_and_from_the_disk(tmp_path, monkeypatch):
    folder = str(tmp_path)

    class Decorated(Net):
        @inference(cache_static_model=True, save_model_dir=folder)
        def forward(self, x):
            return self.linear(x)

    net, x = Decorated(), rows(3)
    np.testing.assert_allclose(net(x).numpy(), plain(net, x, 1.0), rtol=1e-4, atol=1e-5)
    assert os.path.exists(os.path.join(folder, "infer.json"))
    saved = plain(net, x, 1.0)
    again = Decorated()  # other weights: those on the disk count
    monkeypatch.setattr(paddle.jit, "save", lambda *a: pytest.fail("saved again"))
    np.testing.assert_allclose(again(x).numpy(), saved, rtol=1e-4, atol=1e-5)


def test_precision_and_passes(tmp_path):
    net, x = Net(), rows(4)
    inference(
        net, save_model_dir=str(tmp_path), precision_mode="bfloat16", collect_shape=True,
        delete_pass_lists=["constant_folding_pass"], switch_ir_optim=True, enable_cinn=True,
    )  # fmt: skip
    out = net(x)
    np.testing.assert_allclose(out.numpy(), plain(net, x), rtol=3e-2, atol=3e-2)
    assert np.abs(out.numpy() - plain(net, x)).max() > 0, "computed in another precision"
    assert any("shapes" in name for name in os.listdir(tmp_path))


def test_what_it_refuses():
    for switch in ("with_trt", "trt_use_static", "exp_enable_use_cutlass"):
        with pytest.raises(InvalidArgument, match="TensorRT"):
            inference(Net(), **{switch: True})
    with pytest.raises(InvalidArgument, match="precision_mode"):
        inference(Net(), precision_mode="int4")
    with pytest.raises(InvalidArgument, match="a Layer or a function"):
        inference(3)
