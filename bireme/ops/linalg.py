"""Matrix products and linear algebra."""

from __future__ import annotations

__all__: list[str] = []
