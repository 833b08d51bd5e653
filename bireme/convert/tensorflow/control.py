"""TensorFlow's calls of functions, branches and loops.

What is known decides at once. What only a run knows becomes an op of the graph while one is
captured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bireme.capture.recorder import is_capturing
from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.imported import View
from bireme.convert.program import Graph
from bireme.convert.tensorflow.lists import Held, Items, tensor_of, zeros
from bireme.convert.tensorflow.rules import rule
from bireme.core.errors import BiremeError
from bireme.core.tensor import Tensor
from bireme.ops.control_loops import while_loop
from bireme.static.nn import cond

_TURNS = 10_000  # of a loop over known values
_PASSING = ("Identity", "ReadVariableOp", "StopGradient")


@rule("PartitionedCall", "StatefulPartitionedCall", as_is=True)
def call(n: View, *values: Held) -> list[Held]:
    return n.call(n.attr("f", ""), *values)


def _truth(value: Held) -> bool:
    """TensorFlow takes numbers, too."""
    return bool(np.asarray(value).any())


def _test(value: Held) -> Tensor:
    made = tensor_of(value)
    return (made if made.dtype.name == "bool" else made != 0).reshape([])


# --- values as tensors ----------------------------------------------------------------------


def _flat(values: Sequence[Held]) -> list[Tensor]:
    """The tensors that values are made of; a list is its rows."""
    return [v.filled() if isinstance(v, Items) else tensor_of(v) for v in values]


def _again(values: Sequence[Tensor], like: Sequence[Held]) -> list[Held]:
    return [
        replace(old, count=new.shape[0], rows=new) if isinstance(old, Items) else new
        for new, old in zip(values, like, strict=True)
    ]


# --- branches -------------------------------------------------------------------------------


@rule("If", "StatelessIf", as_is=True)
def if_(n: View, condition: Held, *values: Held) -> list[Held]:
    names = n.attr("then_branch", ""), n.attr("else_branch", "")
    if not isinstance(condition, Tensor):
        return n.call(names[0] if _truth(condition) else names[1], *values)
    return _either(_test(condition), *[lambda name=name: n.call(name, *values) for name in names])


def _either(
    test: Tensor, then: Callable[[], list[Held]], other: Callable[[], list[Held]]
) -> list[Held]:
    kinds: list[list[Held]] = []

    def run(branch: Callable[[], list[Held]]) -> list[Tensor]:
        made = branch()
        kinds.append(made)
        return _flat(made)

    made = cond(test, lambda: run(then), lambda: run(other))
    several = list(made) if isinstance(made, list | tuple) else [made]
    return _again(several, kinds[0])


@rule("Case", "StatelessCase", as_is=True)
def case(n: View, index: Held, *values: Held) -> list[Held]:
    names = n.attr("branches") or []
    if not names:
        raise ModelFileError("there are no branches")
    if not isinstance(index, Tensor):
        at = int(np.asarray(index).reshape(()))
        return n.call(names[at if 0 <= at < len(names) else -1], *values)
    branches = [lambda name=name: n.call(name, *values) for name in names]
    return _cases(index.reshape([]), branches, 0)


def _cases(index: Tensor, branches: list[Callable[[], list[Held]]], at: int) -> list[Held]:
    if at == len(branches) - 1:  # others mean the last one
        return branches[at]()
    return _either(index == at, branches[at], lambda: _cases(index, branches, at + 1))


# --- loops ----------------------------------------------------------------------------------


@rule("While", "StatelessWhile", as_is=True)
def while_(n: View, *values: Held) -> list[Held]:
    test, body = n.attr("cond", ""), n.attr("body", "")
    graph = n.run.functions.get(body)
    if graph is None or len(graph.outputs) != len(values):
        raise ModelFileError("a loop gives as many values as it takes")
    kept = _kept(graph)
    now = list(values)
    going = n.call(test, *now)[0]
    if not isinstance(going, Tensor) and not _truth(going):
        return now
    if not is_capturing() or _all_known(now, kept):
        return _turns(n, test, body, now)
    try:
        return _loop(n, test, body, now, kept)
    except BiremeError:
        if isinstance(going, Tensor):
            raise
    return _turns(n, test, body, now)  # sizes change from turn to turn


def _all_known(values: Sequence[Held], kept: Sequence[bool]) -> bool:
    return all(k or isinstance(v, np.ndarray) for v, k in zip(values, kept, strict=True))


def _kept(graph: Graph) -> list[bool]:
    """Which values a loop only passes on."""
    made_by = {o: node for node in graph.nodes for o in node.outputs}
    kept = []
    for given, value in zip(graph.inputs, graph.outputs, strict=True):
        for _ in range(8):
            node = made_by.get(value)
            if node is None or node.op not in _PASSING:
                break
            value = node.inputs[0]
        kept.append(value == given)
    return kept


def _turns(n: View, test: str, body: str, now: list[Held]) -> list[Held]:
    """One turn after the other, as long as the condition is known."""
    for _ in range(_TURNS):
        going = n.call(test, *now)[0]
        truth = _truth(going.numpy() if isinstance(going, Tensor) else going)
        if not truth:
            return now
        now = n.call(body, *now)
    raise UnsupportedModel(f"a loop takes more than {_TURNS} turns")


def _loop(n: View, test: str, body: str, values: list[Held], kept: list[bool]) -> list[Held]:
    """A loop as one op; what it carries keeps its type."""
    start = list(values)
    if any(isinstance(v, Items) and v.rows is None for v in start):
        # What a turn puts into lists says what they hold; nobody reads its results.
        after = n.call(body, *values)
        for i, (old, new) in enumerate(zip(values, after, strict=True)):
            if isinstance(old, Items) and old.rows is None and new.rows is not None:
                shape, kind = tuple(new.rows.shape[1:]), new.rows.dtype.name
                start[i] = replace(old, rows=zeros(old.count, shape, kind))
    moving = [i for i, k in enumerate(kept) if not k]

    def whole(tensors: Sequence[Tensor]) -> list[Held]:
        made = list(start)
        for i, value in zip(moving, _again(tensors, [start[i] for i in moving]), strict=True):
            made[i] = value
        return made

    first = _flat([start[i] for i in moving])

    def step(tensors: list[Tensor]) -> list[Tensor]:
        made = n.call(body, *whole(tensors))
        new = _flat([made[i] for i in moving])
        return [
            a.astype(b.dtype) if a.dtype != b.dtype and not a.dtype.is_floating else a
            for a, b in zip(new, tensors, strict=True)
        ]

    names = [f"value {i}" for i in moving]
    made = while_loop(lambda now: _test(n.call(test, *whole(now))[0]), step, names, first)
    return whole(made)
