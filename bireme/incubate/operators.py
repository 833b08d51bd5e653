"""Graph sampling, segments, masked softmax and the identity loss of `paddle.incubate`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bireme.api.keywords import guarded
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor, constant
from bireme.geometric import reindex_graph, sample_neighbors, send_u_recv
from bireme.nn.functional import softmax
from bireme.ops.contents import Result, reads_contents
from bireme.ops.math_unary import assign_value
from bireme.ops.matrices import tril
from bireme.ops.reduction import mean, sum


@guarded
def graph_send_recv(
    x: Tensor,
    src_index: Tensor,
    dst_index: Tensor,
    pool_type: str = "sum",
    out_size: int | Tensor | None = None,
    name: str | None = None,
) -> Tensor:
    """What each node receives: x[src_index] pooled over the edges that end in it."""
    return send_u_recv(x, src_index, dst_index, pool_type, out_size)


@guarded
def graph_sample_neighbors(
    row: Tensor,
    colptr: Tensor,
    input_nodes: Tensor,
    eids: Tensor | None = None,
    perm_buffer: Tensor | None = None,
    sample_size: int = -1,
    return_eids: bool = False,
    flag_perm_buffer: bool = False,
    name: str | None = None,
) -> tuple[Tensor, ...]:
    """Up to sample_size neighbours of each node, and how many each has; see
    `paddle.geometric.sample_neighbors`."""
    if flag_perm_buffer and perm_buffer is None:
        raise InvalidArgument(
            "[graph_sample_neighbors] flag_perm_buffer=True needs perm_buffer. Received: None"
        )
    return sample_neighbors(row, colptr, input_nodes, sample_size, eids, return_eids, perm_buffer)


@guarded
def graph_reindex(
    x: Tensor,
    neighbors: Tensor,
    count: Tensor,
    value_buffer: Tensor | None = None,
    index_buffer: Tensor | None = None,
    flag_buffer_hashtable: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """New numbers from 0 for a sample's nodes; see `paddle.geometric.reindex_graph`."""
    if flag_buffer_hashtable and (value_buffer is None or index_buffer is None):
        raise InvalidArgument(
            "[graph_reindex] flag_buffer_hashtable=True needs value_buffer and index_buffer. "
            "Received: None"
        )
    return reindex_graph(x, neighbors, count, value_buffer, index_buffer)


def _khop_results(
    row: Tensor,
    colptr: Tensor,
    input_nodes: Tensor,
    sample_sizes: Sequence[int],
    sorted_eids: Tensor | None = None,
    return_eids: bool = False,
    name: str | None = None,
) -> tuple[Result, ...]:
    sides = (Result([None, 1], row.dtype),) * 2
    numbers = (Result([None], row.dtype), Result([input_nodes._value.aval.size], row.dtype))
    eids = (Result([None, 1], row.dtype),) if return_eids else ()
    return (*sides, *numbers, *eids)


@guarded
@reads_contents(_khop_results)
def graph_khop_sampler(
    row: Tensor,
    colptr: Tensor,
    input_nodes: Tensor,
    sample_sizes: Sequence[int],
    sorted_eids: Tensor | None = None,
    return_eids: bool = False,
    name: str | None = None,
) -> tuple[Tensor, ...]:
    """Neighbours of neighbours: `sample_sizes` says how many for each step away.

    (sources [n, 1], destinations [n, 1], old numbers of all nodes, new numbers of input_nodes[,
    numbers of the edges]); the input nodes come first among the new numbers.
    """
    if return_eids and sorted_eids is None:
        raise InvalidArgument(
            "[graph_khop_sampler] return_eids=True needs sorted_eids. Received: None"
        )
    wide = row.dtype.numpy
    start = input_nodes.numpy().reshape(-1)
    frontier, seen = start, set(start.tolist())
    sources: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    edges: list[np.ndarray] = []
    rows, columns = row.reshape([-1]), colptr.reshape([-1])
    numbers = None if sorted_eids is None else sorted_eids.reshape([-1])
    for size in sample_sizes:
        found = sample_neighbors(rows, columns, constant(frontier), size, numbers, return_eids)
        sources.append(found[0].numpy())
        targets.append(np.repeat(frontier, found[1].numpy()))
        if return_eids:
            edges.append(found[2].numpy())
        fresh = [n for n in dict.fromkeys(sources[-1].tolist()) if n not in seen]
        seen.update(fresh)
        frontier = np.asarray(fresh, wide)
    source, target = np.concatenate(sources), np.concatenate(targets)
    old = list(dict.fromkeys([*start.tolist(), *target.tolist(), *source.tolist()]))
    new = {n: i for i, n in enumerate(old)}

    def renamed(nodes: np.ndarray) -> np.ndarray:
        return np.asarray([new[n] for n in nodes.tolist()], wide)

    made = [renamed(source)[:, None], renamed(target)[:, None], np.asarray(old, wide)]
    made.append(renamed(start))
    if return_eids:
        made.append(np.concatenate(edges)[:, None])
    return tuple([constant(a) for a in made])


@guarded
def softmax_mask_fuse(x: Tensor, mask: Tensor, name: str | None = None) -> Tensor:
    """softmax(x + mask) over the last dimension; mask is [batch, 1, rows, columns]."""
    if x.ndim != 4 or mask.ndim != 4 or mask.shape[1] != 1:
        raise ShapeMismatch(
            "[softmax_mask_fuse] takes [batch, heads, rows, columns] and a mask [batch, 1, rows, "
            f"columns]. Received: {x.shape} and {mask.shape}"
        )
    return softmax(x + mask, -1)


@guarded
def softmax_mask_fuse_upper_triangle(x: Tensor) -> Tensor:
    """Softmax over the last dimension of [batch, heads, rows, columns] in which row i sees
    columns up to i; the others are zero."""
    if x.ndim != 4:
        raise ShapeMismatch(
            "[softmax_mask_fuse_upper_triangle] takes [batch, heads, rows, columns]. Received: "
            f"{x.shape}"
        )
    import bireme as paddle

    seen = tril(paddle.ones_like(x)) > 0
    low = float(np.finfo(np.float32).min) / 4
    hidden = paddle.where(seen, x.astype("float32"), low)
    return paddle.where(seen, softmax(hidden, -1).astype(x.dtype), paddle.zeros_like(x))


_REDUCTIONS = {"sum": 0, "mean": 1, "none": 2}


@guarded
def identity_loss(x: Tensor, reduction: str | int = "none") -> Tensor:
    """x itself as the loss: its mean (1), its sum (0) or as it is (2)."""
    kind = _REDUCTIONS.get(reduction.lower()) if isinstance(reduction, str) else reduction
    if kind not in (0, 1, 2):
        raise TypeMismatch(
            f"[identity_loss] reduction must be 'sum', 'mean' or 'none'. Received: {reduction!r}"
        )
    return assign_value(x) if kind == 2 else (sum, mean)[kind](x)
