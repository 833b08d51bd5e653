"""Which reader a path needs."""

from __future__ import annotations

import os

from bireme.core.errors import InvalidArgument
from bireme.io.foreign import open_regular
from bireme.zoo.files.source import Source


def open_source(path: str | os.PathLike[str]) -> Source:
    """The model at `path`: a folder as Hugging Face writes it, a GGUF file, or a name that
    `hub.locate` knows."""
    from bireme.zoo.hub import locate

    name = locate(path)
    if os.path.isdir(name):
        from bireme.zoo.files import folder

        return folder.open_folder(name)
    if os.path.isfile(name):
        with open_regular(name, "zoo") as file:
            start = file.read(4)
        if start == b"GGUF":
            from bireme.zoo.files import gguf_model

            return gguf_model.open_gguf(name)
    raise InvalidArgument(
        f"[zoo] {name!r} is neither a folder with a config.json nor a GGUF file. Give one of them"
    )
