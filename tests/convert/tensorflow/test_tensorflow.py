"""Models of TensorFlow: every op, the forms that files have, what goes on from there, damage."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import convert, jit
from bireme.convert import tensorflow
from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.imported import ImportedModel
from bireme.convert.tensorflow.files import kind_of
from bireme.convert.tensorflow.table import unpacked
from bireme.core.errors import BiremeError, InvalidArgument

GOLDEN = pathlib.Path(__file__).parent / "golden" / "models.tar.xz"


def unpack(folder: pathlib.Path) -> pathlib.Path:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return unpack(tmp_path_factory.mktemp("tensorflow"))


def results(model: Any, *inputs: np.ndarray, **named: np.ndarray) -> list[np.ndarray]:
    given = {k: paddle.to_tensor(v) for k, v in named.items()}
    made = model(*[paddle.to_tensor(x) for x in inputs], **given)
    return [m.numpy() for m in (made if isinstance(made, list | tuple) else [made])]


def close(got: np.ndarray, wanted: np.ndarray, bound: float = 1e-5) -> None:
    assert got.shape == wanted.shape
    assert got.dtype == wanted.dtype
    largest = np.abs(np.nan_to_num(wanted.astype(np.float64))).max(initial=1e-9)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=bound * largest)


def test_every_op_is_tensorflows(files: pathlib.Path) -> None:
    names = sorted((files / "ops").glob("*.pb"))
    assert len(names) > 140
    for path in names:
        with np.load(path.with_suffix(".npz")) as file:
            found = dict(file)
        inputs, outputs = found.pop("inputs"), found.pop("outputs")
        model = tensorflow.load(path, inputs=inputs.tolist(), outputs=outputs.tolist())
        made = results(model, *[found[f"x{i}"] for i in range(len(inputs))])
        for i, got in enumerate(made):
            try:
                close(got, found[f"y{i}"])
            except AssertionError as e:
                raise AssertionError(f"{path.stem}, result {i}: {e}") from e


FORMS = ["pb", "pbtxt", "meta"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("net", ["branches", "nested", "recurrent"])
def test_control_flow_of_tensorflow_1(files: pathlib.Path, net: str, form: str) -> None:
    path = files / "nets" / f"{net}.{form}"
    model = convert.load(path)
    assert isinstance(model, ImportedModel)
    assert not set(model.op_counts()) & {"Switch", "Merge", "Enter", "Exit", "LoopCond"}
    with np.load(files / "nets" / f"{net}.npz") as found:
        for i, sign in enumerate((1, -1)):
            close(results(model, sign * found["x"])[0], found[f"y{i}"])
    if form == "meta":
        names = [n for n, _ in model.named_parameters()]
        assert names == (["rnn/w", "rnn/b"] if net == "recurrent" else ["w"])


def saved(files: pathlib.Path) -> tuple[pathlib.Path, dict[str, np.ndarray]]:
    with np.load(files / "nets" / "saved.npz") as found:
        return files / "nets" / "saved", dict(found)


def test_saved_model(files: pathlib.Path, tier: str) -> None:
    path, wanted = saved(files)
    model: Any = convert.load(path)
    assert model.input_names == ["image"]
    assert model.output_names == ["map", "mean"]
    made = results(model, wanted["image"])
    close(made[0], wanted["map"])
    close(made[1], wanted["mean"])
    names = {n for n, _ in model.named_parameters()}
    assert {"conv/kernel", "same", "same_"} <= names
    assert len(model.state_dict()) == 5
    reader = convert.load(path, "read")
    close(results(reader, words=wanted["words"], scale=np.array(0.5, "float32"))[0], wanted["read"])


def test_signatures_are_named(files: pathlib.Path) -> None:
    with pytest.raises(InvalidArgument, match=r"no signature 'look'.*: read, serving_default"):
        convert.load(saved(files)[0], "look")


def test_saved_again_and_exported_with_open_sizes(
    files: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    source, wanted = saved(files)
    path = str(tmp_path / "model")
    model: Any = convert.load(source)
    jit.save(model, path, model.input_specs())
    paddle.onnx.export(model, path, model.input_specs())
    image = np.concatenate([wanted["image"]] * 2)[:3]
    expected = results(model, image)
    theirs = runtime.InferenceSession(path + ".onnx").run(None, {"image": image})
    for want, again, other in zip(expected, results(jit.load(path), image), theirs, strict=True):
        close(again, want)
        close(other, want, 1e-4)
    reader: Any = convert.load(source, "read")
    jit.save(reader, path, reader.input_specs())
    words, half = wanted["words"], np.array(0.5, "float32")
    given = {n: {"words": words, "scale": half}[n] for n in reader.input_names}
    close(results(jit.load(path), *given.values())[0], wanted["read"])


@pytest.mark.parametrize("net", ["saved", "recurrent.meta"])
def test_it_trains(files: pathlib.Path, net: str) -> None:
    model = convert.load(files / "nets" / net)
    with np.load(files / "nets" / f"{net.split('.')[0]}.npz") as found:
        x = paddle.to_tensor(found["image" if net == "saved" else "x"])
    optimizer = paddle.optimizer.SGD(0.02, parameters=model.parameters())
    losses = []
    for _ in range(3):
        made = model(x)
        first = made[0] if isinstance(made, list) else made
        loss = (first * first).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss.item())
    assert losses[2] < losses[0]


@pytest.mark.parametrize("net", ["nested", "recurrent"])
def test_tensorflow_js(files: pathlib.Path, net: str) -> None:
    folder = files / "nets" / f"{net}_js"
    assert kind_of(str(folder)) == kind_of(str(folder / "model.json")) == "TFJS"
    with np.load(files / "nets" / f"{net}.npz") as found:
        got = results(convert.load(folder), found["x"])[0]
        close(got, found["y0"], 0.03 if net == "recurrent" else 1e-5)  # weights of eight bits


# --- what is refused --------------------------------------------------------------------------


def test_code_is_refused(files: pathlib.Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"PyFunc.*runs code of the program's own"):
        convert.load(files / "nets" / "code.pb")


def test_unknown_ops_are_named(files: pathlib.Path, tmp_path: pathlib.Path) -> None:
    data = (files / "ops" / "erf.pb").read_bytes()
    path = tmp_path / "own.pb"
    path.write_bytes(data.replace(b"\x12\x03Erf", b"\x12\x03Own"))
    with pytest.raises(UnsupportedModel, match=r"1 operation.*no rule: Own \(the node"):
        convert.load(path)


def text(*nodes: str) -> str:
    return "\n".join(f"node {{ {n} }}" for n in nodes)


X = 'name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }'
WRONG = {
    "writes": (
        text(X, 'name: "v" op: "VarHandleOp"',
             'name: "w" op: "AssignVariableOp" input: "v" input: "x"',
             'name: "y" op: "Identity" input: "x" input: "^w"'),
        "AssignVariableOp .* writes to a variable",
    ),
    "a circle": (
        text(X, 'name: "a" op: "Add" input: "x" input: "b"',
             'name: "b" op: "Add" input: "x" input: "a"',
             'name: "y" op: "Neg" input: "a"'),
        "needs its own result",
    ),
    "a variable without weights": (
        text(X, 'name: "v" op: "VariableV2"', 'name: "y" op: "Add" input: "x" input: "v"'),
        "there are no weights beside the graph",
    ),
    "text": (
        text('name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_STRING } }',
             'name: "y" op: "Identity" input: "x"'),
        "'x' is of the kind string",
    ),
    "a table": (
        text(X, 'name: "t" op: "HashTableV2"',
             'name: "y" op: "LookupTableFindV2" input: "t" input: "x" input: "x"'),
        "HashTableV2",
    ),
    "a number of results": (
        text(X, 'name: "y" op: "Neg" input: "x:99999999"'), "cannot have 100000000 results",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_refused(what: str, tmp_path: pathlib.Path) -> None:
    source, message = WRONG[what]
    path = tmp_path / "graph.pbtxt"
    path.write_text(source)
    with pytest.raises((ModelFileError, UnsupportedModel), match=message):
        convert.load(path)


def test_a_function_that_calls_itself_ends(tmp_path: pathlib.Path) -> None:
    call = 'op: "PartitionedCall" input: "x" attr { key: "f" value { func { name: "F" } } }'
    path = tmp_path / "graph.pbtxt"
    path.write_text(
        text(X, f'name: "y" {call}')
        + '\nlibrary { function { signature { name: "F" input_arg { name: "x" } '
        + 'output_arg { name: "o" } } '
        + f'node_def {{ name: "c" {call} }} ret {{ key: "o" value: "c:output:0" }} }} }}'
    )
    with pytest.raises(ModelFileError, match="more than 32 deep"):
        convert.load(path)(paddle.ones([1]))


def test_damaged_weights(files: pathlib.Path, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "saved"
    shutil.copytree(saved(files)[0], folder)
    index = folder / "variables" / "variables.index"
    whole = index.read_bytes()
    for at in range(0, len(whole), 7):
        index.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            convert.load(folder)
        except BiremeError:
            continue
    index.write_bytes(whole)
    (data,) = (folder / "variables").glob("*.data-*")
    data.write_bytes(data.read_bytes()[:40])
    with pytest.raises(ModelFileError, match="behind the end"):
        convert.load(folder)


def test_weights_outside_of_the_folder(files: pathlib.Path, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "js"
    shutil.copytree(files / "nets" / "nested_js", folder)
    described = json.loads((folder / "model.json").read_text())
    described["weightsManifest"][0]["paths"] = ["../nested.pb"]
    (folder / "model.json").write_text(json.dumps(described))
    with pytest.raises(ModelFileError, match="must lie beside the model"):
        convert.load(folder)


def test_layers_of_tensorflow_js_are_refused(tmp_path: pathlib.Path) -> None:
    found = {"modelTopology": {"model_config": {}}, "weightsManifest": []}
    (tmp_path / "model.json").write_text(json.dumps(found))
    with pytest.raises(UnsupportedModel, match="a layers model of TensorFlow"):
        convert.load(tmp_path)


def test_snappy() -> None:
    packed = bytes([14, 1 << 2]) + b"ab" + bytes([(11 - 1) << 2 | 2, 2, 0]) + bytes([0]) + b"c"
    assert unpacked(memoryview(packed)) == b"abababababab" + b"a" + b"c"
    with pytest.raises(ModelFileError):
        unpacked(memoryview(bytes([14, 1 << 2]) + b"ab" + bytes([9 << 2 | 2, 7, 0])))


def test_nothing_of_tensorflow_is_imported(files: pathlib.Path) -> None:
    program = (
        "import sys\nfor name in ('torch', 'tensorflow', 'keras', 'h5py', 'google.protobuf'):\n"
        "    sys.modules[name] = None\n"
        "from bireme import convert\n"
        f"print(convert.load({str(saved(files)[0])!r}).output_names)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
