"""TFLite's files: results of LiteRT, whole numbers, what goes on from there, damage."""

from __future__ import annotations

import contextlib
import pathlib
import random
import struct
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import convert, jit
from bireme.convert import tflite
from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.imported import ImportedModel
from bireme.convert.tflite.reader import read
from bireme.convert.tflite.rules import on_grid, rule
from bireme.core.errors import BiremeError
from tests.convert.tflite import flatwriter as flat

GOLDEN = pathlib.Path(__file__).parent / "golden"
NAMES = ["pictures", "half", "shapes", "branches", "int8", "uint8"]
STEPS = ("int8", "uint8")  # within one step of the grid of the result


def figures(name: str, kind: str) -> list[np.ndarray]:
    with np.load(GOLDEN / f"{name}.npz") as file:
        return [file[f"{kind}{i}"] for i in range(len(file.files)) if f"{kind}{i}" in file.files]


def results(model: Any, arrays: list[np.ndarray]) -> list[np.ndarray]:
    made: Any = model(*[paddle.to_tensor(a) for a in arrays])
    return [m.numpy() for m in (made if isinstance(made, list | tuple) else [made])]


@pytest.mark.parametrize("name", NAMES)
def test_results(name: str, tier: str) -> None:
    model = convert.load(GOLDEN / f"{name}.tflite")
    assert isinstance(model, ImportedModel)
    want = figures(name, "result")
    for got, wanted in zip(results(model, figures(name, "input")), want, strict=True):
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        if name in STEPS:
            assert np.abs(got.astype(int) - wanted.astype(int)).max() <= 1
        else:
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_saved_and_exported(name: str, tmp_path: pathlib.Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = tflite.load(GOLDEN / f"{name}.tflite")
    given = figures(name, "input")
    if name == "pictures":  # its batch is open
        given = [np.concatenate([given[0], given[0] * 2, given[0] - 1])]
    want = results(model, given)
    path = str(tmp_path / "saved")
    jit.save(model, path, model.input_specs())
    paddle.onnx.export(model, path, model.input_specs())
    session = runtime.InferenceSession(path + ".onnx")
    names = [i.name for i in session.get_inputs()]
    theirs = session.run(None, dict(zip(names, given, strict=True)))
    for wanted, again, other in zip(want, results(jit.load(path), given), theirs, strict=True):
        near = 1 if name in STEPS else 1e-4
        np.testing.assert_allclose(again.astype("float64"), wanted, rtol=1e-3, atol=near)
        np.testing.assert_allclose(other.astype("float64"), wanted, rtol=1e-3, atol=near)


@pytest.mark.parametrize("name", ["pictures", "half", "int8"])
def test_it_trains(name: str) -> None:
    model = tflite.load(GOLDEN / f"{name}.tflite")
    assert len(model.parameters()) >= 6
    given = [paddle.to_tensor(a) for a in figures(name, "input")]
    program = model._program
    if name == "int8":  # the real numbers before they become integers
        last = program.graph.nodes[-1].inputs[0]
        graph = type(program.graph)(program.graph.inputs, program.graph.nodes, (last,))
        program = type(program)(
            program.source, graph, program.inputs, program.outputs, program.weights,
            program.trained, program.labels, program.functions,
        )  # fmt: skip
        model = ImportedModel(program, rule)
    loss = (model(*given) ** 2).mean()
    loss.backward()
    grads = [p.grad for p in model.parameters()]
    assert all(g is not None for g in grads)
    assert sum(bool((g != 0).any()) for g in grads if g is not None) >= len(grads) - 2
    before = loss.item()
    paddle.optimizer.SGD(1e-3, parameters=model.parameters()).step()
    assert (model(*given) ** 2).mean().item() != before


def test_rounding_lets_gradients_through() -> None:
    from bireme.convert.tflite.reader import Grid

    grid = Grid(np.float32(0.5), np.float32(3), -128, 127)
    x = paddle.to_tensor([0.24, 0.26, -0.25, 0.75, 100.0])
    x.stop_gradient = False
    made = on_grid(x, grid)
    assert made.tolist() == [0.0, 0.5, -0.5, 1.0, 62.0]
    made.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 1.0, 1.0, 1.0, 0.0]


# --- files written field by field -----------------------------------------------------------


def one_op(code: int, custom: str = "", shape: tuple[int, ...] = (2, 3)) -> bytes:
    """A model of one op on one input."""
    return flat.model(
        codes=[(code, custom)],
        tensors=[(shape, 0, 0, "x"), (shape, 0, 0, "y")],
        operators=[(0, [0], [1])], inputs=[0], outputs=[1], buffers=[b""],
    )  # fmt: skip


def test_one_op(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(one_op(101))  # ABS
    model = convert.load(path)
    assert model(paddle.to_tensor([[-1.0, 2, -3], [4, -5, 6]])).tolist() == [[1, 2, 3], [4, 5, 6]]


def test_four_bits() -> None:
    packed = bytes([0x21, 0xF7, 0x08])
    data = flat.model(
        codes=[(0, "")], tensors=[((5,), 0, 0, "x"), ((5,), 17, 1, "w", 0.5), ((5,), 0, 0, "y")],
        operators=[(0, [0, 1], [2])], inputs=[0], outputs=[2], buffers=[b"", packed],
    )  # fmt: skip
    assert read(data).weights["1"].tolist() == [0.5, 1.0, 3.5, -0.5, -4.0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (one_op(32, "MyOp"), r"no rule: custom MyOp \(number 0, for 'y'\)"),
        (one_op(15), "no rule: LSH_PROJECTION"),
        (one_op(5000), "no rule: op 5000"),
        (one_op(101, shape=(-2, 3)), "cannot have the shape"),
        (one_op(101)[:100], "damaged"),
        (b"\x10\0\0\0TFL3" + bytes(8), "outside|damaged"),
    ],
)
def test_refused(data: bytes, message: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(data)
    with pytest.raises((ModelFileError, UnsupportedModel), match=message):
        convert.load(path)


def test_damaged_files_raise_one_class_of_error(tmp_path: pathlib.Path) -> None:
    rng = random.Random(3)
    path = tmp_path / "damaged.tflite"
    for name in ("shapes", "int8", "branches"):
        whole = (GOLDEN / f"{name}.tflite").read_bytes()
        for _ in range(60):
            data = bytearray(whole)
            for _ in range(rng.randrange(1, 6)):
                at = rng.randrange(len(data) - 4)
                struct.pack_into("<i", data, at, rng.choice([0, -1, 1 << 30, rng.randrange(99)]))
            path.write_bytes(bytes(data[: rng.choice([len(data), rng.randrange(len(data))])]))
            with contextlib.suppress(BiremeError):
                tflite.load(path)


def test_nothing_of_other_frameworks_is_imported() -> None:
    program = (
        "import sys\n"
        "for name in ('torch', 'tensorflow', 'keras', 'ai_edge_litert', 'flatbuffers'):\n"
        "    sys.modules[name] = None\n"
        "from bireme import convert\n"
        f"print(convert.load({str(GOLDEN / 'shapes.tflite')!r}).input_names)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['x', 'index']"
