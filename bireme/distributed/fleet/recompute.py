"""paddle.distributed.fleet.recompute: parts of a model that run again in the backward pass."""

from bireme.distributed.fleet.utils.recomputing import recompute, recompute_sequential

__all__ = ["recompute", "recompute_sequential"]
