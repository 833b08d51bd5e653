"""Samples of a graph's neighbours, and new numbers for the nodes of a sample.

The results' sizes depend on the graph, so these read their inputs and work in NumPy; the random
numbers come from the default generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import bireme
from bireme.core import dtype as dt
from bireme.core import random as rng
from bireme.core.errors import InvalidArgument, PositionOutOfRange, ShapeMismatch
from bireme.core.tensor import Tensor, constant
from bireme.ops import random_bits
from bireme.ops.contents import Result, reads_contents


def _read(x: Tensor) -> np.ndarray:
    return np.asarray(x._array()).reshape(-1)


def _check_range(function: str, name: str, array: np.ndarray, stop: int) -> None:
    if len(array) and not (array.min() >= 0 and array.max() < stop):
        raise PositionOutOfRange(
            f"[{function}] {name} must be in [0, {stop - 1}]. Received: values from "
            f"{array.min()} to {array.max()}"
        )


def _sample_results(
    function: str,
    row: Tensor,
    colptr: Tensor,
    nodes: Tensor,
    weight: Tensor | None,
    sample_size: int,
    eids: Tensor | None,
    return_eids: bool,
) -> tuple[Result, ...]:
    found = (Result([None], row.dtype), Result([nodes._value.aval.size], dt.int32))
    return (*found, Result([None], eids.dtype)) if return_eids and eids is not None else found


def _reindex_results(x: Tensor, *rest: Any, **options: Any) -> tuple[Result, ...]:
    return (Result([None], x.dtype),) * 3


@reads_contents(_sample_results)
def _sample(
    function: str,
    row: Tensor,
    colptr: Tensor,
    nodes: Tensor,
    weight: Tensor | None,
    sample_size: int,
    eids: Tensor | None,
    return_eids: bool,
) -> tuple[Tensor, ...]:
    if return_eids and eids is None:
        raise InvalidArgument(f"[{function}] return_eids=True needs eids. Received: eids=None")
    rows, starts, wanted = _read(row), _read(colptr).astype(np.int64), _read(nodes)
    nodes_of_graph = max(len(starts) - 1, 0)
    _check_range(function, "input_nodes", wanted, nodes_of_graph)
    _check_range(function, "colptr", starts, len(rows) + 1)
    first, count = starts[wanted], starts[wanted + 1] - starts[wanted]
    if (count < 0).any():
        raise InvalidArgument(f"[{function}] colptr must not decrease. Received: {starts}")
    owner = np.repeat(np.arange(len(wanted)), count)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    edges = np.repeat(first, count) + within
    taken = count
    if sample_size >= 0:
        # The first of exponential waiting times are a draw without replacement, by weight.
        wait = -np.log1p(-random_bits.uniform(np, *rng.next_key(), edges.shape, np.float64))
        if weight is not None:
            chance = _read(weight)[edges].astype(np.float64)
            wait = np.where(chance > 0, wait / np.where(chance > 0, chance, 1), np.inf)
        small = np.repeat(count <= sample_size, count)
        wait = np.where(small, within, wait)  # all of them, in order
        order = np.lexsort((wait, owner))
        edges = edges[order[within < sample_size]]
        taken = np.minimum(count, sample_size)
    made = [constant(rows[edges]), constant(taken.astype(np.int32))]
    if return_eids and eids is not None:
        made.append(constant(_read(eids)[edges]))
    return tuple(made)


def sample_neighbors(
    row: Tensor,
    colptr: Tensor,
    input_nodes: Tensor,
    sample_size: int = -1,
    eids: Tensor | None = None,
    return_eids: bool = False,
    perm_buffer: Tensor | None = None,
    name: str | None = None,
) -> tuple[Tensor, ...]:
    """Up to `sample_size` neighbours of each node (all with -1), and how many each has.

    The graph is in compressed columns: node n's neighbours are row[colptr[n]:colptr[n + 1]].
    With `return_eids` the numbers of the edges come third. `perm_buffer` is scratch memory of
    Paddle's GPU kernel; none is needed here.
    """
    return _sample(
        "sample_neighbors", row, colptr, input_nodes, None, sample_size, eids, return_eids
    )


def weighted_sample_neighbors(
    row: Tensor,
    colptr: Tensor,
    edge_weight: Tensor,
    input_nodes: Tensor,
    sample_size: int = -1,
    eids: Tensor | None = None,
    return_eids: bool = False,
    name: str | None = None,
) -> tuple[Tensor, ...]:
    """As `sample_neighbors`, with probabilities in proportion to the edges' weights."""
    return _sample("weighted_sample_neighbors", row, colptr, input_nodes, edge_weight, sample_size,
                   eids, return_eids)  # fmt: skip


@reads_contents(_reindex_results)
def reindex_graph(
    x: Tensor,
    neighbors: Tensor,
    count: Tensor,
    value_buffer: Tensor | None = None,
    index_buffer: Tensor | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """New numbers from 0 for the nodes of a sample: (sources, destinations, the old numbers).

    The nodes x come first, then the other neighbours in the order of their appearance. The
    buffers are scratch memory of Paddle's GPU kernel; none is needed here.
    """
    nodes, others, counts = _read(x), _read(neighbors), _read(count)
    if counts.sum() != len(others) or (len(nodes) and len(counts) % len(nodes)):
        raise ShapeMismatch(
            "[reindex_graph] count must have a number for each node of x and add up to the "
            f"neighbors. Received: {len(counts)} counts with the sum {counts.sum()} for "
            f"{len(nodes)} nodes and {len(others)} neighbors"
        )
    everything = np.concatenate([nodes, others])
    old, first, place = np.unique(everything, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    number = np.empty(len(old), np.int64)
    number[order] = np.arange(len(old))
    source = number[place[len(nodes) :]]
    target = np.repeat(np.arange(len(counts)) % max(len(nodes), 1), counts)
    return tuple(constant(a.astype(nodes.dtype)) for a in (source, target, old[order]))  # type: ignore[return-value]


@reads_contents(_reindex_results)
def reindex_heter_graph(
    x: Tensor,
    neighbors: Sequence[Tensor],
    count: Sequence[Tensor],
    value_buffer: Tensor | None = None,
    index_buffer: Tensor | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """As `reindex_graph`, for samples along edges of several kinds, one after the other."""
    both: list[Any] = [list(neighbors), list(count)]
    return reindex_graph(x, bireme.concat(both[0]), bireme.concat(both[1]))
