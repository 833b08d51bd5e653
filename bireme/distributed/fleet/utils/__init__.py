"""Helpers of large trainings."""

from bireme.distributed.fleet.utils.fs import LocalFS
from bireme.distributed.fleet.utils.recomputing import recompute

__all__ = ["LocalFS", "recompute"]
