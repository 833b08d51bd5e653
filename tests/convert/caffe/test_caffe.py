"""Nets of Caffe: results of OpenCV's importer, all versions, what goes on from there, damage."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import numpy as np
import pytest

import bireme as paddle
from bireme import convert, jit
from bireme.convert import caffe
from bireme.convert.caffe.reader import read_text
from bireme.convert.caffe.rules import rule
from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.imported import ImportedModel
from bireme.core.errors import BiremeError
from tests.convert.caffe.nets import NETS, detector_weights, layer, pictures_weights, weights_file

GOLDEN = pathlib.Path(__file__).parent / "golden"
INPUT = 'input: "x" input_shape { dim: 2 dim: 3 dim: 4 dim: 5 }\n'


def written(folder: pathlib.Path, text: str, weights: bytes | None = None) -> pathlib.Path:
    (folder / "deploy.prototxt").write_text(text)
    if weights is not None:
        (folder / "net.caffemodel").write_bytes(weights)
    return folder


def small(
    folder: pathlib.Path, layers: str, weights: dict[str, list[np.ndarray]], version: int = 2
) -> ImportedModel:
    """A net with these layers on an input of [2, 3, 4, 5]."""
    made = convert.load(written(folder, INPUT + layers, weights_file(weights, version)))
    assert isinstance(made, ImportedModel)
    return made


@pytest.mark.parametrize("name", NETS)
def test_results(name: str, tmp_path: pathlib.Path, tier: str) -> None:
    text, weights, _ = NETS[name]
    model = convert.load(written(tmp_path, text, weights_file(weights())))
    assert isinstance(model, ImportedModel)
    with np.load(GOLDEN / f"{name}.npz") as golden:
        made = model(paddle.to_tensor(golden["x"]))
        made = made if isinstance(made, list) else [made]
        assert model.output_names == golden.files[1:]
        for output, got in zip(model.output_names, made, strict=True):
            np.testing.assert_allclose(got.numpy(), golden[output], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NETS)
def test_saved_and_exported_with_an_open_batch(name: str, tmp_path: pathlib.Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    text, weights, shape = NETS[name]
    model = convert.load(written(tmp_path, text, weights_file(weights())))
    x = np.random.default_rng(2).normal(size=(3, *shape[1:])).astype("float32")
    want = paddle.utils.flatten(model(paddle.to_tensor(x)))
    path = str(tmp_path / "saved")
    jit.save(model, path, model.input_specs())
    again = paddle.utils.flatten(jit.load(path)(paddle.to_tensor(x)))
    paddle.onnx.export(model, path, model.input_specs())
    session = runtime.InferenceSession(path + ".onnx")
    theirs = session.run(None, {session.get_inputs()[0].name: x})
    for wanted, ours, other in zip(want, again, theirs, strict=True):
        np.testing.assert_allclose(ours.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(other, wanted.numpy(), rtol=1e-3, atol=1e-5)


def test_it_trains(tmp_path: pathlib.Path) -> None:
    text, weights, shape = NETS["pictures"]
    model = convert.load(written(tmp_path, text, weights_file(weights())))
    names = {n for n, _ in model.named_parameters()}
    assert {"c1.weight", "c1.bias", "s1.weight", "a2.weight", "d3.bias"} <= names
    assert {"b1.mean", "b1.variance"} <= set(model.state_dict()) - names
    optimizer = paddle.optimizer.SGD(0.5, parameters=model.parameters())
    x = paddle.ones([2, *shape[1:]])
    losses = []
    for _ in range(3):
        features, scores = model(x)
        loss = -paddle.log(scores[:, 0]).mean() + (features**2).mean()
        loss.backward()
        assert all(p.grad is not None for p in model.parameters())
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss.item())
    assert losses[2] < losses[0]


V1 = (
    INPUT
    + """
layers { name: "c" type: CONVOLUTION bottom: "x" top: "c"
  convolution_param { num_output: 2 kernel_size: 3 } blobs_lr: 1 weight_decay: 0 }
