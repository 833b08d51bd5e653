"""Models of other frameworks, told apart by their contents."""

from __future__ import annotations

import os
import re
import zipfile
from typing import TYPE_CHECKING

from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.io.foreign import open_regular

if TYPE_CHECKING:
    from bireme.nn.layer.layer import Layer

_NO_ONNX = (b"PK", b"\x89", b"GGUF", b"{", b"\x80", b"\x1f\x8b")  # how a protobuf never begins


def load(path: str | os.PathLike[str], signature: str | None = None) -> Layer:
    """The model at `path` as a Layer in eval mode, with `input_specs()` for `jit.save`.

    `path` is a file of `torch.export.save` (`.pt2`) or `torch.jit.save`, an ONNX, TFLite or Keras
    file, a model of TensorFlow (a SavedModel, a graph, a `.meta` file or TFJS; `signature` chooses
    one of several), a net of Caffe (its `.prototxt`, its `.caffemodel` or their folder), or a model
    that Paddle saved (a folder, a prefix or a file). The content decides, not the ending. Nothing
    in it is executed.
    """
    from bireme.convert.paddle.model import find_files, read_model

    name = os.fspath(path)
    if signature is not None or (os.path.exists(name) and _is_tensorflow(name)):
        from bireme.convert import tensorflow

        return tensorflow.load(name, signature)
    files = find_files(name)
    if files is not None and not _begins(name, b"PK"):
        return read_model(files)
    if not os.path.exists(name):
        raise InvalidArgument(f"[convert] there is no file or folder {name!r}")
    if kind_of(name) == "Caffe":
        from bireme.convert import caffe

        found = caffe.find_files(name)
        if found is None:
            raise FileFormatError(f"[convert] beside {name!r:.300} there is no .prototxt")
        return caffe.load(*found)
    if os.path.isfile(name):
        if _begins(name, b"TFL3", 4):
            from bireme.convert import tflite

            return tflite.load(name)
        if _begins(name, b"\x89HDF") or _is_keras(name):
            from bireme.convert import keras

            return keras.load(name)
        if _is_export(name):
            from bireme.convert import torch

            return torch.load(name)
        if not any(_begins(name, start) for start in _NO_ONNX):
            from bireme.convert.onnx.layer import OnnxLayer

            return OnnxLayer(name)
    raise FileFormatError(
        f"[convert] {name!r} is no model that can be converted: give a file of torch.export.save "
        "or torch.jit.save, an ONNX, TFLite or Keras file, a model of TensorFlow, a net of Caffe, "
        "or a model that Paddle saved. Weights alone are read by paddle.load, language models by "
        "bireme.zoo.load"
    )


_HEAD = 1 << 16
_CAFFE_TEXT = re.compile(r"^\s*(?:layers?\s*:?\s*\{|(?:input|name)\s*:\s*[\"'])", re.MULTILINE)


def kind_of(name: str) -> str | None:
    """What a file of protobuf messages, or a folder, is by its contents; None if neither."""
    if os.path.isdir(name):
        return "Caffe" if _only(name, ".caffemodel") else None
    with open_regular(name, "convert") as file:
        head = file.read(_HEAD)
    text = head.decode("utf-8", "replace")
    if b"\0" not in head and _CAFFE_TEXT.search(text):
        return "Caffe"
    # The first fields of Caffe's net: a name, then layers (100, or 2 in older versions).
    fields = top_fields(head)
    if fields and fields[0] in ((1, 2), (100, 2), (2, 2), (3, 2)):
        numbers = {number for number, _ in fields}
        layers = (100, 2) in fields or (2, 2) in fields[1:]
        return "Caffe" if layers and numbers <= {1, 2, 3, 4, 5, 6, 7, 8, 100} else None
    return None


def top_fields(data: bytes) -> list[tuple[int, int]]:
    """(number, wire type) of the fields at the top of a protobuf message, as far as they go."""
    from bireme.convert.errors import ModelFileError
    from bireme.convert.wire import varint

    view, at = memoryview(data), 0
    made: list[tuple[int, int]] = []
    try:
        while at < len(view) and len(made) < 1000:
            tag, at = varint(view, at)
            made.append((tag >> 3, tag & 7))
            if tag & 7 == 0:
                _, at = varint(view, at)
            elif tag & 7 == 2:
                size, at = varint(view, at)
                at += size
            elif tag & 7 in (1, 5):
                at += 8 if tag & 7 == 1 else 4
            else:
                return []
    except ModelFileError:
        made = made[:-1]
    return made


def _only(folder: str, ending: str) -> str | None:
    """The one file of a folder that ends so."""
    found = [f for f in os.listdir(folder) if f.endswith(ending)]
    return found[0] if len(found) == 1 else None


def _begins(name: str, start: bytes, at: int = 0) -> bool:
    if not os.path.isfile(name):
        return False
    with open_regular(name, "convert") as file:
        return file.read(at + len(start))[at:] == start


def _is_tensorflow(name: str) -> bool:
    """Whether a file or folder is a model of TensorFlow or TensorFlow.js."""
    from bireme.convert.tensorflow.files import kind_of

    return kind_of(name) is not None


def _is_export(name: str) -> bool:
    """Whether a file is an archive with the graph of torch.export, or a program of torch.jit."""
    members = _members(name)
    if any(m.rpartition("/")[2] == "constants.pkl" for m in members):
        return True
    return any("models/" in m or m.endswith("serialized_exported_program.json") for m in members)


def _is_keras(name: str) -> bool:
    """Whether a file is an archive with a model of Keras."""
    return {"config.json", "model.weights.h5"} <= set(_members(name))


def _members(name: str) -> list[str]:
    """The members of an archive; none if it is no archive."""
    if not _begins(name, b"PK"):
        return []
    try:
        with open_regular(name, "convert") as file, zipfile.ZipFile(file) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        return []
