"""`paddle.fft`: discrete Fourier transforms."""

from __future__ import annotations

from bireme.api import public as _public

_functions = _public.functions("paddle.fft")
globals().update(_functions)

__all__ = sorted(_functions)  # pyright: ignore[reportUnsupportedDunderAll] (in the stub)
