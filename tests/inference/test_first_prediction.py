"""A first prediction waits for no compiler but XLA's."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import bireme as paddle
from bireme import inference, nn
from bireme.host import config
from bireme.kernels import native


def test_a_predictor_does_not_wait_for_native_kernels(monkeypatch, tmp_path):
    monkeypatch.setattr(config, "compile_mode", "auto")
    monkeypatch.setattr(native, "_library", None)
    monkeypatch.setattr(native, "_waiting", threading.Thread())  # as if it were being built
    monkeypatch.setattr(native, "_load", lambda wait: pytest.fail("waited for a build"))
    net = nn.Sequential(nn.Conv2D(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    net.eval()
    x = paddle.rand([2, 3, 8, 8])
    paddle.jit.save(net, str(tmp_path / "net"), [paddle.static.InputSpec([2, 3, 8, 8])])
    settings = inference.Config(str(tmp_path / "net"))
    settings.set_engine("xla")
    (found,) = inference.create_predictor(settings).run([x])
    np.testing.assert_allclose(found.numpy(), net(x).numpy(), rtol=1e-5, atol=1e-6)
