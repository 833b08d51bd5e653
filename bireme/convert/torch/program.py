"""A program of PyTorch as data: what the readers make and `model` runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bireme.core.errors import FileFormatError


class TorchFileError(FileFormatError):
    """A file of PyTorch that is damaged, or that holds something without a rule."""


class Ref(NamedTuple):
    """An argument that an earlier node, or an input, makes."""

    name: str


class DTypeName(NamedTuple):
    """A dtype as an argument."""

    name: str


class Subgraph(NamedTuple):
    """A graph as an argument, of a branch for example."""

    graph: Graph


@dataclass(frozen=True, slots=True)
class Node:
    """One op: its name without overload, arguments by PyTorch's names or in order, results."""

    op: str
    named: Mapping[str, Any]
    positional: tuple[Any, ...]
    results: tuple[str | tuple[str, ...] | None, ...]  # a tuple is a list of tensors
    where: str  # the user's line, as far as the file says


@dataclass(frozen=True, slots=True)
class Graph:
    inputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Any, ...]  # references and constants


@dataclass(frozen=True, slots=True)
class Input:
    """An input of the user's: its sizes are integers, or expressions of open sizes."""

    name: str  # in the graph
    label: str  # of the argument
    shape: tuple[int | str, ...] | None  # None: a number, not a tensor
    dtype: str


@dataclass(frozen=True, slots=True)
class Program:
    graph: Graph
    inputs: tuple[Input | None, ...]  # in the order of the call; None is an argument of None
    results: tuple[Any, ...]  # of the outputs: those that are the user's, in order
    state: Mapping[str, np.ndarray]  # by PyTorch's names
    trained: frozenset[str]  # the names of parameters
    hidden: frozenset[str]  # constants and buffers that no state dict holds
    bound: Mapping[str, str]  # name in the graph -> name in `state`
    structure: Any = None  # how results nest
    ranges: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)


def memory_of(array: np.ndarray) -> tuple[object, ...]:
    """What equal arrays in the same memory have in common."""
    return (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str)
