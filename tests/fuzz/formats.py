"""Small good files of every format that Bireme reads, what reads them, and how they are damaged."""

from __future__ import annotations

import io
import pickle
import shutil
import tarfile
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import bireme
from bireme import convert, jit, nn
from bireme.core.errors import BiremeError, FileFormatError
from tests.convert.paddle import mutants as paddle_files
from tests.fuzz import structure
from tests.fuzz.structure import Mutate

CHECKPOINTS = Path(__file__).parents[1] / "io" / "golden"
Reader = Callable[[bytes], Any]


@dataclass(frozen=True)
class Format:
    """One kind of file: a good one, its reader, how it is damaged on purpose, the errors that its
    reader may raise, and how many damaged ones are tried for each that others get."""

    source: bytes
    read: Reader
    mutate: Mutate | None = None
    errors: tuple[type[BaseException], ...] = (FileFormatError,)
    share: float = 1.0
    writes: bool = False  # unpacks into a folder of its own


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


def beside(file: Path, read: Callable[[], Any]) -> tuple[bytes, Reader]:
    """(a good file's contents, a reader that puts others in its place for a while)."""
    good = file.read_bytes()

    def damaged(data: bytes) -> Any:
        file.write_bytes(data)
        try:
            return read()
        finally:
            file.write_bytes(good)

    return good, damaged


def graph_format(folder: Path) -> dict[str, Format]:
    """Both files of jit.save; the one that is not damaged lies beside the other."""
    path = saved_model(folder)
    kinds = {".json": structure.document, ".safetensors": structure.safetensors}
    return {
        f"graph {ending}": Format(
            *beside(Path(path + ending), lambda: jit.load(path)), kinds[ending], share=0.1
        )
        for ending in kinds
    }


def state_format() -> dict[str, Format]:
    """What paddle.save writes: our own container, and Paddle's pickles and binary tensors."""
    state = {
        "w": bireme.ones([3, 4]),
        "deep": [{"b": bireme.zeros([2])}, 3, "text", None],
        "t": (1, 2.5),
        "c": bireme.to_tensor([1 + 2j]),
        7: b"raw",
        "d": bireme.float16,
    }
    own, lod = io.BytesIO(), io.BytesIO()
    bireme.save(state, own)
    bireme.save(bireme.ones([2, 3]), lod, use_binary_format=True)
    arrays = OrderedDict(
        w=np.ones((3, 4), "float32"),
        b=np.arange(3),
        names={"w": "linear_0.w_0"},
        h=np.asfortranarray(np.ones((2, 3), "float64")),
        n=np.float32(1),
        k={(1, 2): {3, 4}},
    )
    table = {
        "w": np.ones(3),
        "StructuredToParameterName@@": {"w": "a"},
        "UnpackBigParamInfor@@": {"v": {"OriginShape": (2, 2), "slices": ["v0", "v1"]}},
        "v0": np.ones(3),
        "v1": np.ones(1),
    }
    made = {
        "state": Format(own.getvalue(), _load, structure.safetensors),
        "binary tensor": Format(lod.getvalue(), _load, structure.numbers),
        "pdopt": Format(pickle.dumps(table, 2), _load, structure.pickled),
        "old checkpoint": Format(
            (CHECKPOINTS / "legacy.pth").read_bytes(), _load, structure.pickled
        ),
        "checkpoint": Format(
            (CHECKPOINTS / "zipped.ckpt").read_bytes(), _load, structure.zipped(structure.pickled)
        ),
    }
    for protocol in (2, 3, 4, 5):
        data = pickle.dumps(arrays, protocol)
        made[f"pdparams {protocol}"] = Format(data, _load, structure.pickled)
    return made


def _load(data: bytes) -> None:
    bireme.load(io.BytesIO(data))


