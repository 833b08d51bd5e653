"""Automatic parallelism: choose how a model lies on a mesh."""

from bireme.distributed.planner.costs import Hardware
from bireme.distributed.planner.planning import Plan, Rival, plan

__all__ = ["Hardware", "Plan", "Rival", "plan"]
