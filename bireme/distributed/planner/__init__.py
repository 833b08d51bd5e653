"""Automatic parallelism: choose how a model is divided over devices."""

from bireme.distributed.planner.cluster import Cluster, Device, Link
from bireme.distributed.planner.planning import plan
from bireme.distributed.planner.plans import Plan
from bireme.distributed.planner.schedule import Degrees, Outcome

__all__ = ["Cluster", "Degrees", "Device", "Link", "Outcome", "Plan", "plan"]
