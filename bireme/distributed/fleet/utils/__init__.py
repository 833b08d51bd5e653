"""Helpers of large trainings."""

from bireme.distributed.fleet.utils.recomputing import recompute

__all__ = ["recompute"]
