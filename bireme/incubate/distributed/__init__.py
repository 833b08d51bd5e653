"""paddle.incubate.distributed."""

from bireme.incubate.distributed import fleet

__all__ = ["fleet"]
