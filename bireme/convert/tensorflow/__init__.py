"""Models of TensorFlow, read from their files. TensorFlow is not needed.

`table` and `bundle` read weights; `schema` says what the messages are; `nodes` → `frames` →
`reader` make a Program of a graph; `files` finds what belongs together; `rules` and the families
beside it have one rule per op.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from bireme.convert.imported import ImportedModel
from bireme.convert.tensorflow.files import read
from bireme.io.foreign import reading


def load(
    path: str | os.PathLike[str],
    signature: str | None = None,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
) -> ImportedModel:
    """The model at `path`, as a Layer in eval mode: the folder of a SavedModel or of TFJS, a
    frozen graph (`.pb`, `.pbtxt`), or a `.meta` file beside its checkpoint.

    A SavedModel may have several signatures: `signature` names one. A graph without signatures
    takes its placeholders and gives what nobody reads, unless `inputs` and `outputs` name others.
    """
    from bireme.convert.tensorflow.rules import rule

    name = os.fspath(path)
    with reading("convert", name):
        return ImportedModel(read(name, signature, inputs, outputs), rule)


__all__ = ["load"]
