"""`paddle.dataset.common`: the check of a file's contents."""

from __future__ import annotations

import hashlib
import os

__all__ = ["md5file"]


def md5file(fname: str | os.PathLike[str]) -> str:
    """The MD5 sum of a file, in hexadecimal."""
    with open(fname, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()
