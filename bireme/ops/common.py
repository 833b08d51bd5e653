"""Linear, embedding, dropout, padding, interpolation and the like."""

from __future__ import annotations

__all__: list[str] = []
