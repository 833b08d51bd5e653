"""Layers whose parameters are cut over the mesh dimension "mp", pipelines over processes, and
models around them."""

from bireme.distributed.fleet.meta_parallel.layers import (
    ColumnParallelLinear,
    ParallelCrossEntropy,
    RowParallelLinear,
    VocabParallelEmbedding,
)
from bireme.distributed.fleet.meta_parallel.pipeline import PipelineParallel
from bireme.distributed.fleet.meta_parallel.pp_layers import (
    LayerDesc,
    PipelineLayer,
    SharedLayerDesc,
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
    "LayerDesc",
    "MetaParallelBase",
    "ParallelCrossEntropy",
    "PipelineLayer",
    "PipelineParallel",
    "RNGStatesTracker",
    "RowParallelLinear",
    "SegmentParallel",
    "ShardingParallel",
    "SharedLayerDesc",
    "TensorParallel",
    "VocabParallelEmbedding",
    "get_rng_state_tracker",
    "model_parallel_random_seed",
]
