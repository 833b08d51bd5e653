"""Layers whose parameters are cut over the mesh dimension "mp", and models around them."""

from bireme.distributed.fleet.meta_parallel.layers import (
    ColumnParallelLinear,
    ParallelCrossEntropy,
    RowParallelLinear,
    VocabParallelEmbedding,
)
from bireme.distributed.fleet.meta_parallel.random import (
    RNGStatesTracker,
    get_rng_state_tracker,
    model_parallel_random_seed,
)
from bireme.distributed.fleet.meta_parallel.wrappers import (
    MetaParallelBase,
    SegmentParallel,
    ShardingParallel,
    TensorParallel,
)

__all__ = [
    "ColumnParallelLinear",
    "MetaParallelBase",
    "ParallelCrossEntropy",
    "RNGStatesTracker",
    "RowParallelLinear",
    "SegmentParallel",
    "ShardingParallel",
    "TensorParallel",
    "VocabParallelEmbedding",
    "get_rng_state_tracker",
    "model_parallel_random_seed",
]
