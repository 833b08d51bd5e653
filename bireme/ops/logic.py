"""Comparison, logical and bitwise ops."""

from __future__ import annotations

__all__: list[str] = []
