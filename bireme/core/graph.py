"""The Graph: written by every front end, read by passes, exporters and backends.

A graph is a list of op calls in order. Arguments are integers, as in the recorder's trace: a result
`i >= 0`, or the input `-1 - i`; Python numbers are `Number(kind, index)` references into the
run-time vectors `floats` and `ints`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from bireme.core.aval import FLOAT, Aval, NumberType
from bireme.core.errors import BiremeError
from bireme.core.op import CALLS, Call
from bireme.host.arrays import Array


class Number(NamedTuple):
    """A Python number that enters at run time: the `index`-th of `floats` or `ints`."""

    kind: str
    index: int  # pyright: ignore[reportIncompatibleMethodOverride]

    def __repr__(self) -> str:
        return f"{self.kind}[{self.index}]"


Ref = int | Number | None


class MalformedGraph(BiremeError, ValueError):
    """A graph that breaks one of the rules in `Graph.check`."""


@dataclass(slots=True)
class Node:
    """One op call: `args` align with `call.types`; results are numbered from `first`.

    `tape` is False for a call that was captured under `no_grad`.
    """

    call: Call
    args: tuple[Ref, ...]
    first: int
    tape: bool = True

    @property
    def results(self) -> range:
        return range(self.first, self.first + len(self.call.outs))


def _argument(env: list[Any], floats: Any, ints: Any, ref: Ref) -> Any:
    if isinstance(ref, Number):
        return (floats if ref.kind == "float" else ints)[ref.index]
    return None if ref is None else env[ref]


# A node, whether all its inputs are arrays, and the values that are not needed after it.
Step = tuple[Node, bool, list[int]]


@dataclass(slots=True)
class Graph:
    """Inputs, op calls in order, and which values are the results.

    A captured graph also knows the contents of inputs that never change (`constants`, by input
    number) and its numbers: constant ones (`numbers`), and those that random keys bring in
    every run (`keys`: 2k is the seed and 2k + 1 the offset of the k-th key drawn).
    """

    inputs: list[Aval]
    nodes: list[Node] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    n_floats: int = 0
    n_ints: int = 0
    names: dict[int, str] = field(default_factory=dict)
    constants: dict[int, Any] = field(default_factory=dict)
    numbers: dict[Number, float | int] = field(default_factory=dict)
    keys: dict[Number, int] = field(default_factory=dict)

    @staticmethod
    def from_code(code: Sequence[int], inputs: list[Aval], outputs: Iterable[int]) -> Graph:
        """The graph of a recorded trace (see trace.py for the encoding)."""
        graph = Graph(inputs, outputs=list(outputs))
        at = result = 0
        while at < len(code):
            call = CALLS[code[at]]
            at += 1
            args: list[Ref] = []
            for t in call.types:
                if t is None:
                    args.append(None)
                elif isinstance(t, NumberType):
                    args.append(graph.new_number("float" if t is FLOAT else "int"))
                else:
                    args.append(code[at])
                    at += 1
            graph.nodes.append(Node(call, tuple(args), result))
            result += len(call.outs)
        return graph

    def copy(self, **changes: Any) -> Graph:
        """This graph with other fields. Containers that are not among them are copied: the new
        graph may be changed."""
        kept = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in changes}
        copied = {n: type(v)(v) if isinstance(v, list | dict) else v for n, v in kept.items()}
        return Graph(**copied, **changes)

    def vectors(self) -> tuple[list[Any], list[Any]]:
        """`floats` and `ints` with the constant numbers in them; the others are 0."""
        floats: list[Any] = [0.0] * self.n_floats
        ints: list[Any] = [0] * self.n_ints
        for number, value in self.numbers.items():
            (floats if number.kind == "float" else ints)[number.index] = value
        return floats, ints

    def new_number(self, kind: str) -> Number:
        if kind == "float":
            self.n_floats += 1
            return Number(kind, self.n_floats - 1)
        self.n_ints += 1
        return Number(kind, self.n_ints - 1)

    def type_of(self, ref: int) -> Aval:
        if ref < 0:
            return self.inputs[-1 - ref]
        return self.value_types()[ref]

    def value_types(self) -> list[Aval]:
        return [t for node in self.nodes for t in node.call.outs]

    def needed(self) -> list[Node]:
        """The nodes that some output depends on, in order."""
        return [node for node, _, _ in self.schedule()]

    def schedule(self) -> list[Step]:
        """The nodes that some output depends on, in order, with what `evaluate` knows of each."""
        wanted = {o for o in self.outputs if o >= 0}
        steps: list[Step] = []
        for node in reversed(self.nodes):
            call, first = node.call, node.first
            dies: list[int] = []
            if call.single:
                if first not in wanted:
                    continue
            else:
                results = range(first, first + len(call.outs))
                dies = [r for r in results if r not in wanted]
                if len(dies) == len(results):
                    continue
            plain = len(call.tensors_at) == len(call.types)
            for a in node.args:
                if (plain or a.__class__ is int) and a >= 0 and a not in wanted:  # type: ignore[operator]
                    dies.append(a)  # type: ignore[arg-type]
                    wanted.add(a)  # type: ignore[arg-type]
            steps.append((node, plain, dies))
        steps.reverse()
        return steps

    def evaluate(
        self,
        leaves: Sequence[Any],
        floats: Sequence[Any] | Array,
        ints: Sequence[Any] | Array,
        run: Callable[[Call, list[Any]], Any],
        steps: list[Step] | None = None,
    ) -> list[Any]:
        """Interpret the graph with `run(call, arrays)`; buffers die at their last use. An error
        knows its node."""
        steps = self.schedule() if steps is None else steps
        size = steps[-1][0].results.stop if steps else 0
        # Slots count results from the beginning, and inputs from the end.
        env: list[Any] = [None] * size + list(leaves)[::-1]
        node = None
        try:
            for node, plain, dies in steps:
                if plain:
                    arrays = [env[a] for a in node.args]  # type: ignore[call-overload]
                else:
                    arrays = [_argument(env, floats, ints, a) for a in node.args]
                out = run(node.call, arrays)
                if node.call.single:
                    env[node.first] = out
                else:
                    for r, o in zip(node.results, out, strict=True):
                        env[r] = o
                for a in dies:
                    env[a] = None
        except Exception as error:
            error.failed_node = node  # type: ignore[attr-defined] (see executor.run_cold)
            raise
        return [env[o] for o in self.outputs]

    def check(self) -> None:
        """Raise MalformedGraph unless every rule of the IR holds."""
        types: list[Aval] = []
        for n, node in enumerate(self.nodes):
            call = node.call
            if node.first != len(types):
                raise MalformedGraph(f"node {n} ({call.op.name}): results are not in order")
            if len(node.args) != len(call.types):
                raise MalformedGraph(f"node {n} ({call.op.name}): wrong number of arguments")
            for arg, want in zip(node.args, call.types, strict=True):
                self._check_arg(n, call, arg, want, types)
            types += call.outs
        for o in self.outputs:
            if not -len(self.inputs) <= o < len(types):
                raise MalformedGraph(f"output {o} does not exist")

    def _check_arg(self, n: int, call: Call, arg: Ref, want: Any, types: list[Aval]) -> None:
        where = f"node {n} ({call.op.name})"
        if isinstance(arg, Number):
            count = self.n_floats if arg.kind == "float" else self.n_ints
            if not isinstance(want, NumberType) or arg.index >= count:
                raise MalformedGraph(f"{where}: {arg} does not fit {want}")
        elif arg is None:
            if want is not None:
                raise MalformedGraph(f"{where}: an argument of type {want} is missing")
        else:
            if not -len(self.inputs) <= arg < len(types):
                raise MalformedGraph(f"{where}: argument {arg} is used before it is made")
            have = self.inputs[-1 - arg] if arg < 0 else types[arg]
            if have is not want:
                raise MalformedGraph(f"{where}: argument {arg} is {have}, expected {want}")

    def __str__(self) -> str:
        def show(ref: Ref) -> str:
            if isinstance(ref, Number):
                return repr(ref)
            if ref is None:
                return "None"
            return f"%{ref}" if ref >= 0 else self.names.get(ref, f"%in{-1 - ref}")

        lines = ["graph("]
        lines += [f"  {show(-1 - i)}: {t}" for i, t in enumerate(self.inputs)]
        lines.append(") {")
        for node in self.nodes:
            results = ", ".join(
                f"%{r}: {t}" for r, t in zip(node.results, node.call.outs, strict=True)
            )
            attrs = [f"{k}={v!r}" for k, v in node.call.attrs.items() if v is not None]
            args = ", ".join([show(a) for a in node.args] + attrs)
            lines.append(f"  {results} = {node.call.op.name}({args})")
        lines.append(f"  return {', '.join(show(o) for o in self.outputs)}")
        lines.append("}")
        return "\n".join(lines)
