"""In which ways an op can be divided over tensor parallelism, and what each way costs.

A layout is a number: 0 for a whole copy on each device, d + 1 for parts along dimension d. The
batch is already divided: sizes here are those of one device's rows of one micro-batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from bireme.distributed.planner.cluster import Cluster, Group
from bireme.distributed.planner.reading import Reading, Work

WHOLE, COLUMNS, ROWS = "whole", "columns", "rows"
_NORMS = ("layer_norm", "rms_norm", "group_norm", "instance_norm")
_ONE_AXIS = ("softmax", "log_softmax", "cumsum", "cumprod", "topk", "argmax", "flip", "sort")


class Need(NamedTuple):
    """The layout that an op reads an input in; `partial` if each device computes a part of the
    sum that is the input's gradient."""

    ref: int
    layout: int
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Way:
    """One way to compute an op: what it reads, what it makes, and its seconds."""

    needs: tuple[Need, ...]
    made: int  # the layout of the results
    forward: float
    backward: float
    messages_forward: float = 0.0
    messages_backward: float = 0.0
    step: float = 0.0  # once per step, whatever the number of micro-batches
    weight: int | None = None
    kind: str = WHOLE


class Splits:
    """The ways of all ops for `mp` devices, micro-batches of `rows` rows a device and `ep`."""

    def __init__(
        self,
        reading: Reading,
        cluster: Cluster,
        mp: int,
        ep: int,
        rows: float,
        fixed: dict[int, str],
    ) -> None:
        self.reading, self.cluster = reading, cluster
        self.mp, self.ep, self.rows, self.fixed = mp, ep, rows, fixed
        self.group = Group(mp)
        self.experts = Group(ep, mp)
        self.size = {ref: amount.at(rows) for ref, amount in reading.sizes.items()}
        self._stored = _stored(reading)
        self._known: dict[tuple[int, tuple[int, ...]], list[Way]] = {}

    def ways(self, work: Work, have: tuple[int, ...]) -> list[Way]:
        """The ways to compute an op whose tracked inputs have these layouts."""
        key = (work.number, have)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = list(self._ways(work, have))
        return found

    def _ways(self, work: Work, have: tuple[int, ...]) -> list[Way]:
        tracked = [a for a in work.args if a in self.reading.tracked]
        weight = self._weight(work)
        if weight is not None:
            return self._products(work, weight, tracked, have)
        if work.name in ("tokens_to_experts", "experts_to_tokens"):
            return [self._moved_tokens(work, tracked)]
        found = [self._way(work, [Need(a, 0) for a in tracked], 0, 1)]
        if self.mp > 1 and work.name == "_cross_entropy":
            return [*found, *self._losses(work, tracked)]
        if self.mp > 1:
            for at, layout in enumerate(have):
                if layout and all(layout != h for h in have[:at]):
                    way = self._carried(work, tracked, at, layout)
                    if way is not None:
                        found.append(way)
        return found

    # --- costs ----------------------------------------------------------------------------

    def _seconds(self, work: Work, parts: float) -> tuple[float, float]:
        """(forward, backward) of the computation, of which each device does 1 / parts."""
        device, reading = self.cluster.device, self.reading
        flops = work.flops.at(self.rows) / parts
        refs = [r for r in (*work.args, *work.results) if r is not None]
        if work.elementwise:
            refs = [r for r in refs if r in self._stored]
            if not refs:
                return 0.0, 0.0
        itemsize = reading.types[work.results[0]].dtype.itemsize
        moved = 0.0
        for r in refs:
            if r in reading.weights:
                w = reading.weights[r]
                used = self.size[r] / (self.ep if w.is_expert else 1)
                # A look-up reads the rows that it needs.
                moved += min(used, self.size[work.results[0]]) if work.name == "embedding" else used
            else:
                moved += self.size[r]
        moved /= parts
        share, dims = 1.0, []
        if work.dims:
            share = device.products
            sizes = [d.at(self.rows) for d in work.dims]
            sizes[1] /= parts  # the efficiency of the smaller product
            dims = [max(1.0, s) for s in sizes]
        elif work.name == "attention":
            share = device.attention
        elif work.name == "embedding":
            flops = 0.0
        forward = device.work(flops, moved, itemsize, share, dims)
        if work.results[0] not in reading.tracked:
            return forward, 0.0
        return forward, device.work(2 * flops, 2 * moved, itemsize, share, dims) + (
            device.launch if work.dims else 0.0
        )

    def _way(
        self, work: Work, needs: list[Need], made: int, parts: float, **more: float | int | str
    ) -> Way:
        forward, backward = self._seconds(work, parts)
        return Way(tuple(needs), made, forward, backward, **more)  # type: ignore[arg-type]

    def _moved_tokens(self, work: Work, tracked: list[int]) -> Way:
        size = max(self.size[r] for r in (*tracked, work.results[0]))
        message = self.cluster.exchange(size, self.experts)
        needs = [Need(a, 0) for a in tracked]
        return self._way(work, needs, 0, 1, messages_forward=message, messages_backward=message)

    def _losses(self, work: Work, tracked: list[int]) -> list[Way]:
        """The loss of logits whose classes are cut: maxima and sums of rows are exchanged."""
        logits = tracked[0]
        last = len(self.reading.types[logits].shape) - 1
        if not self._fits(logits, last):
            return []
        classes = self.reading.types[logits].shape[last]
        message = 2 * self.cluster.reduce(self.size[logits] / classes, self.group)
        needs = [Need(logits, last + 1), *(Need(a, 0) for a in tracked[1:])]
        return [self._way(work, needs, 0, self.mp, messages_forward=message)]

    # --- products with weights ------------------------------------------------------------

    def _weight(self, work: Work) -> int | None:
        """The parameter of a product or a look-up that may be cut."""
        if work.name in ("linear", "matmul", "embedding") or work.name.startswith("conv"):
            at = work.args[1] if len(work.args) > 1 else None
            turned = work.attrs.get("transpose_x") or work.attrs.get("groups", 1) != 1
            if at in self.reading.weights and not turned:
                return at
        return None

    def _products(
        self, work: Work, weight: int, tracked: list[int], have: tuple[int, ...]
    ) -> list[Way]:
        out = work.results[0]
        shape = self.reading.types[out].shape
        conv = work.name.startswith("conv")
        at_out = 1 if conv and not work.attrs.get("last") else len(shape) - 1
        x = work.args[0]
        is_tracked = x in self.reading.tracked
        table = work.name == "embedding"
        kinds = [self.fixed[weight]] if weight in self.fixed else [WHOLE, COLUMNS, ROWS]
        found: list[Way] = []
        if WHOLE in kinds:
            needs = [Need(a, 0) for a in tracked]
            found.append(self._way(work, needs, 0, 1, weight=weight))
            for layout in {h for h in have if h}:
                dim = layout - 1
                if dim != at_out and not conv and self._fits(out, dim):
                    # Each device multiplies a part of the rows: the weight's gradient is a sum.
                    whole = self.cluster.reduce(self.size[weight], self.group)
                    needs = [Need(a, layout) for a in tracked]
                    found.append(self._way(work, needs, layout, self.mp, weight=weight, step=whole))
            if self.mp > 1 and table and self._sequence(out):
                sums = self.cluster.reduce(self.size[weight], self.group)
                found.append(self._way(work, [], 2, self.mp, weight=weight, step=sums))
        if self.mp == 1:
            return found
        inner, columns = self._extent(work, weight, table)
        if COLUMNS in kinds and columns % self.mp == 0:
            needs = [Need(x, 0, partial=True)] if is_tracked and x is not None else []
            found.append(self._way(work, needs, at_out + 1, self.mp, weight=weight, kind=COLUMNS))
        if ROWS in kinds and inner % self.mp == 0:
            at_x = at_out if conv else len(self.reading.types[x].shape) - 1  # type: ignore[index]
            needs = [Need(x, at_x + 1)] if is_tracked and x is not None else []
            size = self.size[out]
            found.append(
                self._way(
                    work,
                    needs,
                    0,
                    self.mp,
                    weight=weight,
                    kind=ROWS,
                    messages_forward=self.cluster.reduce(size, self.group),
                )
            )
            if self._sequence(out) and not conv:
                part = self.cluster.gather(size, self.group)
                found.append(
                    self._way(
                        work,
                        needs,
                        2,
                        self.mp,
                        weight=weight,
                        kind=ROWS,
                        messages_forward=part,
                        messages_backward=part,
                    )
                )
        return found

    def _extent(self, work: Work, weight: int, table: bool) -> tuple[int, int]:
        """(inner, columns) of a weight: what ROWS and COLUMNS divide."""
        shape = self.reading.weights[weight].type.shape
        if work.name.startswith("conv"):
            return shape[1], shape[0]
        if table or not work.attrs.get("transpose_y"):
            return shape[-2], shape[-1]
        return shape[-1], shape[-2]

    def _sequence(self, ref: int) -> bool:
        """Whether a result may lie in parts of its sequence, the second of three dimensions."""
        shape = self.reading.types[ref].shape
        return len(shape) == 3 and self.reading.batch_dim.get(ref) == 0 and self._fits(ref, 1)

    def _fits(self, ref: int, dim: int) -> bool:
        shape = self.reading.types[ref].shape
        if dim >= len(shape) or shape[dim] % self.mp or shape[dim] < self.mp:
            return False
        return self.reading.sizes[ref].row == 0 or self.reading.batch_dim.get(ref, 0) != dim

    # --- ops that carry a layout from their inputs to their results -----------------------

    def _carried(self, work: Work, tracked: list[int], at: int, layout: int) -> Way | None:
        """The way in which the results are cut as the `at`-th tracked input is."""
        types = self.reading.types
        shape, dim = types[tracked[at]].shape, layout - 1
        out = types[work.results[0]].shape
        made = self._dimension(work, shape, dim, out)
        if made is None or not self._fits(work.results[0], made):
            return None
        needs = []
        for a in tracked:
            other = types[a].shape
            if work.name == "attention" or work.name in _CARRY or work.name in _NORMS:
                wanted = dim if dim < len(other) and other[dim] == shape[dim] else None
                if work.name == "attention" and other[2] % self.mp:
                    return None
                wanted = dim if work.name == "attention" else wanted
            else:
                # Broadcast: the same dimension from behind.
                wanted = made - len(out) + len(other)
                if wanted < 0 or other[wanted] == 1:
                    wanted = None
            needs.append(Need(a, 0 if wanted is None else wanted + 1, wanted is None))
        extra = 0.0
        if work.name in ("split", "concat") and self._axis(work, len(shape)) == dim:
            extra = self.cluster.exchange(self.size[tracked[at]] / self.mp, self.group)
        return self._way(
            work,
            needs,
            made + 1 if made >= 0 else 0,
            self.mp,
            messages_forward=extra,
            messages_backward=extra,
        )

    def _axis(self, work: Work, ndim: int) -> int:
        axis = work.attrs.get("axis", -1)
        return int(axis) % ndim if isinstance(axis, int) else -1

    def _dimension(
        self, work: Work, shape: tuple[int, ...], dim: int, out: tuple[int, ...]
    ) -> int | None:
        """Where the results are cut if this input is cut along `dim`; None: nowhere."""
        name = work.name
        if name == "transpose":
            return [p % len(shape) for p in work.attrs["perm"]].index(dim)
        if name == "reshape":
            before = math.prod(shape[:dim])
            for d in range(len(out)):
                if out[d] > 1 and math.prod(out[:d]) == before and out[d] % self.mp == 0:
                    return d
            return None
        if name == "attention":
            return 2 if dim == 2 else None
        if name in _NORMS:
            norm = int(work.attrs.get("dims", 1)) if name in ("layer_norm", "rms_norm") else None
            return dim if norm is not None and dim < len(shape) - norm else None
        if name in _ONE_AXIS:
            return None if self._axis(work, len(shape)) == dim else dim
        if name in ("split", "concat"):
            return dim
        if name == "unsqueeze":
            return dim + (self._axis(work, len(out)) <= dim)
        if name in ("batch_norm_train", "max_pool", "avg_pool"):
            return dim if dim == 1 else None
        if work.elementwise and name not in ("expand", "squeeze"):
            return dim + len(out) - len(shape) if len(out) >= len(shape) else None
        return None


_CARRY = ("transpose", "reshape", "split", "concat", "unsqueeze", *_ONE_AXIS)


def _stored(reading: Reading) -> set[int]:
    """Values that lie in memory: kept for the backward pass, or between ops that do not fuse."""
    found = set(reading.kept) | set(reading.outputs) | set(reading.weights)
    for work in reading.work:
        if not work.elementwise:
            found.update(a for a in work.args if a is not None)
            found.update(work.results)
    return found
