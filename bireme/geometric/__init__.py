"""`paddle.geometric`: messages along the edges of graphs, segments, and samples of neighbours."""

from bireme.api.keywords import explained as _explained
from bireme.geometric.message_passing import send_u_recv, send_ue_recv, send_uv
from bireme.geometric.neighbors import (
    reindex_graph,
    reindex_heter_graph,
    sample_neighbors,
    weighted_sample_neighbors,
)
from bireme.geometric.segments import segment_max, segment_mean, segment_min, segment_sum

__all__ = [
    "reindex_graph", "reindex_heter_graph", "sample_neighbors", "segment_max", "segment_mean",
    "segment_min", "segment_sum", "send_u_recv", "send_ue_recv", "send_uv",
    "weighted_sample_neighbors",
]  # fmt: skip

_unexplained = [name for name in __all__ if not name.startswith("send_")]
globals().update(_explained({name: globals()[name] for name in _unexplained}))
