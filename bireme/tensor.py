"""paddle.tensor: the functions of `paddle`, under their older address."""

from __future__ import annotations

import bireme

__all__ = sorted(vars(bireme)["_functions"])  # pyright: ignore[reportUnsupportedDunderAll]
globals().update({name: getattr(bireme, name) for name in __all__})
