"""paddle.nn.functional: the stateless functions behind the layers."""

from __future__ import annotations

from bireme.api import public as _public

_functions = _public.functions("paddle.nn.functional")
globals().update(_functions)

from bireme.nn.functional import flash_attention  # noqa: E402 (a namespace of its own)

__all__ = [*sorted(_functions), "flash_attention"]  # pyright: ignore[reportUnsupportedDunderAll] (in the stub)
