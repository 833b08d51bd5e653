"""What a server runs: one small interface, and the kinds of models behind it."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

import bireme as paddle
from bireme import inference
from bireme.core.dtype import as_dtype
from bireme.core.errors import InvalidArgument
from bireme.serving.errors import BadRequest
from bireme.serving.options import Options
from bireme.serving.signature import Field, Signature, fields
from bireme.serving.tensors import DTYPES, datatype_of

Arrays = dict[str, np.ndarray]
Declared = Mapping[str, tuple[str, Sequence[int]]]
Caller = Callable[..., Arrays]  # models(name, **inputs): another model of the server


class Model(ABC):
    """A loaded model. One thread at a time calls `run`; `clone` gives another thread its own."""

    signature: Signature
    platform: str
    compiled = False  # whether new shapes cost a compilation, so that only known ones may run

    @abstractmethod
    def run(self, given: Arrays) -> Arrays:
        """The outputs for the inputs, in arrays that no later run overwrites."""

    def clone(self) -> Model:
        """The model for another thread: itself, where threads may share it."""
        return self

    def close(self) -> None:
        """Give back what the model holds."""
        return


class Saved(Model):
    """A model from files that `inference.Config` reads."""

    platform = "bireme_inference"
    compiled = True

    def __init__(self, predictor: inference.Predictor, signature: Signature):
        self._predictor, self.signature = predictor, signature
        self._inputs = [(f.name, predictor.get_input_handle(f.name)) for f in signature.inputs]
        names = predictor.get_output_names()
        self._outputs = [(n, predictor.get_output_handle(n)) for n in names]

    def run(self, given: Arrays) -> Arrays:
        for name, handle in self._inputs:
            handle.share_external_data(given[name])
        self._predictor.run()
        return {name: handle.copy_to_cpu() for name, handle in self._outputs}

    def clone(self) -> Model:
        return Saved(self._predictor.clone(), self.signature)

    def close(self) -> None:
        self._predictor.clear_intermediate_tensor()


def load_saved(path: str, options: Options) -> Saved:
    """The model at `path`: what `jit.save` or Paddle wrote, or an ONNX file."""
    if path.endswith(".onnx"):
        with tempfile.TemporaryDirectory(prefix="bireme-serving-") as folder:
            layer = paddle.onnx.load(path)
            prefix = os.path.join(folder, "model")
            paddle.jit.save(layer, prefix, layer.input_specs())
            return _saved(inference.Config(prefix), options)
    return _saved(inference.Config(_inside(path)), options)


def _inside(path: str) -> str:
    """The prefix of the only model that `jit.save` wrote into a folder; else the path."""
    if not os.path.isdir(path):
        return path
    names = os.listdir(path)
    saved = [n[:-5] for n in names if n.endswith(".json") and f"{n[:-5]}.safetensors" in names]
    return os.path.join(path, saved[0]) if len(saved) == 1 else path


def _saved(config: inference.Config, options: Options) -> Saved:
    config.set_engine(options.engine)
    config.disable_glog_info()
    config.set_mkldnn_cache_capacity(max(options.programs(), 16))
    predictor = inference.create_predictor(config)
    inputs = _fields(predictor.get_input_tensor_shape(), predictor.get_input_types(), options)
    # What the outputs are is known after the first run; Version finds out while it warms up.
    open_rows = bool(inputs) and all(f.shape[:1] == (-1,) for f in inputs)
    return Saved(predictor, Signature(inputs, (), batched=open_rows))


def _fields(
    shapes: Mapping[str, Sequence[int]], types: Mapping[str, Any], options: Options
) -> tuple[Field, ...]:
    unknown = [n for n in options.shapes if n not in shapes]
    if unknown:
        raise InvalidArgument(
            f"[serve] shapes name the input {unknown[0]!r}. The model has: {', '.join(shapes)}"
        )
    return tuple(
        Field(n, datatype_of(as_dtype(types[n].dtype).numpy), tuple(shape))
        for n, shape in shapes.items()
    )


class Written(Model):
    """A Python class with `predict`, and `load` if it needs one.

    class Double:
        inputs = {"x": ("FP32", [-1, 4])}
        outputs = {"y": ("FP32", [-1, 4])}
        batched = True  # the first size is a number of rows that do not know each other

        def load(self, models): ...  # models("other", x=...) calls another model of the server
        def predict(self, x): return {"y": 2 * x}
    """

    platform = "python"

    def __init__(self, written: object, models: Caller):
        made = written() if isinstance(written, type) else written
        if not callable(getattr(made, "predict", None)):
            raise InvalidArgument(
                f"[serve] a Python model has a method predict. Received: {type(made).__name__}"
            )
        takes, gives = getattr(made, "inputs", None), getattr(made, "outputs", None)
        if not (isinstance(takes, Mapping) and takes and isinstance(gives, Mapping) and gives):
            raise InvalidArgument(
                f"[serve] {type(made).__name__} must say what it takes and gives: inputs = "
                '{"x": ("FP32", [-1, 4])} and outputs likewise'
            )
        given, results = fields(takes, "input"), fields(gives, "output")
        self.signature = Signature(given, results, bool(getattr(made, "batched", False)))
        self._made: Any = made
        load = getattr(made, "load", None)
        if load is not None:
            load(models)

    def run(self, given: Arrays) -> Arrays:
        found = self._made.predict(**given)
        if not isinstance(found, Mapping):
            raise TypeError(
                f"predict must return a dictionary of arrays. Received: {type(found).__name__}"
            )
        return {str(n): _array(a, self.signature, n) for n, a in found.items()}

    def close(self) -> None:
        close = getattr(self._made, "close", None)
        if close is not None:
            close()


def _array(value: Any, signature: Signature, name: str) -> np.ndarray:
    declared = next((f for f in signature.outputs if f.name == name), None)
    if isinstance(value, paddle.Tensor):
        value = value.numpy()
    if declared is not None and declared.datatype == "BYTES":
        return np.asarray(value, object)
    found = np.asarray(value)
    if declared is not None and found.dtype != DTYPES[declared.datatype]:
        raise TypeError(
            f"the output {name!r} is {declared.datatype}. Received: {datatype_of(found.dtype)}"
        )
    return found


class Ocr:
    """Reading the text in an image or a PDF file: its bytes in, its text and its lines out."""

    inputs: ClassVar[Declared] = {"image": ("BYTES", [1])}
    outputs: ClassVar[Declared] = {"text": ("BYTES", [1]), "json": ("BYTES", [1])}

    def __init__(self, tier: str | None = None):
        from bireme import ocr

        self._reader = ocr.Reader(tier)
        self._error = ocr.OcrError

    def predict(self, image: np.ndarray) -> Mapping[str, Any]:
        import json

        try:
            document = self._reader.read(image[0])
        except self._error as e:
            raise BadRequest(str(e)) from None
        lines = [
            {"page": p.number, "text": line.text, "score": line.score, "polygon": line.polygon}
            for p in document.pages
            for block in p.blocks
            for line in block.lines
        ]
        return {"text": [document.text.encode()], "json": [json.dumps({"lines": lines}).encode()]}


class Embedder:
    """Texts as vectors, by `zoo.task("embedding", path)`."""

    inputs: ClassVar[Declared] = {"text": ("BYTES", [-1])}
    batched = True

    def __init__(self, path: str):
        from bireme import zoo

        self.embed: Any = zoo.task("embedding", path)
        width = self.vectors(["a"]).shape[1]
        self.outputs = {"embedding": ("FP32", [-1, width]), "tokens": ("INT64", [-1])}

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        """[texts, width]"""
        return np.asarray(self.embed(list(texts)), np.float32)

    def predict(self, text: np.ndarray) -> Mapping[str, Any]:
        texts = [text_of(t) for t in text]
        counts = np.asarray(self.embed.counts(texts), np.int64)
        return {"embedding": self.vectors(texts), "tokens": counts}


def text_of(data: bytes | str) -> str:
    """A string of a BYTES tensor."""
    if isinstance(data, str):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadRequest("a text must be UTF-8") from None
