"""The best layout of every op, by dynamic programming along the graph.

A state is the layouts of all values that later ops read. Between two states an op has the ways of
`splits`, and messages change layouts where they differ. For each state the best solutions are kept:
those that no other beats in time, in memory for activations and in memory for weights at once. So
the result is exact for the cost model, whatever the memory turns out to be. Equal blocks are
solved once and get equal layouts.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from bireme.distributed.planner.reading import Reading, Work
from bireme.distributed.planner.repeats import Part, parts_of
from bireme.distributed.planner.splits import COLUMNS, ROWS, WHOLE, Need, Splits, Way

_SOLUTIONS = 24  # of one state at most; the fastest and the smallest are among them
_COPY, _SLICE, _TURNED = 1, 2, 4  # forms of a value that were paid for


class Step(NamedTuple):
    """One op as it was decided, and the messages that it needed."""

    work: Work
    way: Way
    converted: tuple[float, float]  # seconds of messages, forward and backward
    kept: float  # bytes for the backward pass


class Trail(NamedTuple):
    """The decisions so far, the last first; a run of equal blocks is one of them."""

    before: Trail | None
    step: Step | None
    run: tuple[Part, Trail | None] | None = None


class Entry(NamedTuple):
    """A partial solution: seconds, bytes of activations, bytes of weights."""

    time: float
    kept: float
    weights: float
    trail: Trail | None


# Layout and paid forms of each live value, by number; kinds of weights that are used again.
State = tuple[tuple[int, int, int], ...]


@dataclass
class Unit:
    """A stretch of the model that a pipeline does not cut: one of `count` equal ones."""

    count: int
    steps: list[Step] = field(default_factory=list)
    boundary: float = 0.0  # bytes that enter it


class Solution:
    """A layout of the whole model."""

    def __init__(self, units: list[Unit], parts: list[Part | None], weights: Container[int]):
        self.units = units
        self._parts = parts  # of runs of equal blocks
        self._weights = weights

    @cached_property
    def kinds(self) -> dict[int, str]:
        """COLUMNS, ROWS or WHOLE for each weight of a product."""
        return {w: step.way.kind for w, step in self._cut()}

    @cached_property
    def sequences(self) -> set[int]:
        """Tables, and weights cut by rows, whose results lie in parts of the sequence."""
        return {
            w
            for w, step in self._cut()
            if step.way.made == 2 and (step.way.kind == ROWS or step.work.name == "embedding")
        }

    def _cut(self) -> Iterator[tuple[int, Step]]:
        for unit, part in zip(self.units, self._parts, strict=True):
            for step in unit.steps:
                if step.way.weight is None:
                    continue
                same = [step.work] if part is None else part.same(step.work)
                for work in same:
                    yield next(a for a in work.args if a is not None and a in self._weights), step


class Choosing:
    """Finds the solutions for one degree of tensor parallelism and one micro-batch."""

    def __init__(self, reading: Reading, splits: Splits, micro_batches: float) -> None:
        self.reading, self.splits = reading, splits
        self.steps_share = 1 / max(1.0, micro_batches)
        self.last = _last_uses(reading)
        uses: dict[int, int] = {}
        for work in reading.work:
            for a in work.args:
                if a in reading.weights:
                    uses[a] = uses.get(a, 0) + 1
        self.shared = {w for w, count in uses.items() if count > 1}

    def solve(self) -> list[Solution]:
        """Solutions of which none is beaten in everything by another."""
        states: dict[State, list[Entry]] = {(): [Entry(0.0, 0.0, 0.0, None)]}
        for part in parts_of(self.reading):
            states = self._part(part, states)
        ends = _best([e for entries in states.values() for e in entries])
        return [self._solution(e) for e in ends]

    def _part(self, part: Part, states: dict[State, list[Entry]]) -> dict[State, list[Entry]]:
        if part.count == 1:
            return self._along(part.work, states)
        found: dict[State, list[Entry]] = {}
        for state, entries in states.items():
            inner = self._along(part.work, {state: [Entry(0.0, 0.0, 0.0, None)]})
            for after, ways in inner.items():
                if [s[1] for s in after] != [s[1] for s in state]:
                    continue  # the next block would begin with another layout
                moved = _renamed(after, part)
                for e in entries:
                    for w in ways:
                        made = Entry(
                            e.time + part.count * w.time,
                            e.kept + part.count * w.kept,
                            e.weights + part.count * w.weights,
                            Trail(e.trail, None, (part, w.trail)),
                        )
                        found.setdefault(moved, []).append(made)
        return {s: _best(e) for s, e in found.items()}

    def _along(
        self, work: list[Work], states: dict[State, list[Entry]]
    ) -> dict[State, list[Entry]]:
        for one in work:
            found: dict[State, list[Entry]] = {}
            for state, entries in states.items():
                for after, time, kept, weights, step in self._next(one, state):
                    into = found.setdefault(after, [])
                    for e in entries:
                        into.append(
                            Entry(
                                e.time + time,
                                e.kept + kept,
                                e.weights + weights,
                                Trail(e.trail, step),
                            )
                        )
            states = {s: _best(e) for s, e in found.items()}
        return states

    def _next(self, work: Work, state: State) -> list[tuple[State, float, float, float, Step]]:
        reading, splits = self.reading, self.splits
        known = {ref: (layout, paid) for ref, layout, paid in state}
        tracked = [a for a in work.args if a in reading.tracked]
        have = tuple(known[a][0] for a in tracked)
        found = []
        for way in splits.ways(work, have):
            weights = 0.0
            after = dict(known)
            if way.weight is not None:
                code = (WHOLE, COLUMNS, ROWS).index(way.kind)
                decided = known.get(way.weight)
                if decided is not None and decided[0] != code:
                    continue
                if decided is None:
                    weights = self._weight_bytes(way)
                    if way.weight in self.shared:
                        after[way.weight] = (code, 0)
            forward = backward = kept = 0.0
            for need in way.needs:
                layout, paid = after[need.ref]
                f, b, more, form = self._convert(need, layout, paid)
                forward, backward, kept = forward + f, backward + b, kept + more
                after[need.ref] = (layout, paid | form)
            time = way.forward + way.backward + way.messages_forward + way.messages_backward
            time += forward + backward + way.step * self.steps_share
            for r in work.results:
                if r in reading.kept:
                    kept += splits.size[r] / (splits.mp if way.made else 1)
                if r in reading.tracked:
                    after[r] = (way.made if self._has(r, way.made) else 0, 0)
            step = Step(work, way, (forward, backward), kept)
            alive = tuple(
                sorted(
                    (r, layout, paid)
                    for r, (layout, paid) in after.items()
                    if self.last.get(r, -1) > work.number
                )
            )
            found.append((alive, time, kept, weights, step))
        return found

    def _has(self, ref: int, layout: int) -> bool:
        return layout == 0 or layout <= len(self.reading.types[ref].shape)

    def _weight_bytes(self, way: Way) -> float:
        weight = self.reading.weights[way.weight]  # type: ignore[index]
        size = self.splits.size[weight.ref]
        if weight.is_expert:
            size /= self.splits.ep
        return size if way.kind == WHOLE else size / self.splits.mp

    def _convert(self, need: Need, layout: int, paid: int) -> tuple[float, float, float, int]:
        """(seconds forward, seconds backward, bytes kept, form) to read a value as needed."""
        splits = self.splits
        size, group, cluster = splits.size[need.ref], splits.group, splits.cluster
        if splits.mp == 1:
            return 0.0, 0.0, 0.0, 0
        if need.layout == layout:
            if not need.partial or layout or paid & _COPY:
                return 0.0, 0.0, 0.0, 0
            return 0.0, cluster.reduce(size, group), 0.0, _COPY
        if need.layout == 0:
            if paid & _COPY:
                return 0.0, 0.0, 0.0, 0
            part = cluster.gather(size, group)
            kept = size if need.ref in self.reading.kept else 0.0
            return part, part if need.partial else 0.0, kept, _COPY
        if layout == 0:
            if paid & _SLICE:
                return 0.0, 0.0, 0.0, 0
            return 0.0, cluster.gather(size, group), 0.0, _SLICE
        if paid & _TURNED:
            return 0.0, 0.0, 0.0, 0
        turned = cluster.exchange(size / splits.mp, group)
        return turned, turned, 0.0, _TURNED

    # --- from decisions to a solution -----------------------------------------------------

    def _solution(self, end: Entry) -> Solution:
        units: list[Unit] = []
        parts: list[Part | None] = []
        trail = end.trail
        while trail is not None:
            if trail.run is not None:
                part, inner = trail.run
                steps = _steps(inner)
                units.append(Unit(part.count, steps, self._boundary(part, steps)))
                parts.append(part)
            elif trail.step is not None:
                if not units or parts[-1] is not None:
                    units.append(Unit(1))
                    parts.append(None)
                units[-1].steps.append(trail.step)
            trail = trail.before
        for unit in units:
            if unit.count == 1:
                unit.steps.reverse()
        return Solution(units[::-1], parts[::-1], self.reading.weights)

    def _boundary(self, part: Part, steps: list[Step]) -> float:
        """Bytes on a device of what a block passes on to the next."""
        end = part.work[-1].number
        return sum(
            self.splits.size[r] / (self.splits.mp if step.way.made else 1)
            for step in steps
            for r in step.work.results
            if r in self.reading.tracked and self.last.get(r, -1) > end
        )


def _steps(trail: Trail | None) -> list[Step]:
    found = []
    while trail is not None:
        if trail.step is not None:
            found.append(trail.step)
        trail = trail.before
    return found[::-1]


def _renamed(state: State, part: Part) -> State:
    """The state after the last of equal blocks, given that after the first."""
    return tuple(sorted((part.after.get(r, r), layout, paid) for r, layout, paid in state))


def _best(entries: list[Entry]) -> list[Entry]:
    """The entries that no other beats in all three."""
    if len(entries) == 1:
        return entries
    entries.sort(key=lambda e: e[:3])
    found: list[Entry] = []
    for e in entries:
        if not any(f.kept <= e.kept and f.weights <= e.weights for f in found):
            found.append(e)
    if len(found) <= _SOLUTIONS:
        return found
    smallest = min(found, key=lambda e: e.kept + e.weights)
    every = len(found) / (_SOLUTIONS - 1)
    return [found[int(i * every)] for i in range(_SOLUTIONS - 1)] + [smallest]


def _last_uses(reading: Reading) -> dict[int, int]:
    last: dict[int, int] = {}
    for work in reading.work:
        for a in work.args:
            if a in reading.tracked or a in reading.weights:
                last[a] = work.number
    for r in reading.outputs:
        last.setdefault(r, -1)
    return last