def onnx_format(folder: Path | None = None) -> dict[str, Format]:
    """Models: read, run as far as constants go, and with weights in a file of their own."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    w = numpy_helper.from_array(rng.normal(size=(4, 3, 3, 3)).astype("float32"), "w")
    shape = numpy_helper.from_array(np.array([0, -1]), "shape")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[1, 1]),
        helper.make_node("Reshape", ["p", "shape"], ["f"]),
        helper.make_node("Softmax", ["f"], ["y"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])],
        [w, shape],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    data = model.SerializeToString()
    made = {"ONNX": Format(data, bireme.onnx.load, structure.protobuf, share=0.5)}
    made["ONNX folded"] = Format(_foldable(), _fold, structure.protobuf, (BiremeError,), share=0.2)
    if folder is not None:
        place = folder / "external"
        place.mkdir()
        path = place / "m.onnx"
        onnx.save_model(
            model, str(path), save_as_external_data=True, location="w", size_threshold=0
        )
        for name, file in (("ONNX external", path), ("ONNX data", place / "w")):
            read = beside(file, lambda: bireme.onnx.load(str(path)))
            made[name] = Format(*read, structure.protobuf if file == path else None, share=0.3)
    return made


def _foldable() -> bytes:
    """A model of constants: shapes, strings, n-grams, loops."""
    from onnx import TensorProto, helper

    def known(name: str, values: Any, kind: int = TensorProto.INT64) -> Any:
        if kind == TensorProto.STRING:
            values = [v.encode() for v in values]
        return helper.make_tensor(name, kind, [len(values)], values)

    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("Add", ["v", "v"], ["v_next"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.INT64, [2]),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v_next", TensorProto.INT64, [2]),
        ],
    )
    node = helper.make_node
    nodes = [
        node("Concat", ["a", "a"], ["aa"], axis=0),
        node("Gather", ["aa", "b"], ["g"], axis=0),
        node("ConstantOfShape", ["b"], ["z"]),
        node("Expand", ["a", "b2"], ["e"]),
        node("Range", ["s0", "s9", "s1"], ["r"]),
        node("Tile", ["a", "one"], ["t"]),
        node("Unsqueeze", ["a", "zero"], ["u"]),
        node("Mul", ["u", "a"], ["m"]),
        node("RegexFullMatch", ["w"], ["x"], pattern="(a|b)+c?[0-9]{2,3}"),
        node("StringSplit", ["w"], ["ws", "wn"], delimiter=","),
        node("StringConcat", ["w", "w"], ["ww"]),
        node("StringNormalizer", ["w"], ["wu"], case_change_action="UPPER", stopwords=["b"]),
        node(
            "TfIdfVectorizer",
            ["a"],
            ["tf"],
            mode="TF",
            min_gram_length=1,
            max_gram_length=2,
            max_skip_count=1,
            ngram_counts=[0, 2],
            ngram_indexes=[0, 1, 2],
            pool_int64s=[2, 3, 2, 3],
        ),
        node("Loop", ["trips", "", "b"], ["l"], body=body),
        node("Cast", ["l"], ["y"], to=TensorProto.FLOAT),
    ]
    weights = [
        known("a", [2, 3]),
        known("b", [1, 2]),
        known("b2", [3, 2]),
        known("one", [2]),
        known("zero", [0]),
        known("w", ["ab12", "b,c,d"], TensorProto.STRING),
        *[helper.make_tensor(f"s{v}", TensorProto.INT64, [], [v]) for v in (0, 1, 9)],
        helper.make_tensor("trips", TensorProto.INT64, [], [3]),
    ]
    outs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", [], outs, weights)
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def _fold(data: bytes) -> None:
    from bireme.convert.onnx.interpreter import Run
    from bireme.convert.onnx.layer import OnnxLayer

    try:
        layer = OnnxLayer(data)
    except BiremeError as e:
        if not isinstance(e, FileFormatError):
            raise AssertionError(f"reading raises {type(e).__name__}: {e}") from e
        raise
    given = {n: bireme.ones([2]) for n in layer.input_names}
    Run(layer._model, layer._weights).graph(layer._model.graph, given)


def paddle_formats(folder: Path) -> dict[str, Format]:
    """Paddle's own files, written by the real Paddle."""
    from bireme.convert.paddle.model import load_model

    made = paddle_files.sources(folder)
    kinds = {"ProgramDesc": structure.protobuf, "PIR": structure.document}
    found = {
        {"weights": "pdiparams"}.get(name, name): Format(
            data, read, kinds.get(name, structure.numbers), share=1.0 if name == "weights" else 0.2
        )
        for name, (data, read) in made.items()
    }
    old = folder / "old"  # fluid's layout: a program and a file per parameter
    old.mkdir()
    (old / "__model__").write_bytes(made["ProgramDesc"][0])
    from bireme.io.lod_tensor import write

    with open(old / "w", "wb") as file:
        write(np.ones((4, 3, 3, 3), "float32"), file)
    for name, kind in (("__model__", structure.protobuf), ("w", structure.numbers)):
        read = beside(old / name, lambda: load_model(str(old)))
        found[f"fluid {name}"] = Format(*read, kind, share=0.2)
    return found


