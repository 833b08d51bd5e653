"""paddle.incubate.distributed.models."""

from bireme.incubate.distributed.models import moe

__all__ = ["moe"]
