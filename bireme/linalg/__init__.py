"""`paddle.linalg`: products, norms and decompositions of matrices."""

from __future__ import annotations

from bireme.api import public as _public

_functions = _public.functions("paddle.linalg")
globals().update(_functions)

__all__ = sorted(_functions)  # pyright: ignore[reportUnsupportedDunderAll] (in the stub)
