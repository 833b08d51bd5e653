"""`paddle.incubate`: what Paddle is still trying out."""

from __future__ import annotations

from bireme.api.keywords import explained as _explained
from bireme.geometric import segment_max, segment_mean, segment_min, segment_sum
from bireme.incubate import asp, autograd, autotune, cc, distributed, nn, optimizer
from bireme.incubate.operators import (
    graph_khop_sampler,
    graph_reindex,
    graph_sample_neighbors,
    graph_send_recv,
    identity_loss,
    softmax_mask_fuse,
    softmax_mask_fuse_upper_triangle,
)
from bireme.incubate.optimizer import LookAhead, ModelAverage
from bireme.incubate.predicted import inference

__all__ = [
    "LookAhead", "ModelAverage", "asp", "autograd", "autotune", "cc", "distributed",
    "graph_khop_sampler", "graph_reindex",
    "graph_sample_neighbors", "graph_send_recv", "identity_loss", "inference", "nn", "optimizer",
    "segment_max", "segment_mean", "segment_min", "segment_sum", "softmax_mask_fuse",
    "softmax_mask_fuse_upper_triangle",
]  # fmt: skip

_segments = [name for name in __all__ if name.startswith("segment_")]
globals().update(_explained({name: globals()[name] for name in _segments}))
