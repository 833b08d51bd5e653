"""paddle.incubate.distributed."""

from bireme.incubate.distributed import fleet, models

__all__ = ["fleet", "models"]
