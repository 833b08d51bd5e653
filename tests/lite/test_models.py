"""Whole networks in Bireme Lite's runtime: open sizes, loops, stored weights, the engine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bireme as paddle
import bireme.nn.functional as F
from bireme import lite
from bireme.core.errors import InvalidArgument
from bireme.inference import Config, create_predictor
from bireme.inference.engines import EngineUnavailable
from bireme.lite import LiteError
from bireme.lite.exporter import UnsupportedOps

InputSpec = paddle.static.InputSpec
OCR = Path(paddle.__file__).parent / "ocr" / "weights"
NETS = [
    "alexnet",
    "vgg11",
    "resnet18",
    "resnext50_32x4d",
    "wide_resnet50_2",
    "mobilenet_v1",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "squeezenet1_1",
    "densenet121",
    "shufflenet_v2_x0_5",
    "shufflenet_v2_swish",
    "googlenet",
    "inception_v3",
]


def relative(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.abs(got - want).max() / np.abs(want).max())


def run_here(layer: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    layer.eval()
    with paddle.no_grad():
        out = layer(*[paddle.to_tensor(a) for a in arrays])
    return [o.numpy() for o in (out if isinstance(out, list | tuple) else [out])]


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


class Encoder(paddle.nn.Layer):
    """As MiniLM: embeddings, masked attention, a mean over words of one length."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = paddle.nn.Embedding(100, 64), paddle.nn.Embedding(32, 64)
        layer = paddle.nn.TransformerEncoderLayer(64, 4, 128, activation="gelu")
        self.layers, self.norm = (
            paddle.nn.TransformerEncoder(layer, 2),
            paddle.nn.LayerNorm(64),
        )

    def forward(self, ids, mask):
        h = self.words(ids) + self.places(paddle.arange(ids.shape[1]))
        hidden = (mask.astype("float32").unsqueeze([1, 2]) - 1) * 1e4
        h = self.norm(self.layers(h, hidden))
        kept = mask.astype("float32").unsqueeze(-1)
        return F.normalize((h * kept).sum(1) / kept.sum(1))


