"""Whether blocks fill an array: every element in exactly one of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

Box = tuple[tuple[int, int], ...]  # (from, to) of each axis

_MAX_PIECES = 64  # slabs that a block may be cut into, on average, before we stop looking


class Irregular(Exception):
    """Blocks that lie so oddly that nobody saved an array like that."""


def tiles(shape: Sequence[int], boxes: list[Box]) -> bool:
    """Whether the boxes, none of them empty, fill an array of this shape without overlap."""
    if any(not 0 <= a < b <= n for box in boxes for (a, b), n in zip(box, shape, strict=True)):
        return False
    if sum(math.prod(b - a for a, b in box) for box in boxes) != math.prod(shape):
        return False
    # With the right total, no gap means no overlap. Axis by axis: cut at every edge, and each slab
    # must be filled by the boxes that reach through it.
    budget = _MAX_PIECES * len(boxes) + 1024
    slabs = [(boxes, 0)]
    while slabs:
        some, axis = slabs.pop()
        if axis == len(shape):
            if len(some) != 1:
                return False
            continue
        edges = sorted({0, shape[axis], *[e for box in some for e in box[axis]]})
        inside: dict[int, list[Box]] = defaultdict(list)
        place = {e: i for i, e in enumerate(edges)}
        for box in some:
            first, last = place[box[axis][0]], place[box[axis][1]]
            budget -= last - first
            if budget < 0:
                raise Irregular
            for i in range(first, last):
                inside[i].append(box)
        if len(inside) != len(edges) - 1:
            return False
        slabs += [(part, axis + 1) for part in inside.values()]
    return True
