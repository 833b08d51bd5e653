"""Inner names of `to_static` that programs catch or ask for."""

from __future__ import annotations

from bireme.core.errors import CaptureError

Dygraph2StaticException = CaptureError

__all__ = ["Dygraph2StaticException"]
