"""Models that Keras saved: results, what goes on from there, damage."""

from __future__ import annotations

import contextlib
import io
import json
import lzma
import pathlib
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import convert, jit
from bireme.convert import keras
from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.imported import ImportedModel
from bireme.convert.keras.hdf5 import File
from bireme.convert.keras.reader import snake_case
from bireme.core.errors import BiremeError

GOLDEN = pathlib.Path(__file__).parent / "golden"
FILES = ["pictures.keras", "sounds.keras", "sounds.h5"]


def figures(name: str) -> tuple[np.ndarray, list[np.ndarray]]:
    with np.load(GOLDEN / f"{name.split('.')[0]}.npz") as file:
        return file["x"], [file[f"result{i}"] for i in range(len(file.files) - 1)]


def results(model: Any, x: np.ndarray) -> list[np.ndarray]:
    made = model(paddle.to_tensor(x))
    return [m.numpy() for m in (made if isinstance(made, list | tuple) else [made])]


@pytest.mark.parametrize("name", FILES)
def test_results(name: str, tier: str) -> None:
    model = convert.load(GOLDEN / name)
    assert isinstance(model, ImportedModel)
    x, want = figures(name)
    for got, wanted in zip(results(model, x), want, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FILES[:2])
def test_saved_and_exported_with_an_open_batch(name: str, tmp_path: pathlib.Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = keras.load(GOLDEN / name)
    x = np.concatenate([figures(name)[0]] * 2)[:3]
    want = results(model, x)
    path = str(tmp_path / "saved")
    jit.save(model, path, model.input_specs())
    paddle.onnx.export(model, path, model.input_specs())
    session = runtime.InferenceSession(path + ".onnx")
    theirs = session.run(None, {session.get_inputs()[0].name: x})
    for wanted, again, other in zip(want, results(jit.load(path), x), theirs, strict=True):
        np.testing.assert_allclose(again, wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(other, wanted, rtol=1e-3, atol=1e-5)


def sequences(folder: pathlib.Path, ending: str) -> ImportedModel:
    """The model of recurrent layers and attention."""
    path = folder / f"sequences.{ending}"
    path.write_bytes(lzma.decompress((GOLDEN / f"sequences.{ending}.xz").read_bytes()))
    return keras.load(path)


@pytest.mark.parametrize("ending", ["keras", "h5"])
def test_recurrent_layers_and_attention(ending: str, tmp_path: pathlib.Path) -> None:
    model = sequences(tmp_path, ending)
    x, want = figures("sequences")
    for got, wanted in zip(results(model, x), want, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    parameters = dict(model.named_parameters())
    assert list(parameters["bidirectional.forward_kernel"].shape) == [6, 16]
    loss = sum((m * m).mean() for m in model(paddle.to_tensor(x)))
    assert isinstance(loss, paddle.Tensor)
    loss.backward()
    for name, parameter in parameters.items():
        assert parameter.grad is not None, name
    if ending == "keras":
        jit.save(model, str(tmp_path / "saved"), model.input_specs())
        more = np.concatenate([x] * 2)[:3]
        again = results(jit.load(str(tmp_path / "saved")), more)
        np.testing.assert_allclose(again[0], results(model, more)[0], rtol=1e-4, atol=1e-5)


SEQUENCES: dict[str, tuple[str, dict[str, Any], str]] = {
    "another gate": ("LSTM", {"recurrent_activation": "hard_sigmoid"}, "'hard_sigmoid' of LSTM"),
    "states": ("LSTM", {"return_state": True}, "return_state has no rule"),
    "an older GRU": ("GRU", {"reset_after": False}, "reset_after=False"),
    "another merge": ("Bidirectional", {"merge_mode": "warp"}, "merge_mode 'warp'"),
    "axes": ("MultiHeadAttention", {"attention_axes": [2]}, "other axes than time"),
}


@pytest.mark.parametrize("what", SEQUENCES)
def test_refused_sequences(what: str, tmp_path: pathlib.Path) -> None:
    kind, settings, message = SEQUENCES[what]
    whole = lzma.decompress((GOLDEN / "sequences.keras.xz").read_bytes())

    def change(config: dict[str, Any]) -> None:
        _layer(config, kind)["config"].update(settings)

    path = tmp_path / "model.keras"
    path.write_bytes(changed(io.BytesIO(whole), change))
    with pytest.raises((ModelFileError, UnsupportedModel), match=message):
        convert.load(path)(paddle.ones([1, 7, 6]))


def test_a_tensor_under_a_name_that_a_rule_does_not_know(tmp_path: pathlib.Path) -> None:
    def change(config: dict[str, Any]) -> None:
        call = _layer(config, "LSTM")["inbound_nodes"][0]
        call["kwargs"]["mask"] = call["args"][0]

    whole = lzma.decompress((GOLDEN / "sequences.keras.xz").read_bytes())
    path = tmp_path / "model.keras"
    path.write_bytes(changed(io.BytesIO(whole), change))
    with pytest.raises(UnsupportedModel, match=r"a call with \['mask'\] has no rule"):
        convert.load(path)(paddle.ones([1, 7, 6]))


def test_it_trains() -> None:
    model = keras.load(GOLDEN / "pictures.keras")
    names = {n for n, _ in model.named_parameters()}
    assert {"stem_conv.kernel", "twice.bias"} <= names
    assert not any("moving" in n for n in names)
    x, _ = figures("pictures")
    optimizer = paddle.optimizer.SGD(0.05, parameters=model.parameters())
    losses = []
    for _ in range(3):
        loss = -paddle.log(model(paddle.to_tensor(x))[0][:, 0]).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss.item())
    assert losses[2] < losses[0]


def changed(source: str | io.BytesIO, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A golden file with another configuration."""
    made = io.BytesIO()
    name = GOLDEN / source if isinstance(source, str) else source
    with zipfile.ZipFile(name) as old, zipfile.ZipFile(made, "w") as new:
        for entry in old.namelist():
            content = old.read(entry)
            if entry == "config.json":
                config = json.loads(content)
                change(config)
                content = json.dumps(config).encode()
            new.writestr(entry, content)
    return made.getvalue()


def _layer(config: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(c for c in config["config"]["layers"] if c["class_name"] == kind)


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "own class": (
        lambda c: _layer(c, "Dense").update(registered_name="mine>Dense", module="mine"),
        "no rule: mine>Dense:Dense",
    ),
    "own model": (lambda c: c.update(class_name="MyModel"), "'MyModel' is a class"),
    "own activation": (
        lambda c: _layer(c, "Dense")["config"].update(activation="my_own"), "'my_own' has no rule",
    ),
    "mixed precision": (
        lambda c: _layer(c, "Dense")["config"].update(dtype="mixed_float16"),
        "the dtype policy 'mixed_float16'",
    ),
    "more weights": (
        lambda c: _layer(c, "Dense")["config"].update(use_bias=False), "has 2 weights, not 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_refused(what: str, tmp_path: pathlib.Path) -> None:
    change, message = CHANGES[what]
    path = tmp_path / "model.keras"
    path.write_bytes(changed("sounds.keras", change))
    with pytest.raises((ModelFileError, UnsupportedModel), match=message):
        convert.load(path)(paddle.ones([1, 12, 4]))


def test_a_circle_is_refused(tmp_path: pathlib.Path) -> None:
    def circle(config: dict[str, Any]) -> None:
        call = _layer(config, "BatchNormalization")["inbound_nodes"][0]
        history = call["args"][0]["config"]["keras_history"]
        history[0] = _layer(config, "BatchNormalization")["config"]["name"]

    path = tmp_path / "model.keras"
    path.write_bytes(changed("pictures.keras", circle))
    with pytest.raises(ModelFileError, match="what no layer makes, or makes itself"):
        convert.load(path)


def test_code_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="no rule: Lambda"):
        convert.load(GOLDEN / "lambda.keras")


def test_weights_alone_are_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "weights.h5"
    with zipfile.ZipFile(GOLDEN / "sounds.keras") as archive:
        path.write_bytes(archive.read("model.weights.h5"))
    with pytest.raises(ModelFileError, match="weights without a model"):
        convert.load(path)


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_raise_one_class_of_error(name: str, tmp_path: pathlib.Path) -> None:
    rng = random.Random(5)
    whole = (GOLDEN / name).read_bytes()
    path = tmp_path / "damaged"
    for _ in range(50):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 255, rng.randrange(256)])
        path.write_bytes(bytes(data[: rng.choice([len(data), rng.randrange(len(data))])]))
        with contextlib.suppress(BiremeError):
            keras.load(path)


def test_hdf5_members() -> None:
    with zipfile.ZipFile(GOLDEN / "sounds.keras") as archive:
        root = File(archive.read("model.weights.h5")).root
    layers = root.children()["layers"].children()
    assert {"conv1d", "conv1d_1", "dense"} <= set(layers)
    assert layers["conv1d"].children()["vars"].children()["0"].array().shape == (3, 4, 6)
    with pytest.raises(ModelFileError, match="no HDF5"):
        File(b"text")


@pytest.mark.parametrize(
    ("name", "path"),
    [("Conv2DTranspose", "conv2d_transpose"), ("ReLU", "re_lu"), ("PReLU", "p_re_lu"),
     ("GlobalAveragePooling2D", "global_average_pooling2d"), ("LSTM", "lstm")],
)  # fmt: skip
def test_paths_of_classes(name: str, path: str) -> None:
    assert snake_case(name) == path


def test_nothing_of_keras_is_imported() -> None:
    program = (
        "import sys\nfor name in ('torch', 'tensorflow', 'keras', 'h5py'):\n"
        "    sys.modules[name] = None\n"
        "from bireme import convert\n"
        f"print(convert.load({str(GOLDEN / 'sounds.h5')!r}).output_names)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
