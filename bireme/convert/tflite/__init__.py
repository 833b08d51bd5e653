"""Models of TFLite (LiteRT), read from their files. TensorFlow is not needed.

`flat` reads FlatBuffers; `schema` says what the fields are; `reader` makes a Program; `rules` and
the families beside it have one rule per op.
"""

from __future__ import annotations

import os

from bireme.convert.imported import ImportedModel
from bireme.convert.tflite.reader import read
from bireme.io.foreign import read_whole, reading


def load(path: str | os.PathLike[str]) -> ImportedModel:
    """The model in a `.tflite` file, as a Layer in eval mode; quantised ones take and give the
    integers that the file declares. Images have their channels last, as in the file."""
    from bireme.convert.tflite.rules import rule

    name = os.fspath(path)
    data = read_whole(name, "convert")
    with reading("convert", name):
        return ImportedModel(read(data), rule)


__all__ = ["load"]
