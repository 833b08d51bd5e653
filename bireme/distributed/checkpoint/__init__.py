"""Checkpoints of tensors in parts: saved from one mesh, loaded onto another."""

from bireme.distributed.checkpoint.loading import load_merged_state_dict, load_state_dict
from bireme.distributed.checkpoint.saving import save_state_dict
from bireme.distributed.checkpoint.weights import (
    ShardedStateDict,
    ShardedWeight,
    build_sharded_state_dict,
    shard_weight,
)

__all__ = [
    "ShardedStateDict",
    "ShardedWeight",
    "build_sharded_state_dict",
    "load_merged_state_dict",
    "load_state_dict",
    "save_state_dict",
    "shard_weight",
]
