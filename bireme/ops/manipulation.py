"""Shapes, joining, splitting and moving data."""

from __future__ import annotations

__all__: list[str] = []
