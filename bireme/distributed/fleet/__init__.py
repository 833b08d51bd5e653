"""paddle.distributed.fleet: what holds for a job of one process."""

from bireme.distributed.fleet import utils

__all__ = ["utils"]
