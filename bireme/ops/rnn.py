"""Recurrent cells and sequences."""

from __future__ import annotations

__all__: list[str] = []