def converted_formats(folder: Path) -> dict[str, Format]:
    """Models of other frameworks."""
    from bireme.convert import caffe, keras, tensorflow, tflite
    from tests.convert.caffe import nets
    from tests.convert.keras.test_keras import GOLDEN as KERAS
    from tests.convert.tensorflow.test_tensorflow import unpack
    from tests.convert.tflite.test_tflite import GOLDEN
    from tests.convert.torch.test_script import GOLDEN as SCRIPTS

    place = folder / "converted"
    place.mkdir()
    graphs = unpack(place / "tensorflow") / "nets"
    net, weights = place / "deploy.prototxt", place / "net.caffemodel"
    net.write_text(nets.DETECTOR)
    weights.write_bytes(nets.weights_file(nets.detector_weights()))

    def read() -> None:
        caffe.load(net, weights)

    old, new = place / "model.h5", place / "model.keras"
    old.write_bytes((KERAS / "sounds.h5").read_bytes())
    new.write_bytes((KERAS / "sounds.keras").read_bytes())
    script = place / "model.pt"
    script.write_bytes((SCRIPTS / "control.pt").read_bytes())
    lite = place / "model.tflite"
    lite.write_bytes((GOLDEN / "int8.tflite").read_bytes())
    return {
        "Keras HDF5": Format(
            *beside(old, lambda: keras.load(old)),
            structure.any_of(structure.numbers, structure.flipped),
            share=0.2,
        ),
        "Keras zip": Format(
            *beside(new, lambda: keras.load(new)),
            structure.zipped(structure.any_of(structure.document, structure.flipped)),
            share=0.1,
        ),
        **{
            f"TensorFlow {name}": Format(
                *beside(graphs / file, lambda path=path: tensorflow.load(graphs / path)),
                kind,
                share=0.2,
            )
            for name, file, path, kind in (
                ("graph", "recurrent.pb", "recurrent.pb", structure.protobuf),
                ("text", "branches.pbtxt", "branches.pbtxt", structure.lines),
                ("SavedModel", "saved/saved_model.pb", "saved", structure.protobuf),
                (
                    "index",
                    "saved/variables/variables.index",
                    "saved",
                    structure.any_of(structure.flipped, structure.numbers),
                ),
                ("old checkpoint", "branches", "branches.meta", structure.flipped),
                ("TFJS", "recurrent_js/model.json", "recurrent_js", structure.document),
            )
        },
        "TorchScript": Format(
            *beside(script, lambda: convert.load(str(script))),
            structure.zipped(
                structure.any_of(structure.pickled, structure.document, structure.flipped)
            ),
            share=0.2,
        ),
        "TFLite": Format(
            *beside(lite, lambda: tflite.load(lite)),
            structure.any_of(structure.numbers, structure.flipped),
            share=0.2,
        ),
        "Caffe text": Format(*beside(net, read), structure.lines, share=0.3),
        "Caffe weights": Format(*beside(weights, read), structure.protobuf, share=0.3),
    }


def checkpoint_formats(folder: Path) -> dict[str, Format]:
    """A sharded checkpoint: the mark that it is whole, the index, the blocks."""
    import bireme.distributed as dist

    place = folder / "checkpoint"
    state = {"x": bireme.arange(24.0).reshape([4, 6]), "y": bireme.ones([2], "int32"), "n": 3}
    dist.save_state_dict(state, str(place))
    kinds = {
        "0.checkpoint.json": structure.document,
        "0_0.parts.json": structure.document,
        "0_0.safetensors": structure.safetensors,
    }

    def read() -> None:
        dist.load_merged_state_dict(str(place))

    return {
        f"checkpoint {name}": Format(*beside(place / name, read), kind, share=0.7)
        for name, kind in kinds.items()
    }


