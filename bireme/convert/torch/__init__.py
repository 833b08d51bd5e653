"""Models of PyTorch, read from their files: `.pt2` (torch.export) and TorchScript (torch.jit.save).
PyTorch is not needed.

`exported` reads a `.pt2` into a `Program`, and `model` is the Layer that runs it; `script` does
both for TorchScript. `aten` has one rule per op of PyTorch, for both.
"""

from __future__ import annotations

import os

from bireme.convert.torch.model import TorchModel
from bireme.convert.torch.program import TorchFileError
from bireme.convert.torch.script.model import ScriptModel
from bireme.io.foreign import open_zip


def load(path: str | os.PathLike[str]) -> TorchModel | ScriptModel:
    """The model in a file of `torch.export.save` or `torch.jit.save`, as a Layer in eval mode.

    Parameters and buffers have PyTorch's names, so `state_dict()` has PyTorch's keys. The layer can
    be called, trained, saved by `jit.save` and exported. Nothing in the file is executed.
    """
    from bireme.convert.torch import exported
    from bireme.convert.torch.script import archive

    with open_zip(path, "convert") as file:
        script = archive.is_script(file.names())
    return ScriptModel(archive.read(path)) if script else TorchModel(exported.read(path))


__all__ = ["ScriptModel", "TorchFileError", "TorchModel", "load"]
