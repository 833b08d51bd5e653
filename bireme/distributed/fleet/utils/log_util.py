"""The logger of `paddle.distributed.fleet`, which programs write to."""

from __future__ import annotations

import logging

__all__ = ["logger"]

logger = logging.getLogger("FLEET")
