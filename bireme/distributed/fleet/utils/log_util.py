"""The logger of `paddle.distributed.fleet`, which programs write to."""

from __future__ import annotations

import logging

from bireme.core.errors import TypeMismatch

__all__ = ["get_log_level_code", "get_log_level_name", "logger", "set_log_level"]

logger = logging.getLogger("FLEET")


def set_log_level(level: int | str) -> None:
    """Log messages of this level and above: a name such as "DEBUG", or a number."""
    if isinstance(level, bool) or not isinstance(level, int | str):
        raise TypeMismatch(f"[set_log_level] level is a name or a number. Received: {level!r}")
    logger.setLevel(level.upper() if isinstance(level, str) else level)


def get_log_level_code() -> int:
    """The number of the level that is in force."""
    return logger.getEffectiveLevel()


def get_log_level_name() -> str:
    """The name of the level that is in force."""
    return logging.getLevelName(get_log_level_code())
