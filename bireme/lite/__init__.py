"""Bireme Lite: models for a small runtime in C++ (the folder lite/); see docs/lite.md."""

from __future__ import annotations

from bireme.lite.exporting import export
from bireme.lite.runtime import LiteError, Model

__all__ = ["LiteError", "Model", "export"]
