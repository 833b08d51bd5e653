"""Recomputation of sequences of layers."""

from bireme.distributed.fleet.utils.recomputing import recompute_hybrid, recompute_sequential

__all__ = ["recompute_hybrid", "recompute_sequential"]