def other_formats(folder: Path) -> dict[str, Format]:
    """Programs as bytes, archives of models, recordings, shapes, and what is inside other files."""
    from bireme import profiler
    from bireme.capture.graph_io import decode_type
    from bireme.convert import stablehlo
    from bireme.convert.onnx.patterns import Pattern
    from bireme.inference.shapes import read_shapes
    from bireme.profiler.events import Span
    from bireme.profiler.protobuf import write_protobuf
    from bireme.utils.download import DownloadError, _unpacked

    place = folder / "others"
    place.mkdir()

    def at(name: str, data: bytes, read: Callable[[str], Any]) -> tuple[bytes, Reader]:
        path = place / name
        path.write_bytes(data)
        return beside(path, lambda: read(str(path)))

    spans = [Span("a", "user", 0.5, 1.5, 3), Span("b", "operator", 0.7, 0.9, 3)]
    write_protobuf(spans, str(place / "t.pb"))
    recorded = (place / "t.pb").read_bytes()
    bireme.enable_static()
    try:
        main = bireme.static.Program()
        with bireme.static.program_guard(main, bireme.static.Program()):
            x = bireme.static.data("x", [None, 3])
            y = bireme.nn.functional.relu(x) * 2
        program = bireme.static.serialize_program([x], [y], program=main)
    finally:
        bireme.disable_static()

    tar, packed = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:gz") as archive, zipfile.ZipFile(packed, "w") as z:
        for name in ("model/a.txt", "model/b.txt"):
            info = tarfile.TarInfo(name)
            info.size = 5
            archive.addfile(info, io.BytesIO(b"hello"))
            z.writestr(name, b"hello")

    def unpack(ending: str) -> Reader:
        def read(data: bytes) -> None:
            inner = place / "jail" / "inner"
            shutil.rmtree(inner.parent, ignore_errors=True)
            inner.mkdir(parents=True)
            path = inner / f"m{ending}"
            path.write_bytes(data)
            try:
                _unpacked(str(path))
            finally:
                outside = [p for p in inner.parent.iterdir() if p != inner]
                links = [
                    p
                    for p in inner.rglob("*")
                    if p.is_symlink() and not p.resolve().is_relative_to(inner)
                ]
                assert not [*outside, *links], f"written outside: {outside} {links}"

        return read

    def unfold_type(data: bytes) -> None:
        try:
            decode_type(data.decode("utf-8", "replace"))
        except BiremeError as e:
            raise FileFormatError(str(e)) from e  # as every reader of a graph says it

    def match(data: bytes) -> None:
        Pattern(data.decode("utf-8", "replace")).matches_all("a" * 200 + "b")

    made = {
        "program bytes": Format(
            program,
            bireme.static.deserialize_program,
            structure.zipped(structure.any_of(structure.document, structure.flipped)),
            share=0.05,
            writes=True,
        ),
        "recording .pb": Format(
            *at("t.pb", recorded, profiler.load_profiler_result), structure.protobuf
        ),
        "shapes": Format(
            *at("s.json", b'{"shapes": [{"x": [1, 2]}]}', read_shapes), structure.document
        ),
        "hub tar": Format(
            tar.getvalue(),
            unpack(".tgz"),
            structure.gzipped(structure.tarred(structure.flipped)),
            errors=(FileFormatError, DownloadError),
            share=0.3,
            writes=True,
        ),
        "hub zip": Format(
            packed.getvalue(),
            unpack(".zip"),
            structure.zipped(structure.flipped),
            errors=(FileFormatError, DownloadError),
            share=0.3,
            writes=True,
        ),
        "types": Format(
            b"float32[batch, 4*n + 3, floordiv(batch, 2)^2, max(n, 3)]",
            unfold_type,
            structure.lines,
            share=0.2,
        ),
        "patterns": Format(
            b"(?i)(a|b+){2,9}[^\\d-]*?(?:x[[:alpha:]]?|\\.)$", match, structure.lines
        ),
    }
    file = place / "m.stablehlo"
    stablehlo.export(lambda x: x * 2 + 1, file, [bireme.static.InputSpec([2, 3])])
    made["StableHLO"] = Format(
        *beside(file, lambda: stablehlo.load(str(file))), structure.numbers, share=0.3
    )
    return made


def formats(folder: Path) -> dict[str, Format]:
    """Every format by name."""
    from tests.fuzz.datasets import dataset_formats
    from tests.fuzz.zoo_files import zoo_formats

    return {
        **graph_format(folder),
        **state_format(),
        **onnx_format(folder),
        **paddle_formats(folder),
        **converted_formats(folder),
        **checkpoint_formats(folder),
        **other_formats(folder),
        **dataset_formats(folder),
        **zoo_formats(folder),
    }
