"""paddle.nn.functional: the stateless functions behind the layers."""

from __future__ import annotations

from bireme import ops as _ops
from bireme.core.keywords import accept as _accept

_functions = _accept("nn.functional", _ops.public(_ops.FUNCTIONAL))
globals().update(_functions)

from bireme.nn.functional import flash_attention  # noqa: E402 (a namespace of its own)

__all__ = [*sorted(_functions), "flash_attention"]  # pyright: ignore[reportUnsupportedDunderAll] (in the stub)
