"""What a layout costs in a whole training step: stages, micro-batches, ZeRO, recomputation."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from bireme.distributed.planner.choosing import Solution, Step, Unit
from bireme.distributed.planner.cluster import Cluster, Group
from bireme.distributed.planner.reading import Reading, Weight
from bireme.distributed.planner.splits import COLUMNS, WHOLE, Splits


@dataclass(frozen=True)
class State:
    """Bytes per number of a weight: its gradient, and what an optimizer keeps of it."""

    gradient: float
    optimizer: float

    @classmethod
    def of(cls, slots: int, masters: bool, itemsize: int) -> State:
        """Of an optimizer with this many accumulators; masters are copies in float32."""
        wide = masters and itemsize < 4
        return cls(itemsize, slots * (4.0 if wide else itemsize) + (4.0 if wide else 0.0))


class Degrees(NamedTuple):
    """How devices are divided, and how each step is."""

    dp: int
    mp: int
    pp: int
    ep: int
    zero: int
    micro_batch: int  # rows of a device at a time
    micro_batches: int
    virtual: int  # parts of a stage, for the interleaved order


@dataclass
class Load:
    """One unit's costs on a device, for one micro-batch."""

    forward: float
    backward: float
    messages: float
    kept: float
    boundary: float
    weights: dict[int, tuple[float, float]]  # numbers and bytes of each on a device
    experts: dict[int, tuple[float, float]]
    step: float
    transient: float
    count: int

    @cached_property
    def dense(self) -> tuple[float, float]:
        """Numbers and bytes of all weights but those of experts."""
        return _summed(self.weights)

    @cached_property
    def expert(self) -> tuple[float, float]:
        """Numbers and bytes of the experts' weights."""
        return _summed(self.experts)


@dataclass
class Stage:
    """What one stage holds: how many of which units, and its bytes."""

    units: list[tuple[int, int]] = field(default_factory=list)  # (unit, how many)
    memory: dict[str, float] = field(default_factory=dict)
    recomputed: dict[int, int] = field(default_factory=dict)  # unit: how many of them
    seconds: float = 0.0

    @property
    def total(self) -> float:
        return sum(self.memory.values())


@dataclass
class Outcome:
    """The prediction for one candidate."""

    degrees: Degrees
    solution: Solution
    seconds: float
    parts: dict[str, float]  # seconds by cause; they add up to `seconds`
    stages: list[Stage]
    mfu: float = 0.0
    sent: dict[str, float] = field(default_factory=dict)  # bytes a device sends in a step

    @property
    def memory(self) -> float:
        """Bytes of the fullest device."""
        return max(s.total for s in self.stages)

    @property
    def recomputed(self) -> int:
        return sum(sum(s.recomputed.values()) for s in self.stages)


def _summed(weights: dict[int, tuple[float, float]]) -> tuple[float, float]:
    return sum(n for n, _ in weights.values()), sum(b for _, b in weights.values())


def loads_of(reading: Reading, splits: Splits, solution: Solution) -> list[Load]:
    """The costs of a solution's units."""
    return [_load(reading, splits, unit) for unit in solution.units]


def _load(reading: Reading, splits: Splits, unit: Unit) -> Load:
    found = Load(0, 0, 0, 0, unit.boundary, {}, {}, 0, 0, unit.count)
    for step in unit.steps:
        way = step.way
        found.forward += way.forward + way.messages_forward + step.converted[0]
        found.backward += way.backward + way.messages_backward + step.converted[1]
        found.messages += way.messages_forward + way.messages_backward + sum(step.converted)
        found.kept += step.kept
        found.step += way.step
        made = sum(splits.size[r] for r in step.work.results) / (splits.mp if way.made else 1)
        found.transient = max(found.transient, 2 * made)
        for a in step.work.args:
            if a in reading.weights:
                _add_weight(found, reading.weights[a], step, splits)
    return found


def _add_weight(load: Load, weight: Weight, step: Step, splits: Splits) -> None:
    count, size = weight.size, splits.size[weight.ref]
    cut = step.way.weight == weight.ref and step.way.kind != WHOLE
    bias = step.way.kind == COLUMNS and step.way.weight != weight.ref
    if cut or bias:
        count, size = count / splits.mp, size / splits.mp
    if weight.is_expert:
        load.experts[weight.ref] = (count / splits.ep, size / splits.ep)
    else:
        load.weights[weight.ref] = (count, size)


