"""`paddle.incubate`: what Paddle is still trying out."""

from __future__ import annotations

from bireme.incubate import autograd

__all__ = ["autograd"]
