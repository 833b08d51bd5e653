"""`paddle.signal`: short-time Fourier transforms."""

from __future__ import annotations

from bireme.api import public as _public

_functions = _public.functions("paddle.signal")
globals().update(_functions)

# As in Paddle, which has `frame` and `overlap_add` here without listing them.
__all__ = sorted(_functions.keys() - {"frame", "overlap_add"})  # pyright: ignore[reportUnsupportedDunderAll] (in the stub)