def test_an_encoder_at_many_lengths(tmp_path: Path) -> None:
    net = Encoder()
    specs = [InputSpec([None, None], "int64", n) for n in ("ids", "mask")]
    model = lite.Model(lite.export(net, tmp_path / "m", specs), threads=2)
    assert model.inputs == [("ids", "int64", (-1, -1)), ("mask", "int64", (-1, -1))]
    for batch, length in ((2, 9), (1, 1), (3, 30), (2, 9)):
        ids = np.random.default_rng(length).integers(0, 100, (batch, length))
        mask = np.ones((batch, length), np.int64)
        mask[-1, length // 2 + 1 :] = 0
        (want,) = run_here(net, ids, mask)
        assert relative(model(ids, mask)[0], want) < 1e-5
    with pytest.raises(LiteError, match="axis 1 of mask must be 9 here, not 8"):
        model(np.ones((2, 9), np.int64), np.ones((2, 8), np.int64))
    with pytest.raises(InvalidArgument, match="int64"):
        model(np.ones((2, 9), np.float32), np.ones((2, 9), np.int64))
    with pytest.raises(InvalidArgument, match="axes"):
        model(np.ones(9, np.int64), np.ones((2, 9), np.int64))


class Recurrent(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.words = paddle.nn.Embedding(10, 8)
        self.lstm = paddle.nn.LSTM(8, 16, 2, direction="bidirect")
        self.gru = paddle.nn.GRU(32, 8)

    def forward(self, ids):
        y, (h, _) = self.lstm(self.words(ids))
        return self.gru(y)[0], h


def test_recurrent_layers(tmp_path: Path) -> None:
    net, ids = Recurrent(), np.random.default_rng(0).integers(0, 10, (3, 7))
    model = lite.Model(lite.export(net, tmp_path / "m", [InputSpec([None, None], "int64", "i")]))
    for got, want in zip(model(ids), run_here(net, ids), strict=True):
        assert relative(got, want) < 1e-5


class Looping(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.fc = paddle.nn.Linear(4, 4)

    def forward(self, x):
        start = [paddle.zeros([], "int32"), x]
        _, y = paddle.static.nn.while_loop(
            lambda i, y: i < 5, lambda i, y: (i + 1, paddle.tanh(self.fc(y))), start
        )
        return paddle.static.nn.cond(y.sum() > 0, lambda: y + 1, lambda: y - 1)


def test_loops_and_branches(tmp_path: Path) -> None:
    net = Looping()
    path = lite.export(net, tmp_path / "m", [InputSpec([None, 4], "float32", "x")])
    model = lite.Model(path)
    for x in (image(3, 4), -image(3, 4)):
        assert relative(model(x)[0], run_here(net, x)[0]) < 1e-5
    with pytest.raises(LiteError, match="step_limit"):
        lite.Model(path, step_limit=3)(image(3, 4))
    with pytest.raises(LiteError, match="memory_limit"):
        lite.Model(path, memory_limit=100)(image(3, 4))


@pytest.mark.parametrize(
    ("weights", "share", "within"), [("float16", 0.51, 2e-3), ("int8", 0.27, 0.05)]
)
def test_stored_weights(weights: str, share: float, within: float, tmp_path: Path) -> None:
    net = paddle.nn.Sequential(
        paddle.nn.Conv2D(3, 64, 3), paddle.nn.ReLU(), paddle.nn.Conv2D(64, 128, 3),
        paddle.nn.AdaptiveAvgPool2D(1), paddle.nn.Flatten(), paddle.nn.Linear(128, 400),
    )  # fmt: skip
    specs = [InputSpec([None, 3, 8, 8], "float32", "x")]
    full = os.path.getsize(lite.export(net, tmp_path / "full", specs))
    path = lite.export(net, tmp_path / "low", specs, weights=weights)
    assert os.path.getsize(path) < share * full
    x = image(2, 3, 8, 8)
    error = relative(lite.Model(path)(x)[0], run_here(net, x)[0])
    assert 1e-6 < error < within
    with pytest.raises(InvalidArgument, match="float32, float16, int8"):
        lite.export(net, tmp_path / "low", specs, weights="int4")


def test_what_has_no_form_is_named_at_export(tmp_path: Path) -> None:
    def run(x):
        return paddle.fft.fft(x).real() + paddle.linalg.qr(x)[0]

    with pytest.raises(UnsupportedOps, match=r"\[fft.*\[qr\]"):
        lite.export(run, tmp_path / "m", [InputSpec([4, 4], "float32", "x")])
    assert not list(tmp_path.iterdir())


def test_files_that_are_none(tmp_path: Path) -> None:
    path = lite.export(lambda x: x + 1, tmp_path / "m", [InputSpec([2], "float32", "x")])
    good = Path(path).read_bytes()
    for bad in (b"", b"x" * 100, good[:-1], good[:40], good[8:]):
        with pytest.raises(LiteError, match=r"no model of Bireme Lite|damaged"):
            lite.Model(bad)
    at = good.index(b"\x03\0\0\0add\0")
    with pytest.raises(LiteError, match="this library has no op adz"):
        lite.Model(good[: at + 6] + b"z" + good[at + 7 :])
    with pytest.raises(LiteError, match="cannot be read"):
        lite.Model(tmp_path / "none")
    np.testing.assert_array_equal(lite.Model(good)(np.zeros(2, np.float32))[0], [1, 1])


def test_a_window_of_nothing_is_refused(tmp_path: Path) -> None:
    """Packing would divide by its size."""
    specs = [InputSpec(s, "float32", n) for s, n in (([1, 3, 8, 8], "x"), ([4, 3, 3, 3], "w"))]
    good = Path(lite.export(lambda x, w: F.conv2d(x, w), tmp_path / "m", specs)).read_bytes()
    shape = np.array([4, 3, 3, 3]).tobytes()
    assert good.count(shape) == 1
    with pytest.raises(LiteError, match="conv: sizes"):
        lite.Model(good.replace(shape, np.array([4, 3, 3, 0]).tobytes()))


def test_the_engine(tmp_path: Path) -> None:
    net = paddle.vision.models.mobilenet_v3_small()
    net.eval()
    paddle.jit.save(net, str(tmp_path / "m"), [InputSpec([None, 3, 64, 64], "float32", "x")])
    config = Config(str(tmp_path / "m"))
    config.set_engine("lite")
    config.set_cpu_math_library_num_threads(2)
    predictor = create_predictor(config)
    other = predictor.clone()
    for batch in (1, 2):
        x = image(batch, 3, 64, 64)
        for one in (predictor, other):
            (got,) = one.run([paddle.to_tensor(x)]) or []
            assert relative(got.numpy(), run_here(net, x)[0]) < 1e-5
    made = lite.export(str(tmp_path / "m"), tmp_path / "m")
    assert relative(lite.Model(made)(x)[0], got.numpy()) < 1e-6


def test_the_engine_says_what_it_cannot_run(tmp_path: Path) -> None:
    class Fourier(paddle.nn.Layer):
        def forward(self, x):
            return paddle.fft.fft(x).real()

    paddle.jit.save(Fourier(), str(tmp_path / "m"), [InputSpec([4], "float32", "x")])
    config = Config(str(tmp_path / "m"))
    config.set_engine("lite")
    with pytest.raises(EngineUnavailable, match=r"\[fft"):
        create_predictor(config).run([paddle.ones([4])])


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("ppocr-v2-direction", (1, 3, 48, 192)),
        ("ppocr-v6-tiny-detect", (1, 3, 2, 32, 3, 32)),
        ("ppocr-v6-tiny-recognise", (1, 3, 48, 96)),
    ],
)
def test_nets_that_read_text(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    x = image(*shape)
    path = lite.export(str(OCR / name), tmp_path / "m")
    (want,) = create_predictor(Config(str(OCR / name))).run([paddle.to_tensor(x)]) or []
    assert relative(lite.Model(path)(x)[0], want.numpy()) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_vision_nets(name: str, tmp_path: Path) -> None:
    size = {"alexnet": 224, "vgg11": 224, "inception_v3": 299, "googlenet": 224}.get(name, 64)
    net = getattr(paddle.vision.models, name)()
    x = image(1, 3, size, size)
    path = lite.export(net, tmp_path / "m", [InputSpec([None, 3, size, size], "float32", "x")])
    for got, want in zip(lite.Model(path)(x), run_here(net, x), strict=True):
        assert relative(got, want) < 1e-4


class Llama(paddle.nn.Layer):
    """One block with rotary places, RMS norms, shared keys and a cache that comes and goes."""

    def __init__(self) -> None:
        super().__init__()
        self.words = paddle.nn.Embedding(50, 32)
        self.before, self.after = paddle.nn.RMSNorm(32), paddle.nn.RMSNorm(32)
        self.q, self.kv = paddle.nn.Linear(32, 32), paddle.nn.Linear(32, 32)
        self.up, self.gate = paddle.nn.Linear(32, 64), paddle.nn.Linear(32, 64)
        self.down, self.head = paddle.nn.Linear(64, 32), paddle.nn.Linear(32, 50)

    def forward(self, ids, keys, values):
        old, new = keys.shape[1], ids.shape[1]
        h = self.words(ids)
        x = self.before(h)
        places = (paddle.arange(new) + old).astype("float32")
        q = _turned(self.q(x).reshape([0, 0, 4, 8]), places)
        k, v = self.kv(x).reshape([0, 0, 4, 8]).split(2, 2)
        keys = paddle.concat([keys, _turned(k, places)], 1)
        values = paddle.concat([values, v], 1)
        seen = paddle.arange(old + new).unsqueeze(0) <= (paddle.arange(new) + old).unsqueeze(1)
        h = h + F.scaled_dot_product_attention(
            q, keys.repeat_interleave(2, 2), values.repeat_interleave(2, 2), attn_mask=seen
        ).reshape([0, 0, 32])
        x = self.after(h)
        return self.head(h + self.down(F.silu(self.gate(x)) * self.up(x))), keys, values


def _turned(x, places):
    angle = places.unsqueeze(-1) * 10000 ** (-paddle.arange(4).astype("float32") / 4)
    cos, sin = paddle.cos(angle).unsqueeze(1), paddle.sin(angle).unsqueeze(1)
    a, b = x.chunk(2, -1)
    return paddle.concat([a * cos - b * sin, b * cos + a * sin], -1)


def test_a_decoder_with_its_cache(tmp_path: Path) -> None:
    net = Llama()
    specs = [InputSpec(["batch", "new"], "int64", "ids")]
    specs += [InputSpec(["batch", "old", 2, 8], "float32", n) for n in ("keys", "values")]
    model = lite.Model(lite.export(net, tmp_path / "m", specs))
    ids = np.random.default_rng(0).integers(0, 50, (2, 9))
    empty = np.zeros((2, 0, 2, 8), np.float32)
    (want, *_) = run_here(net, ids, empty, empty)
    got, keys, values = model(ids[:, :5], empty, empty)
    assert relative(got, want[:, :5]) < 1e-5
    for at in range(5, 9):
        got, keys, values = model(ids[:, at : at + 1], keys, values)
        assert relative(got, want[:, at : at + 1]) < 1e-5
