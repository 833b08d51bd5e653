"""Gradients of programs in which `stop_gradient` was set after an op had used the tensor.

The tape is made while ops are recorded, and a later setting comes too late for it. Paddle looks at
the settings when gradients are asked for. So the ops behind the targets are recorded once more,
with the settings of now; the compiler merges them with their first recording.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from bireme.capture.recorder import key_number
from bireme.core.aval import Aval
from bireme.core.errors import AutogradError
from bireme.core.graph import Graph, Node, Number
from bireme.core.tensor import Tensor
from bireme.static.recorder import ProgramTrace, on_the_tape


def stopped_late(into: ProgramTrace, targets: list[Any]) -> bool:
    """Whether an op behind the targets used a tensor before it was told to stop gradients, or
    not to."""
    if not into.stops:
        return False
    last = {slot: _last_change(settings) for slot, settings in into.stops.items()}
    for start, node in _behind(into, targets)[1]:
        if any(isinstance(a, int) and last.get(a, -1) > start for a in node.args):
            return True
    return False


def gradients_anew(
    into: ProgramTrace,
    targets: list[Any],
    given: list[Any],
    inputs: list[Any],
    stops: Iterable[Any],
) -> list[Any]:
    """The gradients of `targets` by `inputs`, None where there is no path."""
    if into.own_rules:
        raise AutogradError(
            f"stop_gradient was set after ops had used the tensor, and this program has "
            f"{into.own_rules[0]}, which cannot be recorded again. Set stop_gradient before"
        )
    from bireme.static.copying import record_again

    graph, nodes = _behind(into, targets)
    env: dict[Any, Any] = {None: None}
    variables = {into.known_slot(v.leaf): v.tensor for v in into.vars.values()}
    first: dict[Any, bool] = {}  # whether gradients stopped at a result when it was recorded
    for i, leaf in enumerate(into.leaves):
        held = variables.get(-1 - i)
        env[-1 - i] = Tensor(leaf, held._node if held is not None and held.is_leaf else None)
        first[-1 - i] = env[-1 - i].stop_gradient

    def stopped_at(slot: int, start: int) -> bool:
        settings = into.stops.get(slot)
        if settings is None:
            return first[slot]
        return [stop for stop, position in settings if position <= start][-1]

    for start, node in nodes:
        flat: list[Any] = []
        for a in node.args:
            if isinstance(a, Number):
                key = graph.keys.get(a)
                flat.append(graph.numbers[a] if key is None else key_number(key))
            else:
                flat.append(env[a])
        stops_here = not node.tape or all(
            stopped_at(a, start) for a in node.args if isinstance(a, int)
        )
        for slot, made in zip(node.results, record_again(node, flat, False), strict=True):
            first[slot] = stops_here or not node.call.differentiable
            made.stop_gradient = into.stops[slot][-1][0] if slot in into.stops else first[slot]
            env[slot] = made

    def now(tensor: Any) -> Any:
        return env.get(into.known_slot(tensor._value), tensor)

    return on_the_tape(
        [now(t) for t in targets], given, [now(t) for t in inputs], [now(s) for s in stops]
    )


def _last_change(settings: list[tuple[bool, int]]) -> int:
    changes = [
        position for (before, _), (stop, position) in pairwise(settings) if before is not stop
    ]
    return changes[-1] if changes else -1


def _behind(into: ProgramTrace, targets: list[Any]) -> tuple[Graph, list[tuple[int, Node]]]:
    """The program as a graph, and the ops behind the targets, each with its place in the code."""
    slots = [s for t in targets if (s := into.known_slot(t._value)) is not None]
    graph = into.graph(slots)
    needed = {id(node) for node in graph.needed()}
    return graph, [(start, node) for start, node in _placed(graph) if id(node) in needed]


def _placed(graph: Graph) -> Iterator[tuple[int, Node]]:
    start = 0
    for node in graph.nodes:
        yield start, node
        start += 1 + sum(isinstance(t, Aval) for t in node.call.types)
