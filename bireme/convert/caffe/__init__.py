"""Models of Caffe, read from their files. Caffe is not needed.

`text` and `convert.wire` read the two forms of a net by one `schema`; `reader` makes a Program of
it; `layers` and `detection` have one rule per kind of layer.
"""

from __future__ import annotations

import os

from bireme.convert.caffe.reader import program_of, read_binary, read_text
from bireme.convert.errors import ModelFileError
from bireme.convert.imported import ImportedModel
from bireme.io.foreign import read_whole, reading


def load(
    net: str | os.PathLike[str], weights: str | os.PathLike[str] | None = None
) -> ImportedModel:
    """The net in a `.prototxt` with the weights of a `.caffemodel`, as a Layer in eval mode.

    `net` may be the `.caffemodel` alone if it declares its inputs. Parameters are called by their
    layer: `conv1.weight`, `conv1.bias`.
    """
    from bireme.convert.caffe.rules import rule

    name = os.fspath(net)
    with reading("convert", name):
        described = _read(name)
        trained = None if weights is None else _read(os.fspath(weights))
        return ImportedModel(program_of(described, trained), rule)


def _read(name: str) -> dict[str, object]:
    data = read_whole(name, "convert")
    if is_text(data):
        try:
            return read_text(data.decode("utf-8"))
        except UnicodeDecodeError:
            raise ModelFileError(f"[convert] {name!r:.300} is text that is not UTF-8") from None
    return read_binary(data)


def is_text(data: bytes) -> bool:
    """Whether this is the text form: it has none of the bytes of the binary form's lengths."""
    return not any(b < 9 or 13 < b < 32 for b in data[:4096])


def find_files(name: str) -> tuple[str, str | None] | None:
    """(the net, the weights) that belong to a file or folder of Caffe's; None if there is no net.

    They belong together if they have the same stem, or are the only ones of the folder."""
    folder = name if os.path.isdir(name) else os.path.dirname(name) or "."
    listed = sorted(os.listdir(folder))
    nets = [f for f in listed if f.endswith((".prototxt", ".prototxt.txt", ".pbtxt"))]
    trained = [f for f in listed if f.endswith(".caffemodel")]
    if os.path.isdir(name):
        net, weights = _partner("deploy", nets), _partner("", trained)
    else:
        with open(name, "rb") as file:
            text = is_text(file.read(4096))
        own = os.path.basename(name)
        net = own if text else _partner(_stem(own), nets)
        weights = _partner(_stem(own), trained) if text else own
    if net is None:
        return None if weights is None else (os.path.join(folder, weights), None)
    return os.path.join(folder, net), None if weights is None else os.path.join(folder, weights)


def _partner(stem: str, names: list[str]) -> str | None:
    same = [n for n in names if _stem(n) == stem]
    deploy = [n for n in names if _stem(n) == "deploy"]
    for found in (same, names, deploy):
        if len(found) == 1:
            return found[0]
    return None


def _stem(name: str) -> str:
    return os.path.basename(name).partition(".")[0]


__all__ = ["find_files", "is_text", "load"]
