"""Models of other frameworks, told apart by their contents."""

from __future__ import annotations

import os
import zipfile
from typing import TYPE_CHECKING

from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.io.foreign import open_regular

if TYPE_CHECKING:
    from bireme.nn.layer.layer import Layer

_NO_ONNX = (b"PK", b"\x89", b"GGUF", b"{", b"\x80", b"\x1f\x8b")  # how a protobuf never begins


def load(path: str | os.PathLike[str]) -> Layer:
    """The model at `path` as a Layer in eval mode, with `input_specs()` for `jit.save`.

    `path` is a file of `torch.export.save` (`.pt2`), an ONNX file, or a model that Paddle saved (a
    folder, a prefix or a file). The content decides, not the ending. Nothing in it is executed.
    """
    from bireme.convert.paddle.model import find_files, read_model

    name = os.fspath(path)
    files = find_files(name)
    if files is not None and not _begins(name, b"PK"):
        return read_model(files)
    if not os.path.exists(name):
        raise InvalidArgument(f"[convert] there is no file or folder {name!r}")
    if os.path.isfile(name):
        if _is_export(name):
            from bireme.convert import torch

            return torch.load(name)
        if not any(_begins(name, start) for start in _NO_ONNX):
            from bireme.convert.onnx.layer import OnnxLayer

            return OnnxLayer(name)
    raise FileFormatError(
        f"[convert] {name!r} is no model that can be converted: give a file of torch.export.save, "
        "an ONNX file, or a model that Paddle saved. Weights alone are read by paddle.load, "
        "language models by bireme.zoo.load"
    )


def _begins(name: str, start: bytes) -> bool:
    if not os.path.isfile(name):
        return False
    with open_regular(name, "convert") as file:
        return file.read(len(start)) == start


def _is_export(name: str) -> bool:
    """Whether a file is an archive with the graph of torch.export."""
    if not _begins(name, b"PK"):
        return False
    try:
        with open_regular(name, "convert") as file, zipfile.ZipFile(file) as archive:
            members = archive.namelist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        return False
    return any("models/" in m or m.endswith("serialized_exported_program.json") for m in members)
