"""Reads TensorFlow's graphs into a Program.

Variables are weights of the program, and what refers to one is the weight itself. Functions keep
their names; loops and branches of TensorFlow 1 become functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.program import Graph, Input, Node, Program
from bireme.convert.tensorflow.arrays import Message, array_of, dtype_of, sizes_of
from bireme.convert.tensorflow.frames import Body, functional
from bireme.convert.tensorflow.nodes import (
    Op,
    Ops,
    check_effects,
    needed,
    ops_of,
    owner,
    value_name,
)
from bireme.convert.tensorflow.schema import kind_of
from bireme.convert.tensorflow.variables import VARIABLES, Variables

_FUNCTIONS = ("f", "then_branch", "else_branch", "cond", "body", "branches")
_INPUTS = ("Placeholder", "PlaceholderV2")
_STATISTICS = {"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "_FusedBatchNormEx"}
_MAX_FUNCTIONS = 100_000


@dataclass(frozen=True, slots=True)
class End:
    """An input or a result: its label, the value, and what is known about it."""

    label: str
    value: str
    kind: str = ""
    shape: tuple[int | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Ends:
    """What a graph is run from, and for."""

    inputs: tuple[End, ...]
    outputs: tuple[End, ...]


class Reader:
    """Makes a Program of a graph and its functions."""

    def __init__(self, graph: Message, variables: Variables, arrays: Mapping[str, np.ndarray]):
        """`arrays` are the contents of constants that are kept elsewhere, by node."""
        self._ops = ops_of(graph.get("node", ()))
        self._variables, self._arrays = variables, arrays
        self._library = _library(graph)
        self._budget = [1 << 25]  # elements that constants do not store
        self._made: dict[str, Graph] = {}
        self._waiting: list[str] = []
        self._rewritten: set[int] = set()  # graphs without frames
        self._count = 0

    def program(self, ends: Ends) -> Program:
        given = tuple([i.value for i in ends.inputs])
        main = self._graph(Body(given, self._ops, tuple([o.value for o in ends.outputs])))
        while self._waiting:
            name = self._waiting.pop()
            if name not in self._made:
                self._made[name] = self._graph(self._function(name))
        weights = dict(main.weights)
        variables = {k: v for k, v in weights.items() if owner(k) in self._variables.names}
        trained = self._trained(weights, main.nodes)
        labels = {k: self._variables.labels[owner(k)] for k in variables}
        labels |= {k: owner(k) for k in weights if k not in labels}
        return Program(
            "TensorFlow",
            Graph(main.inputs, main.nodes, main.outputs),
            tuple([_input(i) for i in ends.inputs]),
            tuple([o.label for o in ends.outputs]),
            weights,
            frozenset(trained),
            {k: v.replace(".", "_") for k, v in labels.items()},
            self._made,
        )

    def default_ends(self, outputs: Sequence[str] = ()) -> Ends:
        """What a graph without a signature takes and gives: its placeholders, and what nobody
        reads (or the `outputs` that the caller names)."""
        kinds = {op.name: op.kind for op in self._ops.values()}
        read = {owner(v) for op in self._ops.values() for v in op.inputs}
        wanted = [value_name(o, kinds) for o in outputs] or [
            f"{op.name}:0"
            for op in self._ops.values()
            if op.name not in read and op.inputs and op.kind not in _NO_RESULTS
        ]
        if not outputs:  # what saves and restores reads no input
            inside = self._inside()
            wanted = [w for w in wanted if owner(w) not in inside]
            fed = [w for w in wanted if self._is_fed(w)]
            wanted = fed or wanted
        if not wanted:
            raise ModelFileError("[convert] the graph has no results")
        used = _behind(self._ops, wanted)
        inputs = [
            End(op.name, f"{op.name}:0", str(op.attrs.get("dtype")), op.attrs.get("shape"))
            for op in self._ops.values()
            if op.kind in _INPUTS and op.name in used
        ]
        return Ends(tuple(inputs), tuple([End(_plain(v), v) for v in wanted]))

    def _inside(self) -> set[str]:
        """The nodes of branches and loops, which nobody outside can read."""
        readers: dict[str, list[str]] = {}
        for op in self._ops.values():
            for value in op.inputs:
                readers.setdefault(owner(value), []).append(op.name)
        ends = {n for n, o in self._ops.items() if o.kind in ("Exit", "RefExit", "Merge")}
        made = set(ends)
        left = [n for n, o in self._ops.items() if o.kind in _GATES]
        while left:
            name = left.pop()
            if name not in made:
                made.add(name)
                left += readers.get(name, ())
        return made

    def _is_fed(self, value: str) -> bool:
        return any(self._ops[n].kind in _INPUTS for n in _behind(self._ops, [value]))

    def named_ends(self, inputs: Sequence[str], outputs: Sequence[str]) -> Ends:
        """The ends that a caller names; a name may have the number of a result behind it."""
        kinds = {op.name: op.kind for op in self._ops.values()}
        made = []
        for name in inputs:
            op = self._ops.get(name.split(":")[0])
            if op is None:
                raise ModelFileError(f"[convert] there is no node {name!r:.80}")
            kind = op.attrs.get("dtype") or op.attrs.get("T") or "float32"
            made.append(End(name, value_name(name, kinds), str(kind), op.attrs.get("shape")))
        if not outputs:
            return Ends(tuple(made), self.default_ends().outputs)
        return Ends(tuple(made), tuple([End(o, value_name(o, kinds)) for o in outputs]))

    def signature_ends(self, signature: Message) -> Ends:
        kinds = {op.name: op.kind for op in self._ops.values()}
        sides = []
        for side in ("inputs", "outputs"):
            made = []
            pairs = [(str(p.get("key", "")), p.get("value", {})) for p in signature.get(side, ())]
            for label, info in sorted(pairs, key=lambda p: p[0]):
                if "name" not in info:
                    raise UnsupportedModel(f"[convert] {label!r:.80} is no ordinary tensor")
                value = value_name(info["name"], kinds)
                shape = sizes_of(info.get("tensor_shape", {"unknown_rank": True}))
                made.append(End(label, value, kind_of(info.get("dtype")), shape))
            sides.append(tuple(made))
        return Ends(*sides)

    # --- graphs -----------------------------------------------------------------------------

    def _function(self, name: str) -> Body:
        found = self._library.get(name)
        if found is None:
            raise ModelFileError(f"[convert] there is no function {name!r:.100}")
        if isinstance(found, Body):
            return found
        signature = found.get("signature", {})
        arguments = [str(a.get("name", "")) for a in signature.get("input_arg", ())]
        nodes = found.get("node_def", ())
        ops = ops_of(nodes, set(arguments))
        kinds = {op.name: op.kind for op in ops.values()}
        returned = {p.get("key"): str(p.get("value", "")) for p in found.get("ret", ())}
        results = [returned.get(a.get("name"), "") for a in signature.get("output_arg", ())]
        outputs = [value_name(r, kinds, set(arguments)) for r in results]
        # A function runs its effects, whether or not its results need them.
        check_effects(ops, [str(p.get("value", "")) for p in found.get("control_ret", ())])
        return Body(tuple([f"{a}:0" for a in arguments]), ops, tuple(outputs))

    def _graph(self, body: Body) -> Graph:
        if id(body.ops) not in self._rewritten:
            self._rewritten.add(id(body.ops))
            self._library |= functional(body, f"{_BELONGS}{len(self._rewritten)}:")
        weights: dict[str, np.ndarray] = {}
        nodes = []
        for op in needed(body.ops, body.outputs, set(body.inputs)):
            value = f"{op.name}:0"
            if op.kind == "Const":
                weights[value] = self._constant(op)
            elif op.kind in VARIABLES:
                weights[value] = self._variables.array(op)
            else:
                nodes.append(self._node(op))
        return Graph(body.inputs, tuple(nodes), body.outputs, weights)

    def _constant(self, op: Op) -> np.ndarray:
        if op.name in self._arrays:
            return self._arrays[op.name]
        found = op.attrs.get("value")
        if not isinstance(found, Mapping):
            raise ModelFileError(f"[convert] {op.where} has no value")
        return array_of(found, self._budget)

    def _node(self, op: Op) -> Node:
        kind, attrs = op.kind, op.attrs
        if kind in self._library:  # a function that is called like an op
            kind, attrs = "PartitionedCall", {**attrs, "f": kind}
        for key in _FUNCTIONS:
            named = attrs.get(key)
            for name in named if isinstance(named, list) else [named]:
                if isinstance(name, str) and (name in self._library or kind in _CALLING):
                    self._count += 1
                    if self._count > _MAX_FUNCTIONS:
                        raise ModelFileError("[convert] the graph calls too many functions")
                    self._waiting.append(name)
        outputs = tuple([f"{op.name}:{i}" for i in range(op.count)])
        return Node(kind, tuple(op.inputs), outputs, attrs, op.where)

    def _trained(self, weights: Mapping[str, np.ndarray], nodes: Sequence[Node]) -> set[str]:
        statistics = {i for n in nodes if n.op in _STATISTICS for i in n.inputs[3:5]}
        made = set()
        for name, array in weights.items():
            if owner(name) in self._variables.names:
                trained = self._variables.is_trained(owner(name))
            else:
                trained = array.ndim > 0 and array.size > 1 and name not in statistics
            if trained and array.dtype.kind not in "iubOSU":
                made.add(name)
        return made


_GATES = {"Switch", "Enter", "RefSwitch", "RefEnter"}
_BELONGS = "\0body"
_CALLING = {
    "PartitionedCall",
    "StatefulPartitionedCall",
    "If",
    "StatelessIf",
    "While",
    "StatelessWhile",
    "Case",
    "StatelessCase",
}
_NO_RESULTS_NAMES = """
Assert NoOp Const SaveV2 RestoreV2 MergeV2Checkpoints Assign AssignVariableOp Save SaveSlices
ShardedFilename VarIsInitializedOp ScalarSummary HistogramSummary MergeSummary
"""
_NO_RESULTS = set(_NO_RESULTS_NAMES.split())


def _behind(ops: Ops, values: Sequence[str]) -> set[str]:
    """The nodes behind some values."""
    seen: set[str] = set()
    left = [owner(v) for v in values]
    while left:
        name = left.pop()
        if name not in seen and name in ops:
            seen.add(name)
            left += [owner(v) for v in ops[name].inputs]
    return seen


def _plain(value: str) -> str:
    return value.removesuffix(":0")


def _library(graph: Message) -> dict[str, Message | Body]:
    found = graph.get("library", {}).get("function", ())
    if len(found) > _MAX_FUNCTIONS:
        raise ModelFileError(f"[convert] the graph has more than {_MAX_FUNCTIONS} functions")
    return {str(f.get("signature", {}).get("name", "")): f for f in found}


def _input(end: End) -> Input:
    if end.kind in ("resource", "variant", "string"):
        raise UnsupportedModel(
            f"[convert] the input {end.label!r:.80} is of the kind {end.kind}, which has no tensors"
        )
    dtype = dtype_of(end.kind).name
    return Input(end.value, end.label, end.shape, dtype)
