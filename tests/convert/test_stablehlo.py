"""StableHLO files come back as functions that agree, at every size left open."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme import nn
from bireme.convert import stablehlo
from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.nn import functional as F
from bireme.static import InputSpec
from tests.jit.models import SmallCNN

pytest.importorskip("flatbuffers")


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def test_layer(tmp_path) -> None:
    model = SmallCNN()
    model.eval()
    path = stablehlo.export(model, tmp_path / "m", [InputSpec([None, 3, 8, 8])])
    run = stablehlo.load(path)
    for n in (1, 5):
        x = paddle.to_tensor(data(n, 3, 8, 8))
        np.testing.assert_allclose(run(x).numpy(), model(x).numpy(), rtol=1e-4, atol=1e-5)


def test_saved_model_and_jax_alone(tmp_path) -> None:
    jax = pytest.importorskip("jax")
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    paddle.jit.save(model, str(tmp_path / "saved"), [InputSpec([None, 4])])
    loaded = paddle.jit.load(str(tmp_path / "saved"))
    path = stablehlo.export(loaded, tmp_path / "m")
    want = loaded(paddle.to_tensor(data(3, 4))).numpy()
    with open(path, "rb") as file:
        alone = jax.export.deserialize(bytearray(file.read()))
    np.testing.assert_allclose(np.asarray(alone.call(data(3, 4))[0]), want, rtol=1e-5, atol=1e-6)


def test_text_and_several_results() -> None:
    said = stablehlo.text(lambda x: (x + 1, F.relu(x)), [InputSpec([2, 3])])
    assert "stablehlo.add" in said
    assert "tensor<2x3xf32>" in said


def test_refused(tmp_path) -> None:
    with pytest.raises(InvalidArgument, match="random numbers"):
        stablehlo.export(lambda x: F.dropout(x, 0.5), tmp_path / "m", [InputSpec([3])])
    (tmp_path / "junk").write_bytes(b"junk" * 10)
    with pytest.raises(FileFormatError, match="not a StableHLO export"):
        stablehlo.load(tmp_path / "junk")
