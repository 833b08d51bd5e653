"""`paddle.incubate.cc`: functions compiled for the shapes and types that they declare."""

from __future__ import annotations

from bireme.incubate.cc import fuse, typing
from bireme.incubate.cc.compiler import compile

__all__ = ["compile", "fuse", "typing"]
