"""`paddle.incubate`: what Paddle is still trying out."""

from __future__ import annotations

from bireme.incubate import asp, autograd, optimizer
from bireme.incubate.optimizer import LookAhead, ModelAverage

__all__ = ["LookAhead", "ModelAverage", "asp", "autograd", "optimizer"]
