"""Models of Keras, read from their files: `.keras` and `.h5`. Keras and h5py are not needed.

`hdf5` reads arrays and attributes; `reader` makes a Program of the model's configuration; `layers`
has one rule per kind of layer.
"""

from __future__ import annotations

import os

from bireme.convert.imported import ImportedModel
from bireme.convert.keras.reader import read
from bireme.io.foreign import read_whole, reading


def load(path: str | os.PathLike[str]) -> ImportedModel:
    """The model in a file of `model.save`, as a Layer in eval mode. Nothing in it is executed: a
    `Lambda` layer, and a class of one's own, are refused by name."""
    from bireme.convert.keras.layers import rule

    name = os.fspath(path)
    data = read_whole(name, "convert")
    with reading("convert", name):
        return ImportedModel(read(data, name), rule)


__all__ = ["load"]
