"""Bireme Lite: models for a small runtime in C++ (the folder lite/); see docs/lite.md."""

from __future__ import annotations

from bireme.lite.errors import LiteError, LiteUnavailable
from bireme.lite.exporting import export
from bireme.lite.runtime import Model
from bireme.lite.web import export_web

__all__ = ["LiteError", "LiteUnavailable", "Model", "export", "export_web"]
