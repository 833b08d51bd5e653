"""Files that hold models: each becomes a `Source`, whose tensors are read when they are asked for.

`folder` reads Hugging Face's folders. Whatever the format, a source's config has the keys of a
config.json and its tensors have the names that Hugging Face gives them.
"""

from __future__ import annotations

from bireme.zoo.files.opening import open_source
from bireme.zoo.files.source import Source, Stored

__all__ = ["Source", "Stored", "open_source"]
