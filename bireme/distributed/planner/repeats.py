"""Runs of equal blocks in a graph: a decoder of 126 layers is solved as one layer."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bireme.distributed.planner.reading import Reading, Work

_LONGEST = 600  # ops of a block


@dataclass
class Part:
    """Consecutive ops; `count` blocks of them if they repeat, of which `work` is the first."""

    work: list[Work]
    count: int = 1
    blocks: list[list[Work]] = field(default_factory=list)
    after: dict[int, int] = field(default_factory=dict)  # results of the first block: of the last

    def same(self, work: Work) -> list[Work]:
        """The ops of all blocks that stand where `work` stands in the first."""
        at = next(i for i, w in enumerate(self.work) if w is work)
        return [block[at] for block in self.blocks]


def parts_of(reading: Reading) -> list[Part]:
    """The ops that gradients pass, in parts: runs of equal blocks and what is between them."""
    work = [w for w in reading.work if any(r in reading.tracked for r in w.results)]
    keys = _keys(work, reading)
    found: list[Part] = []
    at = 0
    for begin, period, count in _runs(keys):
        if begin > at:
            found.append(Part(work[at:begin]))
        blocks = [work[begin + i * period : begin + (i + 1) * period] for i in range(count)]
        after = {
            a: b
            for x, y in zip(blocks[0], blocks[-1], strict=True)
            for a, b in zip(x.results, y.results, strict=True)
        }
        found.append(Part(blocks[0], count, blocks, after))
        at = begin + period * count
    if at < len(work):
        found.append(Part(work[at:]))
    return found


def _keys(work: list[Work], reading: Reading) -> np.ndarray:
    """A number for each op: equal if the ops are, with inputs equally far back."""
    position = {r: i for i, w in enumerate(work) for r in w.results}
    uses: dict[int, int] = {}
    for w in work:
        for a in w.args:
            if a in reading.weights:
                uses[a] = uses.get(a, 0) + 1
    numbers: dict[object, int] = {}
    found = []
    for i, w in enumerate(work):
        args: list[object] = []
        for a in w.args:
            if a is None:
                args.append(None)
            elif a in reading.weights:
                args.append(("shared", a) if uses[a] > 1 else ("weight", reading.types[a]))
            elif a in reading.tracked:
                producer = work[position[a]]
                args.append((i - position[a], producer.results.index(a)))
            else:
                args.append(("side", reading.types[a]))
        types = tuple((reading.types[r], r in reading.kept) for r in w.results)
        key = (w.name, tuple(args), types, repr(sorted(w.attrs.items(), key=lambda e: e[0])))
        found.append(numbers.setdefault(key, len(numbers)))
    return np.asarray(found)


def _runs(keys: np.ndarray) -> list[tuple[int, int, int]]:
    """(begin, period, count) of runs that do not overlap, in order; those that cover most first."""
    free = [(0, len(keys))]
    found: list[tuple[int, int, int]] = []
    while free:
        low, high = free.pop()
        best = (0, 0, 0, 0)
        for period in range(2, min(_LONGEST, (high - low) // 2) + 1):
            same = keys[low : high - period] == keys[low + period : high]
            edges = np.flatnonzero(np.diff(np.concatenate(([0], same.view(np.int8), [0]))))
            for begin, end in zip(edges[::2], edges[1::2], strict=True):
                count = int(end - begin) // period + 1
                if count > 1 and count * period > best[0]:
                    best = (count * period, low + int(begin), period, count)
        if best[0]:
            covered, begin, period, count = best
            found.append((begin, period, count))
            free += [(low, begin), (begin + covered, high)]
    return sorted(found)
