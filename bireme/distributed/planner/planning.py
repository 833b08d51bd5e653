"""plan: how a model should be divided over devices, what else was considered, and why."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bireme.core.aval import Aval, aval
from bireme.core.dtype import as_dtype
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.distributed.auto_parallel.layouts import layout_of
from bireme.distributed.mesh import ProcessMesh
from bireme.distributed.placement import Shard
from bireme.distributed.planner.choosing import Choosing
from bireme.distributed.planner.cluster import Cluster
from bireme.distributed.planner.measuring import measured
from bireme.distributed.planner.plans import Plan
from bireme.distributed.planner.reading import Reading
from bireme.distributed.planner.schedule import Degrees, Outcome, Scheduling, State, loads_of
from bireme.distributed.planner.splits import COLUMNS, ROWS, WHOLE, Splits

if TYPE_CHECKING:
    from bireme.distributed.auto_parallel.sharded_optimizer import ShardOptimizer
    from bireme.nn.layer.layer import Layer
    from bireme.optimizer.optimizer import Optimizer

_KINDS = (WHOLE, COLUMNS, ROWS)
_RIVALS = 3  # how many times the fastest's time a candidate may take to be shown
_RECOMPUTE = ("auto", "none", "all")


def plan(
    model: Layer,
    example_inputs: Any,
    mesh: ProcessMesh | Cluster,
    *,
    batch_size: int | None = None,
    optimizer: Optimizer | ShardOptimizer | None = None,
    loss: Callable[..., Any] | None = None,
    labels: Any = (),
    memory: float | None = None,
    cluster: Cluster | None = None,
    degrees: Mapping[str, int] | None = None,
    layouts: Mapping[str, str] | None = None,
    recompute: str = "auto",
) -> Plan:
    """Find the fastest way to train a model on these devices that fits their memory.

    The devices are a mesh of this process, whose speeds are measured (or given as `cluster`), or
    a simulated `Cluster`. The model's first dimension of inputs is the batch; `batch_size` is that
    of a whole step. Sizes are read from a capture of the forward pass, so a model may be made
    under LazyGuard. Without an optimizer AdamW is assumed.

    What you decide is a constraint: `degrees` (names of `Degrees`, as in {"mp": 2, "zero": 1}),
    `layouts` ({name or regular expression of a parameter: "whole", "columns" or "rows"}), the
    layouts that parameters have on a mesh with a dimension "mp", and `recompute` ("none", "all").

    >>> chosen = plan(model, [x], ProcessMesh(list(range(8))))  # doctest: +SKIP
    >>> print(chosen.explain())  # doctest: +SKIP
    """
    if not isinstance(mesh, ProcessMesh | Cluster):
        raise TypeMismatch(
            f"[plan] takes a ProcessMesh or a Cluster. Received: {type(mesh).__name__}"
        )
    if recompute not in _RECOMPUTE:
        raise InvalidArgument(
            f"[plan] recompute is one of {', '.join(_RECOMPUTE)}. Received: {recompute!r}"
        )
    inputs, targets = _types(example_inputs), _types(labels)
    if not inputs:
        raise InvalidArgument("[plan] example_inputs is empty; pass what the model is called with")
    if optimizer is not None:
        own = {id(p) for p in model.parameters()}
        if any(id(p) not in own for p in optimizer._all_parameters()):
            raise InvalidArgument("[plan] the optimizer has parameters that are not the model's")
    real = isinstance(mesh, ProcessMesh)
    chosen = cluster if cluster is not None else measured(mesh) if real else mesh
    if real and chosen.count != mesh.size:
        chosen = replace(chosen, count=mesh.size, node=max(mesh.size, 1))
    reading = Reading(model, inputs, loss, targets)
    batch = batch_size or (inputs[0].shape[0] if inputs[0].ndim else 1)
    search = Search(reading, chosen, batch, _state(optimizer, reading), real, degrees, recompute)
    search.fixed = _fixed(model, reading, layouts)
    if real and mesh.ndim == 2:
        search.wanted |= {"dp": mesh.shape[0], "mp": mesh.shape[1]}
    limit = chosen.device.memory if memory is None else memory
    outcomes = search.run(limit)
    if not outcomes:
        raise InvalidArgument(
            f"[plan] nothing fits: a batch of {batch} over {chosen.count} devices with {limit:g} "
            f"bytes each{search.smallest()}; use a batch that divides, more devices, more memory "
            "or fewer constraints"
        )
    return Plan(reading, chosen, outcomes, batch, mesh if real else None)


def _types(example: Any) -> list[Aval]:
    """The types of example inputs: tensors, arrays, InputSpecs."""
    from bireme.ops.creation import to_tensor

    given = list(example) if isinstance(example, list | tuple) else [example]
    found = []
    for x in given:
        if isinstance(x, Tensor):
            found.append(x._value.aval)
        elif hasattr(x, "shape") and hasattr(x, "dtype"):
            shape = tuple(8 if d in (None, -1) else int(d) for d in x.shape)
            found.append(aval(shape, as_dtype(x.dtype)))
        else:
            found.append(to_tensor(x)._value.aval)
    return found


def _state(optimizer: Any, reading: Reading) -> State:
    itemsize = 2 if reading.half else 4
    if optimizer is None:
        return State.of(2, True, itemsize)
    inner = getattr(optimizer, "_inner_opt", optimizer)
    return State.of(len(inner._slots), inner._multi_precision, itemsize)


def _fixed(model: Layer, reading: Reading, layouts: Mapping[str, str] | None) -> dict[int, str]:
    """What the user has decided, by weight."""
    found: dict[int, str] = {}
    parameters = dict(model.named_parameters())
    unused = set(layouts or {})
    for ref, weight in reading.weights.items():
        have = layout_of(parameters[weight.name])
        if have is not None and "mp" in have[0].dim_names:
            placement = have[1][have[0].dim_names.index("mp")]
            ndim = len(weight.type.shape)
            if not isinstance(placement, Shard):
                found[ref] = WHOLE
            elif ndim in (2, 3):
                found[ref] = COLUMNS if placement.dim % ndim == ndim - 1 else ROWS
        for pattern, kind in (layouts or {}).items():
            if re.fullmatch(pattern, weight.name):
                if kind not in _KINDS:
                    raise InvalidArgument(
                        f"[plan] a layout is {', '.join(_KINDS)}. Received for {pattern!r}: "
                        f"{kind!r}"
                    )
                found[ref] = kind
                unused.discard(pattern)
    if unused:
        names = [w.name for w in reading.weights.values()]
        raise InvalidArgument(
            f"[plan] layouts names no parameter: {sorted(unused)[0]!r}. Some names: "
            f"{', '.join(names[:6])}"
        )
    return found


class Search:
    """All degrees, with the best layouts for each."""

    def __init__(
        self,
        reading: Reading,
        cluster: Cluster,
        batch: int,
        state: State,
        real: bool,
        degrees: Mapping[str, int] | None,
        recompute: str,
    ) -> None:
        self.reading, self.cluster, self.batch, self.state = reading, cluster, batch, state
        self.real, self.recompute = real, recompute
        self.wanted = dict(degrees or {})
        unknown = set(self.wanted) - set(Degrees._fields)
        if unknown:
            raise InvalidArgument(
                f"[plan] there is no degree {sorted(unknown)[0]!r}; there are "
                f"{', '.join(Degrees._fields)}"
            )
        self.fixed: dict[int, str] = {}
        self.experts = [w.type.shape[0] for w in reading.weights.values() if w.is_expert]
        self.flops = reading.flops_of_row()
        self.best: dict[tuple[int, ...], Outcome] = {}
        self._least = self._fastest = math.inf

    def run(self, limit: float) -> list[Outcome]:
        """The best outcome for each division of the devices, the fastest first."""
        for mp in self._divisors("mp", self.cluster.count):
            for rest in self._divisors("ep", self.cluster.count // mp):
                if rest > 1 and (not self.experts or any(e % rest for e in self.experts)):
                    continue
                for rows in self._rows(mp):
                    self._try(mp, rest, rows, limit)
        return sorted(self.best.values(), key=lambda o: o.seconds)

    def smallest(self) -> str:
        return "" if self._least is math.inf else f" (the smallest plan takes {self._least:.3g})"

    def _divisors(self, name: str, count: int) -> list[int]:
        if name in self.wanted:
            wanted = int(self.wanted[name])
            return [wanted] if wanted > 0 and count % wanted == 0 else []
        most = {"mp": 4 * self.cluster.node, "ep": max(self.experts, default=1)}.get(name, count)
        return [d for d in range(1, min(count, most) + 1) if count % d == 0]

    def _rows(self, mp: int) -> list[int]:
        """Rows of a device at a time."""
        if "micro_batch" in self.wanted:
            return [int(self.wanted["micro_batch"])]
        found = {r for r in (1, 2, 4, 8, 16) if self.batch % r == 0}
        if self.real:  # also a device's whole share
            found |= {
                self.batch // dp
                for dp in range(1, self.cluster.count // mp + 1)
                if self.cluster.count // mp % dp == 0 and self.batch % dp == 0
            }
        return sorted(found)

    def _try(self, mp: int, ep: int, rows: int, limit: float) -> None:
        cluster = self.cluster
        left = cluster.count // mp
        hint = self.batch * mp / cluster.count / rows
        splits = Splits(self.reading, cluster, mp, ep, rows, self.fixed)
        choosing = Choosing(self.reading, splits, hint)
        for solution in choosing.solve():
            if mp > 1 and "mp" not in self.wanted and not _cuts(solution):
                continue  # the same work several times
            loads = loads_of(self.reading, splits, solution)
            scheduling = Scheduling(cluster, solution, loads, self.state, self.flops)
            for d in self._schedules(mp, ep, rows, left, scheduling.units):
                family = (d.dp, d.mp, d.pp, d.ep)
                known = self.best.get(family)
                bound = _RIVALS * self._fastest if known is None else known.seconds
                if scheduling.at_least(d) >= bound:
                    continue
                found = scheduling.outcome(d, limit, self.recompute)
                if found is None:
                    self._least = min(self._least, scheduling.smallest)
                elif known is None or found.seconds < known.seconds:
                    self.best[family] = found
                    self._fastest = min(self._fastest, found.seconds)

    def _schedules(self, mp: int, ep: int, rows: int, left: int, units: int) -> Iterator[Degrees]:
        for pp in [1] if self.real else self._divisors("pp", left):
            dp = left // pp
            if pp > units or dp % ep or self.batch % (dp * rows):
                continue
            if self.real and ep not in (1, dp):
                continue
            if self.wanted.get("dp", dp) != dp:
                continue
            m = self.batch // (dp * rows)
            if self.wanted.get("micro_batches", m) != m:
                continue
            for virtual in self._virtual(pp, m, units):
                for zero in (0, 1, 2, 3) if dp > 1 else (0,):
                    if self.wanted.get("zero", zero) == zero or dp == 1:
                        yield Degrees(dp, mp, pp, ep, zero, rows, m, virtual)

    def _virtual(self, pp: int, m: int, units: int) -> Sequence[int]:
        if "virtual" in self.wanted:
            return [int(self.wanted["virtual"])]
        if pp == 1 or m % pp:
            return [1]
        return [v for v in (1, 2, 3, 4, 6, 8, 12) if v * pp <= units]


def _cuts(solution: Any) -> bool:
    return any(s.way.made or s.way.kind != WHOLE for u in solution.units for s in u.steps)