layers { name: "r" type: RELU bottom: "c" top: "c" }
layers { name: "s" type: SPLIT bottom: "c" top: "a" top: "b" }
layers { name: "e" type: ELTWISE bottom: "a" bottom: "b" top: "e"
  eltwise_param { operation: PROD } }
layers { name: "i" type: INNER_PRODUCT bottom: "e" top: "i"
  inner_product_param { num_output: 4 } include { phase: TEST } }
layers { name: "l" type: SOFTMAX_LOSS bottom: "i" top: "l" include { phase: TRAIN } }
"""
)
V0 = (
    INPUT
    + """
layers { layer { name: "c" type: "conv" num_output: 2 kernelsize: 3 biasterm: true }
  bottom: "x" top: "c" }
layers { layer { name: "r" type: "relu" } bottom: "c" top: "c" }
layers { layer { name: "i" type: "innerproduct" num_output: 4 } bottom: "c" top: "i" }
"""
)


@pytest.mark.parametrize(("version", "text"), [(1, V1), (0, V0)])
def test_older_versions(version: int, text: str, tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(0)
    kernel, flat = rng.normal(size=(2, 3, 3, 3)), rng.normal(size=(4, 12))
    weights = {"c": [kernel, np.ones(2)], "i": [flat, np.zeros(4)]}
    model = convert.load(written(tmp_path, text, weights_file(weights, version)))
    x = rng.normal(size=(2, 3, 4, 5)).astype("float32")
    cut = np.stack([x[:, :, i : i + 2, j : j + 3] for i in range(3) for j in range(3)], 2)
    want = np.maximum(np.einsum("nckhw,ock->nohw", cut, kernel.reshape(2, 3, 9)) + 1, 0)
    want = (want * want if version else want).reshape(2, 12) @ flat.T
    np.testing.assert_allclose(model(paddle.to_tensor(x)).numpy(), want, rtol=1e-4, atol=1e-4)


def test_shared_weights_are_one(tmp_path: pathlib.Path) -> None:
    of = 'param { name: "w" } inner_product_param { num_output: 3 bias_term: false axis: 3 }'
    layers = "".join(
        layer(n, "InnerProduct", b, n, of.replace("3 bias", "5 bias"))
        for n, b in (("one", "x"), ("two", "one"))
    )
    weight = np.random.default_rng(1).normal(size=(5, 5)).astype("float32")
    model = small(tmp_path, layers, {"one": [weight], "two": [weight]})
    assert len(model.parameters()) == 1
    x = np.random.default_rng(2).normal(size=(2, 3, 4, 5)).astype("float32")
    np.testing.assert_allclose(
        model(paddle.to_tensor(x)).numpy(), x @ weight.T @ weight.T, rtol=1e-4, atol=1e-5
    )


X = np.random.default_rng(7).normal(size=(2, 3, 4, 5)).astype("float32")
FACTOR = np.arange(1, 6, dtype="float32")


def _mvn(axes: tuple[int, ...]) -> np.ndarray:
    centred = X - X.mean(axes, keepdims=True)
    return centred / (np.sqrt((centred**2).mean(axes, keepdims=True)) + 1e-9)


def _across(size: int) -> np.ndarray:
    """Local response over a square of positions."""
    half = size // 2
    padded = np.pad(X**2, ((0, 0), (0, 0), (half, half), (half, half)))
    total = sum(padded[:, :, i : i + 4, j : j + 5] for i in range(size) for j in range(size))
    return X * (1 + 0.5 * total / size**2) ** -0.75


LAYERS: dict[str, tuple[str, str, list[np.ndarray], np.ndarray]] = {
    "mvn": ("MVN", "", [], _mvn((2, 3))),
    "mvn of all": ("MVN", "mvn_param { across_channels: true }", [], _mvn((1, 2, 3))),
    "norm of all": (
        "Normalize", "norm_param { across_spatial: true channel_shared: true }",
        [np.array([2.0])], 2 * X / np.sqrt((X**2).sum((1, 2, 3), keepdims=True)),
    ),
    "lrn within": (
        "LRN", "lrn_param { norm_region: WITHIN_CHANNEL local_size: 3 alpha: 0.5 }", [],
        _across(3),
    ),
    "scale of the last": ("Scale", "scale_param { axis: -1 }", [FACTOR], X * FACTOR),
    "bias": ("Bias", "bias_param { axis: 3 }", [FACTOR], X + FACTOR),
    "exp": ("Exp", "exp_param { base: 2 scale: 0.5 shift: 1 }", [], 2 ** (0.5 * X + 1)),
    "log": ("Log", "log_param { base: 10 scale: 0 shift: 100 }", [], np.full_like(X, 2)),
    "power": ("Power", "power_param { power: 2 scale: 3 }", [], 9 * X**2),
    "threshold": ("Threshold", "threshold_param { threshold: 0.5 }", [], (X > 0.5) * 1.0),
    "bnll": ("BNLL", "", [], np.log1p(np.exp(X))),
    "elu": ("ELU", "elu_param { alpha: 2 }", [], np.where(X > 0, X, 2 * (np.exp(X) - 1))),
    "abs": ("AbsVal", "", [], np.abs(X)),
    "sum": ("Reduction", "reduction_param { operation: SUMSQ axis: 2 coeff: 2 }", [],
            2 * (X**2).sum((2, 3))),
    "mean": ("Reduction", "reduction_param { operation: MEAN axis: 1 }", [], X.mean((1, 2, 3))),
    "argmax": ("ArgMax", "argmax_param { axis: 1 }", [], X.argmax(1)[:, None] * 1.0),
    "argmax of all": ("ArgMax", "argmax_param { out_max_val: true }", [], np.stack(
        [X.reshape(2, -1).argmax(1), X.reshape(2, -1).max(1)], 1)[:, :, None]),
    "tile": ("Tile", "tile_param { axis: 2 tiles: 3 }", [], np.tile(X, (1, 1, 3, 1))),
    "flatten": ("Flatten", "flatten_param { axis: -3 end_axis: -2 }", [], X.reshape(2, 12, 5)),
    "reshape": ("Reshape", "reshape_param { shape { dim: 6 dim: -1 } axis: 1 num_axes: 2 }", [],
                X.reshape(2, 6, 2, 5)),
    "permute": ("Permute", "permute_param { order: 0 order: 3 }", [], X.transpose(0, 3, 1, 2)),
    "statistics of the batch": (
        "BatchNorm", "batch_norm_param { use_global_stats: false }",
        [np.zeros(3), np.ones(3), np.ones(1)],
        (X - X.mean((0, 2, 3), keepdims=True))
        / np.sqrt(X.var((0, 2, 3), keepdims=True) + 1e-5),
    ),
    "rounded down": (
        "Pooling", "pooling_param { kernel_size: 3 stride: 2 ceil_mode: false }", [],
        np.stack([X[:, :, :3, j : j + 3].max((2, 3)) for j in (0, 2)], -1)[:, :, None],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", LAYERS)
def test_layers(what: str, tmp_path: pathlib.Path) -> None:
    kind, settings, weights, want = LAYERS[what]
    model = small(tmp_path, layer("y", kind, "x", "y", settings), {"y": weights})
    made = model(paddle.to_tensor(X)).numpy()
    assert made.shape == want.shape
    np.testing.assert_allclose(made, want, rtol=2e-4, atol=2e-5)


def test_other_sizes_than_declared(tmp_path: pathlib.Path) -> None:
    model = small(tmp_path, layer("y", "Pooling", "x", "y", "pooling_param { kernel_size: 2 }"), {})
    assert model(paddle.ones([1, 3, 9, 9])).shape == [1, 3, 8, 8]
    with pytest.raises(BiremeError, match="the input 'x' is float32"):
        model(paddle.ones([3, 9, 9]))


# --- what is refused ------------------------------------------------------------------------

REFUSED = {
    "unknown": (layer("y", "Python", "x"), r"no rule: Python \(the layer 'y'\)"),
    "training net": (
        'layer { name: "d" type: "Data" top: "d" }', "a net for training|declared",
    ),
    "no weights": (layer("y", "Convolution", "x", "y", "convolution_param { kernel_size: 1 }"),
                   "no weights: y; the .caffemodel is needed"),
    "no such field": (layer("y", "ReLU", "x", "y", "relu_param { slope: 1 }"),
                      r"line \d+: the net.layer.relu_param has no field 'slope'"),
    "no number": (layer("y", "Power", "x", "y", "power_param { scale: much }"), "cannot be 'much'"),
    "never made": (layer("y", "ReLU", "z"), "'z' is used but never made"),
    "no end": ("layer { name: 'x'", "is expected, not 'the end'"),
    "deep": ("layer { a_param " + "{ a " * 9000, "ends inside a message"),
    "stochastic": (layer("y", "Pooling", "x", "y", "pooling_param { pool: STOCHASTIC }"),
                   "stochastic pooling"),
    "no kernel": (layer("y", "Pooling", "x"), r"kernel cannot be \[0, 0\]"),
    "a huge tile": (layer("y", "Tile", "x", "y", "tile_param { axis: 1 tiles: 2000000000 }"),
                    "cannot have the shape"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str, tmp_path: pathlib.Path) -> None:
    text, message = REFUSED[what]
    written(tmp_path, INPUT + text)
    with pytest.raises((ModelFileError, UnsupportedModel), match=message):
        convert.load(tmp_path / "deploy.prototxt")(paddle.ones([2, 3, 4, 5]))


def test_weights_that_do_not_fit(tmp_path: pathlib.Path) -> None:
    layers = layer("y", "Scale", "x")
    damaged = weights_file({"y": [np.ones(3)]}).replace(b"\x03", b"\x7f")
    with pytest.raises(ModelFileError):
        convert.load(written(tmp_path, INPUT + layers, damaged))


@pytest.mark.parametrize("value", ["0x10", "16", "020"])
def test_numbers_in_text(value: str) -> None:
    text = f'input: "a\\n\\x41\\101" "b" input_dim: {value} input_dim: [1, 2]'
    if value == "020":
        with pytest.raises(ModelFileError, match="cannot be '020'"):
            read_text(text)
    else:
        assert read_text(text) == {"input": ["a\nAAb"], "input_dim": [16, 1, 2]}


def test_the_files_of_a_folder(tmp_path: pathlib.Path) -> None:
    text = NETS["detector"][0]
    written(tmp_path, text, weights_file(detector_weights()))
    (tmp_path / "other.prototxt").write_text(text)
    found = caffe.find_files(str(tmp_path / "net.caffemodel"))
    assert found is not None
    assert found[0].endswith("deploy.prototxt")
    (tmp_path / "net.prototxt").write_text(text)
    assert caffe.find_files(str(tmp_path / "net.caffemodel")) == (
        str(tmp_path / "net.prototxt"), str(tmp_path / "net.caffemodel"),
    )  # fmt: skip
    assert caffe.find_files(str(tmp_path / "net.prototxt")) == (
        str(tmp_path / "net.prototxt"), str(tmp_path / "net.caffemodel"),
    )  # fmt: skip


def test_nothing_of_other_frameworks_is_imported(tmp_path: pathlib.Path) -> None:
    written(tmp_path, NETS["pictures"][0], weights_file(pictures_weights()))
    program = (
        "import sys\nfor name in ('torch', 'tensorflow', 'keras', 'caffe', 'cv2'):\n"
        "    sys.modules[name] = None\n"
        f"from bireme import convert\nprint(convert.load({str(tmp_path)!r}).input_names)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['data']"


def test_there_are_rules() -> None:
    assert {"Convolution", "DetectionOutput", "PriorBox", "LRN"} <= set(rule.names())
