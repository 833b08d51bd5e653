"""The choice as an integer program: for each weight whole, by columns or by rows; for each
activation whole or cut; with the messages that follow. HiGHS (in SciPy) solves it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bireme.core.aval import Aval
from bireme.core.graph import Graph, Node
from bireme.distributed.planner.costs import Machine, flops_of, size_of

WHOLE, COLUMNS, ROWS = 0, 1, 2
# The forward pass, and twice as much in the backward pass.
_PASSES = 3
# A parameter's gradient, and an optimizer's two accumulators beside it.
_COPIES = 4


class Program:
    """Variables, their costs, and linear constraints between them."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self._rows: list[tuple[dict[int, float], float, float]] = []

    def variable(self, cost: float = 0.0) -> int:
        self.costs.append(cost)
        return len(self.costs) - 1

    def equal(self, terms: dict[int, float], value: float) -> None:
        self._rows.append((terms, value, value))

    def at_most(self, terms: dict[int, float], value: float) -> None:
        self._rows.append((terms, -np.inf, value))

    def solve(self) -> tuple[float, np.ndarray] | None:
        """(cost, values) of the best choice; None if nothing fits."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import lil_matrix

        count = len(self.costs)
        matrix = lil_matrix((len(self._rows), count))
        for i, (terms, _, _) in enumerate(self._rows):
            for j, factor in terms.items():
                matrix[i, j] += factor
        low: Any = [r[1] for r in self._rows]
        high: Any = [r[2] for r in self._rows]
        limits = LinearConstraint(matrix.tocsr(), low, high)
        scale = max(self.costs, default=0.0) or 1.0
        found = milp(
            np.asarray(self.costs) / scale,
            constraints=limits,
            integrality=np.ones(count),
            bounds=Bounds(0, 1),
        )
        if found.x is None:
            return None
        return float(found.fun) * scale, np.round(found.x)


class Choice:
    """One degree of data and tensor parallelism for a graph of the forward pass."""

    def __init__(self, graph: Graph, params: dict[int, str], machine: Machine):
        self.graph = graph
        self.params = params  # name by reference
        self.machine = machine
        self.program = Program()
        self.types = {-1 - i: t for i, t in enumerate(graph.inputs)}
        self.nodes = graph.nodes
        for node in self.nodes:
            for r, t in zip(node.results, node.call.outs, strict=True):
                self.types[r] = t
        self.cut_dim: dict[int, int] = {}  # where an activation may be cut
        self.is_cut: dict[int, int] = {}  # the variable that says so
        self.kinds: dict[int, list[int]] = {}  # of a weight: three variables
        self.fixed = machine.reduce(0, machine.dp)
        for node in self.nodes:
            self._add(node)
        for ref in params:
            self._add_parameter(ref)

    # --- the graph ------------------------------------------------------------------------

    def _add(self, node: Node) -> None:
        name = node.call.op.name
        args = [a for a in node.args if isinstance(a, int)]
        weight = args[1] if len(args) > 1 else None
        matrix = weight in self.params and len(self.types[weight].shape) == 2
        plain = not (node.call.attrs.get("transpose_x") or node.call.attrs.get("transpose_y"))
        if matrix and plain and name in ("linear", "matmul", "embedding"):
            self._product(node, args[0], weight, name == "embedding")  # type: ignore[arg-type]
            return
        dim = self._carried(node, args)
        if dim is None or self.types[node.first].shape[dim] % self.machine.mp:
            self._other(node, args)
        else:
            self._passed(node, args, dim)

    def _carried(self, node: Node, args: list[int]) -> int | None:
        """The dimension of the result that is cut if the inputs' are; None if it is whole."""
        found = [(a, self.cut_dim[a]) for a in args if a in self.cut_dim]
        if not found:
            return None
        call, out = node.call, self.types[node.first]
        shape, dim = self.types[found[0][0]].shape, found[0][1]
        if call.op.infer == "elementwise":
            at = {d - len(self.types[a].shape) for a, d in found}
            return at.pop() + len(out.shape) if len(at) == 1 else None
        if call.op.name == "transpose":
            perm = [p % len(shape) for p in call.attrs["perm"]]
            return perm.index(dim)
        if call.op.name == "attention":
            return 2 if {d for _, d in found} == {2} and len(found) == 3 else None
        if call.op.name == "reshape":
            before = math.prod(shape[:dim])
            for d in range(len(out.shape)):
                if math.prod(out.shape[:d]) == before and out.shape[d] > 1:
                    return d
        return None

    def _time(self, node: Node, parts: int) -> float:
        """Time of an operation of which each device does one of `parts` parts."""
        share = self.machine.dp * parts
        moved = sum(size_of(t) for t in node.call.outs)
        moved += sum(size_of(t) for t in node.call.types if isinstance(t, Aval))
        return _PASSES * self.machine.work(flops_of(node) / share, moved / share)

    def _bytes(self, ref: int) -> float:
        """Of an activation, in one replica of the batch."""
        return size_of(self.types[ref]) / self.machine.dp

    def _other(self, node: Node, args: list[int]) -> None:
        self.fixed += self._time(node, 1)
        for a in args:
            if a in self.is_cut:
                self.program.costs[self.is_cut[a]] += self._gathered(a)

    def _gathered(self, ref: int) -> float:
        return self.machine.gather(self._bytes(ref), self.machine.mp)

    def _passed(self, node: Node, args: list[int], dim: int) -> None:
        whole, parts = self._time(node, 1), self._time(node, self.machine.mp)
        out = self.program.variable(parts - whole)
        self.fixed += whole
        for r in node.results:
            self.cut_dim[r], self.is_cut[r] = dim, out
        for a in args:
            if a not in self.params and len(self.types[a].shape) > 0:
                self._convert(a, out)

    def _convert(self, ref: int, wanted: int) -> None:
        """A message where an activation is not laid out as it is wanted."""
        cost = self._gathered(ref)
        if not cost:
            return
        change = self.program.variable(cost)
        have = self.is_cut.get(ref)
        if have is None:
            self.program.at_most({wanted: 1, change: -1}, 0)
            return
        self.program.at_most({have: 1, wanted: -1, change: -1}, 0)
        self.program.at_most({wanted: 1, have: -1, change: -1}, 0)

    def _product(self, node: Node, x: int, weight: int, lookup: bool) -> None:
        machine, program = self.machine, self.program
        rows, columns = self.types[weight].shape
        share = machine.dp
        out = node.first
        taken, made = size_of(self.types[x]) / share, size_of(self.types[out]) / share
        moved = 0.0 if lookup else float(size_of(self.types[weight]))

        def time(parts: int, inputs: int, results: int) -> float:
            flops = 0.0 if lookup else flops_of(node) / share / parts
            return _PASSES * machine.work(flops, moved / parts + taken / inputs + made / results)

        sum_out = machine.reduce(self._bytes(out), machine.mp)
        sum_back = 0.0 if x < 0 or lookup else machine.reduce(self._bytes(x), machine.mp)
        kinds = self.kinds.get(weight)
        if kinds is None:
            kinds = self.kinds[weight] = [program.variable() for _ in range(3)]
            program.equal(dict.fromkeys(kinds, 1.0), 1)
        for kind, cost in (
            (WHOLE, time(1, 1, 1)),
            (COLUMNS, time(machine.mp, 1, machine.mp) + sum_back),
            (ROWS, time(machine.mp, machine.mp, 1) + sum_out),
        ):
            program.costs[kinds[kind]] += cost
        for kind, size in ((COLUMNS, columns), (ROWS, rows)):
            if machine.mp == 1 or size % machine.mp:
                program.equal({kinds[kind]: 1}, 0)
        self.cut_dim[out] = len(self.types[out].shape) - 1
        self.is_cut[out] = program.variable()
        program.equal({self.is_cut[out]: 1, kinds[COLUMNS]: -1}, 0)
        if not lookup:
            self._convert(x, kinds[ROWS])

    def _add_parameter(self, ref: int) -> None:
        """Gradients are summed over the replicas, and each device updates what it holds."""
        machine = self.machine

        def time(parts: int) -> float:
            size = size_of(self.types[ref]) / parts
            # One message for all gradients, so its latency counts once (see __init__).
            summed = machine.reduce(size, machine.dp) - machine.reduce(0, machine.dp)
            return summed + machine.work(0, 2 * _COPIES * size)

        kinds = self.kinds.get(ref)
        if kinds is None:
            self.fixed += time(1)
            return
        for kind in (WHOLE, COLUMNS, ROWS):
            self.program.costs[kinds[kind]] += time(1 if kind == WHOLE else machine.mp)

    def limit_memory(self, limit: float) -> None:
        """Parameters, gradients and accumulators must fit a device."""
        used = 0.0
        terms: dict[int, float] = {}
        for ref in self.params:
            size = float(_COPIES * size_of(self.types[ref]))
            if ref not in self.kinds:
                used += size
                continue
            for kind, variable in enumerate(self.kinds[ref]):
                terms[variable] = size if kind == WHOLE else size / self.machine.mp
        self.program.at_most(terms, limit - used)

    def solve(self) -> tuple[float, dict[str, int]] | None:
        """(seconds per step, kind by weight) of the best choice."""
        if not self.program.costs:
            return self.fixed, {}
        found = self.program.solve()
        if found is None:
            return None
        cost, values = found
        kinds = {
            self.params[ref]: next(k for k in (WHOLE, COLUMNS, ROWS) if values[variables[k]])
            for ref, variables in self.kinds.items()
        }
        return cost + self.fixed, kinds
