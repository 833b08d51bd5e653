"""Exported models give the same results in ONNX Runtime, at every batch size."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import bireme as paddle
from bireme import nn
from bireme.convert.onnx import UnsupportedOps
from bireme.core.errors import InvalidArgument
from bireme.nn import functional as F
from bireme.static import InputSpec

sys.path.insert(0, str(Path(__file__).parents[1] / "jit"))
from tests.jit.models import SmallCNN, SmallTransformer

onnxruntime = pytest.importorskip("onnxruntime")


def check(layer, specs, batches, folder, opset=17) -> None:
    path = paddle.onnx.export(layer, str(folder / "model"), specs, opset_version=opset)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    if isinstance(layer, nn.Layer):
        layer.eval()
    for batch in batches:
        have = session.run(None, dict(zip(names, batch, strict=True)))
        want = layer(*[paddle.to_tensor(b) for b in batch])
        want = want if isinstance(want, list | tuple) else [want]
        for a, b in zip(have, want, strict=True):
            assert a.dtype == b.numpy().dtype
            np.testing.assert_allclose(a, b.numpy(), rtol=1e-4, atol=1e-5)


def data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.mark.parametrize("opset", [13, 17, 20])
def test_cnn(tmp_path, opset) -> None:
    model = SmallCNN()
    model(paddle.to_tensor(data(4, 3, 8, 8)))
    batches = [(data(n, 3, 8, 8, seed=n),) for n in (1, 3, 8)]
    check(model, [InputSpec([None, 3, 8, 8], name="image")], batches, tmp_path, opset)


@pytest.mark.parametrize("opset", [13, 17, 20])
def test_transformer(tmp_path, opset) -> None:
    rng = np.random.default_rng(0)
    batches = [(rng.integers(0, 50, (n, 8)),) for n in (1, 3, 8)]
    check(SmallTransformer(dropout=0.1), [InputSpec([None, 8], "int64")], batches, tmp_path, opset)


def test_open_length_and_masks(tmp_path) -> None:
    def function(x, mask):
        q = x.reshape([x.shape[0], x.shape[1], 4, 4])
        k = q[:, :, :2]
        causal = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        masked = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
        shared = F.scaled_dot_product_attention(q, k, k)
        return causal, masked.reshape([0, 0, 16]), shared.reshape([-1, 16])

    spec = [InputSpec([None, "length", 16]), InputSpec([None, 1, "length", "length"])]
    batches = [(data(n, m, 16), data(n, 1, m, m)) for n, m in ((1, 3), (2, 7))]
    with pytest.raises(UnsupportedOps, match="getitem"):
        check(function, spec, batches, tmp_path)

    def without_slices(x, mask):
        q = x.reshape([x.shape[0], x.shape[1], 4, 4])
        k = q.mean(axis=2, keepdim=True)
        causal = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        masked = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
        shared = F.scaled_dot_product_attention(q, k, k)
        return causal, masked.reshape([0, 0, 16]), shared.reshape([-1, 16])

    check(without_slices, spec, batches, tmp_path)


LAYERS = {
    "average": lambda: nn.AvgPool2D(3, 2, padding=1),
    "average, padding excluded": lambda: nn.AvgPool2D(3, 2, padding=1, exclusive=False),
    "max, ceil": lambda: nn.MaxPool2D(3, 2, ceil_mode=True),
    "adaptive": lambda: nn.AdaptiveAvgPool2D(1),
    "grouped": lambda: nn.Conv2D(4, 8, 3, groups=2, dilation=2, padding=2),
    "instance": lambda: nn.Sequential(nn.Flatten(2), nn.LayerNorm(64)),
    "activations": lambda: nn.Sequential(
        nn.Silu(), nn.LeakyReLU(0.1), nn.Hardswish(), nn.Mish(), nn.ReLU6(), nn.GELU(True)
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(tmp_path, name) -> None:
    batches = [(data(n, 4, 8, 8),) for n in (1, 3)]
    check(LAYERS[name](), [InputSpec([None, 4, 8, 8])], batches, tmp_path)


def test_functions(tmp_path) -> None:
    def function(x):
        low, high = paddle.split(x, 2, axis=1)
        joined = paddle.concat([low * 2, high], axis=0)
        stacked = paddle.stack([low, high], axis=1)
        best = x.argmax(axis=-1)
        return joined, stacked.sum(axis=[1, 2]), best, x.cast("float64").max(), x.transpose([1, 0])

    check(function, [InputSpec([None, 4])], [(data(n, 4),) for n in (1, 5)], tmp_path)


def test_all_missing_ops_are_named(tmp_path) -> None:
    def function(x):
        return paddle.digamma(x) + paddle.lgamma(F.dropout(x, 0.5))

    with pytest.raises(UnsupportedOps) as error:
        paddle.onnx.export(function, str(tmp_path / "x"), [InputSpec([None])])
    message = str(error.value)
    assert all(f"[{n}]" in message for n in ("digamma", "lgamma", "dropout (random)"))
    assert "test_onnx_export.py" in message
    assert not list(tmp_path.iterdir())


def test_bad_arguments(tmp_path) -> None:
    with pytest.raises(InvalidArgument, match="at least 13"):
        paddle.onnx.export(nn.ReLU(), str(tmp_path / "x"), [InputSpec([1])], opset_version=9)
    with pytest.raises(InvalidArgument, match="file name"):
        paddle.onnx.export(nn.ReLU(), "", [InputSpec([1])])


def test_missing_package(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'bireme\[onnx\]'"):
        paddle.onnx.export(nn.ReLU(), str(tmp_path / "x"), [InputSpec([1])])