class Scheduling:
    """Evaluates the degrees for one solution of the layouts."""

    def __init__(
        self, cluster: Cluster, solution: Solution, loads: list[Load], state: State, flops: float
    ) -> None:
        self.cluster, self.solution, self.loads = cluster, solution, loads
        self.state = state
        self.flops = flops  # of one row, forward
        self.units = sum(u.count for u in loads)
        self.seconds = sum(u.count * (u.forward + u.backward) for u in loads)
        self.smallest = float("inf")  # bytes of the smallest stage that did not fit
        self._chunks: dict[int, list[list[tuple[int, int]]] | None] = {}

    def at_least(self, d: Degrees) -> float:
        """A time that no schedule of these degrees beats."""
        return (d.micro_batches + (d.pp - 1) / d.virtual) * self.seconds / d.pp

    def outcome(self, d: Degrees, limit: float, recompute: str) -> Outcome | None:
        """The step of these degrees, within so many bytes a device; None if it does not fit.

        `recompute` is "auto" (as few units as it takes), "none" or "all".
        """
        chunks = self._cut(d.pp * d.virtual)
        if chunks is None:
            return None
        stages: list[Stage] = []
        known: dict[tuple[tuple[tuple[int, int], ...], float], Stage] = {}
        for s in range(d.pp):
            counts: dict[int, int] = {}
            for chunk in chunks[s :: d.pp]:
                for unit, count in chunk:
                    counts[unit] = counts.get(unit, 0) + count
            units = tuple(counts.items())
            flight = self._in_flight(s, d)
            stage = known.get((units, flight))
            if stage is None:
                stage = known[units, flight] = Stage(list(units))
                if not self._fill(stage, flight, d, limit, recompute):
                    return None
            stages.append(stage)
        return self._timed(d, stages)

    # --- stages ---------------------------------------------------------------------------

    def _cut(self, count: int) -> list[list[tuple[int, int]]] | None:
        """The units in `count` stretches, the heaviest as light as possible."""
        if count not in self._chunks:
            found = None
            if count <= self.units:
                costs = [u.forward + u.backward for u in self.loads]
                low = max(max(costs), self.seconds / count)
                high = self.seconds + 1e-9
                for _ in range(30):
                    middle = (low + high) / 2
                    tried = self._filled(costs, middle, count)
                    if tried is None:
                        low = middle
                    else:
                        high, found = middle, tried
                found = found or self._filled(costs, high, count)
            self._chunks[count] = found
        return self._chunks[count]

    def _filled(
        self, costs: list[float], most: float, count: int
    ) -> list[list[tuple[int, int]]] | None:
        chunks: list[list[tuple[int, int]]] = [[]]
        room, left = most, self.units
        for unit, load in enumerate(self.loads):
            remaining = load.count
            while remaining:
                # Every later stretch needs a unit of its own.
                spare = left - (count - len(chunks))
                fits = int(room / costs[unit] + 1e-9) if costs[unit] > 0 else remaining
                taken = min(remaining, fits, max(spare, 1 if not chunks[-1] else 0))
                if taken <= 0:
                    if len(chunks) == count or not chunks[-1]:
                        return None
                    chunks.append([])
                    room = most
                    continue
                chunks[-1].append((unit, taken))
                room -= taken * costs[unit]
                remaining -= taken
                left -= taken
        return chunks if len(chunks) == count else None

    def _in_flight(self, s: int, d: Degrees) -> float:
        """Micro-batches whose activations stage `s` holds at once."""
        if d.virtual == 1:
            return float(min(d.micro_batches, d.pp - s))
        parts = (d.pp - s - 1) * 2 + (d.virtual - 1) * d.pp + 1
        return min(float(d.micro_batches), parts / d.virtual)

    def _fill(self, stage: Stage, flight: float, d: Degrees, limit: float, recompute: str) -> bool:
        """Count a stage's bytes, recomputing as it must; False if it does not fit."""
        loads = self.loads
        weights: dict[int, tuple[float, float]] = {}
        experts: dict[int, tuple[float, float]] = {}
        total_w = total_e = bytes_w = bytes_e = 0.0
        for unit, count in stage.units:
            load = loads[unit]
            if load.count == 1:
                weights |= load.weights
                experts |= load.experts
            else:
                dense, expert = load.dense, load.expert
                total_w, bytes_w = total_w + count * dense[0], bytes_w + count * dense[1]
                total_e, bytes_e = total_e + count * expert[0], bytes_e + count * expert[1]
        total_w += sum(n for n, _ in weights.values())
        bytes_w += sum(b for _, b in weights.values())
        total_e += sum(n for n, _ in experts.values())
        bytes_e += sum(b for _, b in experts.values())
        z, ze = (d.dp, max(1, d.dp // d.ep)) if d.zero else (1, 1)
        stage.memory["optimizer"] = self.state.optimizer * (total_w / z + total_e / ze)
        g, ge = (z, ze) if d.zero >= 2 else (1, 1)
        stage.memory["gradients"] = self.state.gradient * (total_w / g + total_e / ge)
        w, we = (z, ze) if d.zero >= 3 else (1, 1)
        stage.memory["weights"] = bytes_w / w + bytes_e / we
        largest = max(loads[u].dense[1] + loads[u].expert[1] for u, _ in stage.units)
        transient = max(loads[u].transient for u, _ in stage.units)
        if d.zero >= 3:
            transient += 2 * largest
        stage.memory["temporary"] = transient
        stage.memory["reserved"] = self.cluster.device.reserved
        kept = flight * sum(n * loads[u].kept for u, n in stage.units)
        room = limit - stage.total
        extra = 0.0
        candidates = sorted(
            {u for u, _ in stage.units if self._worth(u)},
            key=lambda u: loads[u].forward / (loads[u].kept - loads[u].boundary),
        )
        for u in candidates:
            if recompute == "none" or (recompute == "auto" and kept <= room):
                break
            have = dict(stage.units)[u]
            load = loads[u]
            saved = flight * (load.kept - load.boundary)
            # While a unit runs again its insides exist once.
            needed = have if recompute == "all" else int((kept + load.kept - room) / saved) + 1
            number = min(have, max(1, needed))
            stage.recomputed[u] = number
            kept += load.kept - number * saved
            extra += number * load.forward
        stage.memory["activations"] = max(kept, 0.0)
        stage.seconds = extra + sum(
            n * (loads[u].forward + loads[u].backward) for u, n in stage.units
        )
        if stage.total > limit:
            self.smallest = min(self.smallest, stage.total)
        return stage.total <= limit

    def _worth(self, unit: int) -> bool:
        load = self.loads[unit]
        return load.count > 1 and load.kept > 1.5 * load.boundary

    # --- time -----------------------------------------------------------------------------

    def _timed(self, d: Degrees, stages: list[Stage]) -> Outcome:
        cluster, loads, m = self.cluster, self.loads, d.micro_batches
        slow = max(stages, key=lambda s: s.seconds)
        again = sum(n * loads[u].forward for u, n in slow.recomputed.items())
        messages = sum(n * loads[u].messages for u, n in slow.units)
        parts = {
            "compute": m * (slow.seconds - again - messages),
            "recomputation": m * again,
            "tensor messages": m * messages,
            "bubble": (d.pp - 1) * slow.seconds / d.virtual,
        }
        boundary = max((u.boundary for u in loads if u.count > 1), default=0.0)
        sent = {"pipeline": 0.0}
        if d.pp > 1:
            each = cluster.send(boundary, d.mp * d.dp)
            shown = 1 - cluster.overlap
            parts["pipeline messages"] = 2 * each * (m * d.virtual * shown + d.pp - 1)
            sent["pipeline"] = 2 * m * d.virtual * boundary
        grads = updates = 0.0
        known: dict[tuple[tuple[int, int], ...], tuple[float, float]] = {}
        for s in stages:
            key = tuple(s.units)
            if key not in known:
                known[key] = self._gradients(d, s)
            seconds, size = known[key]
            if seconds > grads:
                grads, sent["gradients"] = seconds, size
            held = s.memory["optimizer"] * 2 + s.memory["gradients"] + s.memory["weights"]
            updates = max(updates, held / cluster.device.bandwidth)
        window = (m if d.zero >= 3 else 1) * slow.seconds * 2 / 3
        parts["gradient messages"] = grads - min(cluster.overlap * grads, window)
        parts["update"] = updates
        parts["shared gradients"] = sum(n * loads[u].step for u, n in slow.units)
        seconds = sum(parts.values())
        rows = d.micro_batch * m * d.dp
        ideal = 3 * self.flops * rows / (cluster.count * cluster.device.peak)
        return Outcome(d, self.solution, seconds, parts, stages, ideal / seconds, sent)

    def _gradients(self, d: Degrees, stage: Stage) -> tuple[float, float]:
        """(seconds, bytes) of messages for a stage's gradients and weights."""
        cluster, m = self.cluster, d.micro_batches
        dense = expert = 0.0
        for unit, count in stage.units:
            dense += count * self.loads[unit].dense[1]
            expert += count * self.loads[unit].expert[1]
        seconds = sent = 0.0
        for size, group in (
            (dense, Group(d.dp, d.mp)),
            (expert, Group(max(1, d.dp // d.ep), d.mp * d.ep)),
        ):
            if group.count == 1 or not size:
                continue
            times = {0: 2, 1: 2, 2: m + 1, 3: 3 * m}[d.zero]
            seconds += times * cluster.gather(size, group)
            sent += times * size * (group.count - 1) / group.count
        return seconds, sent
