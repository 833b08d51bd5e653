"""Imported models as data: what the readers of Caffe, TFLite, Keras and TensorFlow make.

A reader makes a Program; a table of Rules says each of its ops in ours; `imported` is the Layer
that runs the one by the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bireme.convert.errors import UnsupportedModel

Rule = Callable[..., Any]
Size = Any  # an integer, or the symbol of an open size


@dataclass(frozen=True, slots=True)
class Node:
    """One op. An input that was left out is an empty name."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]
    where: str  # how messages name it


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in the order in which they run; values are referred to by name."""

    inputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)  # those of an inner graph


@dataclass(frozen=True, slots=True)
class Input:
    """An input of the user's. A size of None is open; a shape of None is unknown. A `free` input
    may have other sizes than the file declares."""

    name: str  # in the graph
    label: str  # of the argument
    shape: tuple[int | str | None, ...] | None
    dtype: str
    free: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    source: str  # of which framework: "Caffe"
    graph: Graph
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]  # what the results are called
    weights: Mapping[str, np.ndarray]
    trained: frozenset[str]  # those that are parameters; others are buffers or constants
    labels: Mapping[str, str] = field(default_factory=dict)  # a weight's name in the state dict
    functions: Mapping[str, Graph] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """A rule, the inputs that it takes as known values (-1: all of them), and whether it takes the
    others as they are: known values, too."""

    rule: Rule
    static: tuple[int, ...]
    as_is: bool = False

    def is_static(self, position: int) -> bool:
        return position in self.static or -1 in self.static


class Rules:
    """The rules of one framework, by op.

        @rule("LeakyRelu")
        def leaky_relu(n, x):
            return F.leaky_relu(x, n.attr("alpha", 0.2))

    A rule gets the node and its inputs: tensors, None for one that was left out, and NumPy arrays
    at the positions in `static`, whose contents decide shapes. It returns one result or a list.
    `folds` are the same ops where every input is known; they may return None to leave the work
    to the rule. Known values may be arrays of objects: sizes that are open.
    """

    def __init__(self, source: str, place: str):
        self.source, self.place = source, place
        self._entries: dict[str, Entry] = {}
        self._folds: dict[str, Rule] = {}

    def __call__(
        self, *names: str, static: tuple[int, ...] = (), as_is: bool = False
    ) -> Callable[[Rule], Rule]:
        def add(function: Rule) -> Rule:
            for name in names:
                if name in self._entries:
                    raise ValueError(f"there are two rules for {name!r}")
                self._entries[name] = Entry(function, static, as_is)
            return function

        return add

    def folds(self, *names: str) -> Callable[[Rule], Rule]:
        def add(function: Rule) -> Rule:
            self._folds.update(dict.fromkeys(names, function))
            return function

        return add

    def __contains__(self, op: str) -> bool:
        return op in self._entries

    def entry(self, op: str) -> Entry:
        return self._entries[op]

    def fold(self, op: str) -> Rule | None:
        return self._folds.get(op)

    def names(self) -> list[str]:
        return sorted(self._entries)

    def check(self, program: Program) -> None:
        """Refuse a program that has ops without a rule, and name all of them."""
        missing: dict[str, str] = {}
        for node in nodes_of(program):
            if node.op not in self._entries:
                missing.setdefault(node.op, node.where)
        if missing:
            listed = "; ".join(f"{op} ({where})" for op, where in missing.items())
            raise UnsupportedModel(
                f"[convert] {len(missing)} operation(s) of this {self.source} model have no rule: "
                f"{listed:.2000}. Add rules for them in {self.place}"
            )


def nodes_of(program: Program) -> Iterator[Node]:
    """All nodes, those of functions too."""
    yield from program.graph.nodes
    for graph in program.functions.values():
        yield from graph.nodes
