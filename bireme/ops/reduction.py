"""Sums, means, extrema and other reductions."""

from __future__ import annotations

__all__: list[str] = []
