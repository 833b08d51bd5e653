"""What a graph costs the cold tier: an estimate, from the types alone.

It decides where a program of another device begins. A few small ops are done on the host before
XLA has compiled the first of them; a step of a large network is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bireme.core.aval import Aval
from bireme.core.graph import Node
from bireme.core.kernels import is_product
from bireme.core.op import Call

# Of two cores, on the safe side; what counts is milliseconds or seconds.
_OPS_PER_SECOND = 2e10
_BYTES_PER_SECOND = 2e9
_SECONDS_PER_OP = 2e-5
_HALF = 4  # half precision is widened and rounded for each op


def seconds(nodes: Sequence[Node]) -> float:
    """The time that the nodes would take in NumPy; infinite where one of them has no NumPy body or
    an open size."""
    return math.fsum(of_call(n.call) for n in nodes)


def of_call(call: Call) -> float:
    if not call.op.runs_on_numpy() or "graph" in call.attrs:
        return math.inf
    arrays = [t for t in (*call.types, *call.outs) if isinstance(t, Aval)]
    if not all(t.is_static for t in arrays):
        return math.inf
    moved = sum(_bytes(t) for t in arrays)
    cost = _SECONDS_PER_OP + moved / _BYTES_PER_SECOND
    if is_product(call):
        cost += _product(arrays) / _OPS_PER_SECOND
    return cost


def _bytes(t: Aval) -> float:
    size = t.size * t.dtype.itemsize
    return size * _HALF if t.dtype.is_floating and t.dtype.itemsize < 4 else size


def _product(arrays: Sequence[Any]) -> float:
    """Multiplications and additions of a product of the largest arrays: m*k, k*n and m*n elements
    have (m*k*n)**2 together, and a gradient's two products are as large."""
    sizes = sorted((float(t.size) for t in arrays), reverse=True)[:3]
    return 4.0 * math.sqrt(math.prod(sizes)) if len(sizes) == 3 else 0.0
