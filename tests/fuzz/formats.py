"""Small good files of every format that Bireme reads, and what reads them."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import bireme
from bireme import jit, nn
from tests.convert.paddle import mutants as paddle_files

Reader = Callable[[bytes], Any]


@dataclass(frozen=True)
class Format:
    """One kind of file: a good one, its reader, and whether it is a JSON document."""

    source: bytes
    read: Reader
    document: bool = False


class Net(nn.Layer):
    """A little of everything that a graph file holds: state, constants, open sizes, numbers,
    slices, random keys and control flow."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2D(2, 3, 3, padding=1)
        self.norm = nn.BatchNorm2D(3)
        self.fc = nn.Linear(3, 4)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        y = nn.functional.relu(self.norm(self.conv(x)))
        y = self.fc(self.drop(y[:, :, ::2].mean([2, 3])))
        y = bireme.where(y > 0, y * 2.0, bireme.to_tensor([1.0, 2.0, 3.0, 4.0]))
        y = bireme.static.nn.cond(y.sum() > 0, lambda: y + 1, lambda: y - 1)
        return {"scores": y, "best": [y.argmax(-1), x.shape[0]]}


def saved_model(folder: Path) -> str:
    """The path of a model that jit.save wrote."""
    bireme.seed(1)
    path = str(folder / "net")
    jit.save(Net(), path, [bireme.static.InputSpec([None, 2, 8, 8], "float32", "x")])
    return path


def graph_format(folder: Path) -> dict[str, Format]:
    """Both files of jit.save; the one that is not damaged lies beside the other."""
    path = saved_model(folder)
    found = {}
    for ending in (".json", ".safetensors"):
        file = Path(path + ending)
        good = file.read_bytes()

        def read(data: bytes, file: Path = file, good: bytes = good) -> None:
            file.write_bytes(data)
            try:
                jit.load(path)
            finally:
                file.write_bytes(good)

        found[f"graph {ending}"] = Format(good, read, document=ending == ".json")
    return found


def state_format() -> dict[str, Format]:
    """What paddle.save writes: our own container, and Paddle's pickle."""
    state = {"w": bireme.ones([3, 4]), "deep": [{"b": bireme.zeros([2])}, 3, "text", None]}
    own = io.BytesIO()
    bireme.save(state, own)
    arrays = OrderedDict(w=np.ones((3, 4), "float32"), b=np.arange(3), names={"w": "linear_0.w_0"})
    return {
        "state": Format(own.getvalue(), _load),
        "pdparams": Format(pickle.dumps(arrays, 4), _load),
        "pdparams 2": Format(pickle.dumps({"x": ("name", np.float32(1)), "s": [1, 2]}, 2), _load),
    }


def _load(data: bytes) -> None:
    bireme.load(io.BytesIO(data))


def onnx_format() -> dict[str, Format]:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    w = numpy_helper.from_array(rng.normal(size=(4, 3, 3, 3)).astype("float32"), "w")
    shape = numpy_helper.from_array(np.array([0, -1]), "shape")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Reshape", ["r", "shape"], ["f"]),
        helper.make_node("Softmax", ["f"], ["y"], axis=1),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])], [w, shape],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return {"ONNX": Format(model.SerializeToString(), bireme.onnx.load)}


def paddle_formats(folder: Path) -> dict[str, Format]:
    """Paddle's own files, written by the real Paddle."""
    made = paddle_files.sources(folder)
    return {
        {"weights": "pdiparams"}.get(name, name): Format(data, read, document=name == "PIR")
        for name, (data, read) in made.items()
    }


def formats(folder: Path) -> dict[str, Format]:
    """Every format by name."""
    return {
        **graph_format(folder), **state_format(), **onnx_format(), **paddle_formats(folder)
    }  # fmt: skip
