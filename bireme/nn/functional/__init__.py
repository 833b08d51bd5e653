"""paddle.nn.functional: the stateless functions behind the layers."""

from __future__ import annotations

from bireme import ops as _ops

globals().update(_ops.public(_ops.FUNCTIONAL))

__all__ = sorted(_ops.public(_ops.FUNCTIONAL))
