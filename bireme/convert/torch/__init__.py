"""Models of PyTorch, read from their files: `.pt2` (torch.export). PyTorch is not needed.

`exported` reads a file into a `Program`; `aten` has one rule per op of PyTorch; `model` is the
Layer that runs the program by these rules.
"""

from __future__ import annotations

import os

from bireme.convert.torch.model import TorchModel
from bireme.convert.torch.program import TorchFileError


def load(path: str | os.PathLike[str]) -> TorchModel:
    """The model in a `.pt2` file that `torch.export.save` wrote, as a Layer in eval mode.

    Parameters and buffers have PyTorch's names, so `state_dict()` has PyTorch's keys. The layer can
    be called, trained, saved by `jit.save` and exported. Nothing in the file is executed.
    """
    from bireme.convert.torch.exported import read

    return TorchModel(read(path))


__all__ = ["TorchFileError", "TorchModel", "load"]
