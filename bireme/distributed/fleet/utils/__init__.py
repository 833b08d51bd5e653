"""Helpers of large trainings."""

from bireme.distributed.fleet.utils.fs import LocalFS
from bireme.distributed.fleet.utils.hdfs import HDFSClient
from bireme.distributed.fleet.utils.ps_util import DistributedInfer
from bireme.distributed.fleet.utils.recomputing import recompute

__all__ = ["DistributedInfer", "HDFSClient", "LocalFS", "recompute"]
