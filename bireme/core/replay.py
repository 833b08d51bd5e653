"""Repeated backward passes are replayed, not walked again.

The entries of `loss.backward()` depend on the tape alone: its ops, the edges between its nodes, and
the slots of the saved values. A training loop makes the same tape in every step. So the entries of
the first walk are kept under a key that describes the tape, and are appended whole for a tape with
the same key: per-node work is a few list comprehensions.

Unusual tapes (hooks, in-place writes, gradients to accumulate into, nodes from before a flush,
PyLayers) have no key and are walked.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from bireme.core import autograd, eviction, ownership, rollback
from bireme.core.autograd import GradNode, LeafNode, Output, run_backward
from bireme.core.cache import BoundedCache
from bireme.core.trace import Trace, Value, state
from bireme.core.value import promise

if TYPE_CHECKING:
    from bireme.core.tensor import Tensor

_memory: BoundedCache[Any, Recording] = BoundedCache(256)
eviction.on_eviction(_memory.clear)  # it mentions Calls by their ids


class Recording(NamedTuple):
    """The entries that one backward pass appended to its trace."""

    code: tuple[int, ...]
    # Numbers that nodes have saved (seeds, scales): their places in the order of saving.
    floats: tuple[int, ...]
    ints: tuple[int, ...]
    n_values: int
    # (which leaf, offset of its gradient among the appended values, its type)
    grads: tuple[tuple[int, int, Any], ...]
    consumed: tuple[int, ...]  # nodes, by their place on the tape


class Tape(NamedTuple):
    """A trace's nodes as a key, and the parts that are not in the key: the leaves and the
    numbers."""

    key: Any
    nodes: list[Any]
    leaves: list[Any]
    refs: list[Any]  # weak references to the leaves
    saved: list[Any]


def backward(root: Tensor) -> None:
    """`root.backward()`: replayed if an equal tape was walked before, and walked otherwise."""
    trace = state.trace
    tape = _tape(trace, root)
    if tape is not None and _replayed(trace, tape):
        autograd.finished()
        return
    start = _sizes(trace)
    applied: list[Any] = []
    run_backward([root], [None], False, False, applied=applied)
    if tape is not None and state.trace is trace:
        _remember(trace, tape, start, applied)
    state.trace.nodes = [n for n in state.trace.nodes if n.saved is not None]
    autograd.finished()


def _tape(trace: Trace, root: Any) -> Tape | None:
    """The tape that leads to `root`; None if a pass over it must be walked."""
    nodes = trace.nodes
    top = root._node
    which = 0
    if top.__class__ is Output:
        top, which = top.node, top.index
    if trace.__class__ is not Trace or top.__class__ is not GradNode or not nodes:
        return None
    try:
        place = -1 if nodes[-1] is top else nodes.index(top)
        saved = [v for n in nodes for v in n.saved]  # type: ignore[union-attr]
    except (TypeError, ValueError):  # a node that was consumed; a root from before a flush
        return None
    known = trace.leaves.get
    slots = [
        v.__class__ if v.__class__ is not Value else v.slot if v.trace is trace else known(v)
        for v in saved
    ]
    calls = [n.call.id if n.hooks is None and n.own is None else None for n in nodes]
    # Numbers by first appearance: two tapes agree when everything hangs together in the same
    # way. All of this runs at the speed of dict and map, not of bytecode.
    flat = [e for n in nodes for e in n.edges]
    numbers = dict(zip(dict.fromkeys(flat), itertools.count(), strict=False))
    kinds = list(map(type, numbers))
    makers = list(map(numbers.get, nodes))
    if (
        None in slots  # a value that this trace does not know
        or not _KEPT.issuperset(map(type, saved))
        or None in calls
        or not _PLAIN.issuperset(kinds)
        or len(nodes) - makers.count(None) != kinds.count(GradNode)  # one from before a flush
    ):
        return None
    outputs = _output_places(nodes, numbers) if Output in kinds else ()
    # A leaf with hooks, or with a gradient that this one would be added to, is walked to.
    ends = [e for e in numbers if e.__class__ is LeafNode]
    leaves = [e.tensor() if e.hooks is None and e.after is None else None for e in ends]
    if outputs is None or False in [t is not None and t._grad is None for t in leaves]:
        return None
    key = (
        place, which, root._value.slot, len(trace.values), len(trace.leaves), trace.amp,
        tuple(calls), tuple(slots), tuple(map(numbers.__getitem__, flat)), tuple(kinds),
        tuple(makers), outputs,
    )  # fmt: skip
    return Tape(key, nodes, leaves, [e.tensor for e in ends], saved)


def _output_places(nodes: list[Any], numbers: dict[Any, int]) -> tuple[Any, ...] | None:
    """For each result of a node with several: (which node, which result)."""
    place = dict(zip(nodes, itertools.count(), strict=False))
    try:
        return tuple([(place[e.node], e.index) for e in numbers if e.__class__ is Output])
    except KeyError:
        return None


_PLAIN = {GradNode, LeafNode, Output, None.__class__}
_KEPT = {Value, float, int, None.__class__}  # not Overwritten: such a value raises


def _replayed(trace: Trace, tape: Tape) -> bool:
    """Append the entries of an equal tape's backward pass; False if there is none."""
    found = _memory.get(tape.key)
    if found is None:
        return False
    start = len(trace.values)
    if start + found.n_values >= trace.limit:
        return False
    # A result that nobody can ask for needs no Value: any object that only the trace holds will do.
    made = ownership.placeholders(found.n_values)
    grads = []
    tensor = autograd._Tensor
    for _, offset, aval in found.grads:
        value = made[offset] = promise(aval, trace, start + offset)
        grads.append(tensor(value, None))
    saved = tape.saved
    floats = [saved[i] for i in found.floats]
    ints = [saved[i] for i in found.ints]
    # As in `trace.record`: nothing here lets Ctrl-C in between.
    trace.code += found.code
    trace.floats += floats
    trace.ints += ints
    trace.values += made
    trace.undo += (rollback.Gradients(tape.refs),)
    for (which, _, _), grad in zip(found.grads, grads, strict=True):
        tape.leaves[which]._grad = grad
    nodes = tape.nodes
    for i in found.consumed:
        node = nodes[i]
        node.saved = None
        node.edges = ()
    trace.nodes = [n for n in nodes if n.saved is not None]
    return True


def _sizes(trace: Trace) -> tuple[int, ...]:
    return (
        len(trace.code), len(trace.floats), len(trace.ints), len(trace.values), len(trace.leaves)
    )  # fmt: skip


def _remember(trace: Trace, tape: Tape, start: tuple[int, ...], applied: list[Any]) -> None:
    """Keep the entries that a walk has recorded since `start`."""
    code, floats, ints, values, leaves = start
    numbers = _saved_numbers(tape, applied)
    if len(trace.leaves) != leaves or numbers is None:
        return  # it read something that was not in the trace
    for kind, recorded in zip(numbers, (trace.floats[floats:], trace.ints[ints:]), strict=True):
        if [tape.saved[i] for i in kind] != recorded:
            return
    grads = []
    for i, tensor in enumerate(tape.leaves):
        if tensor._grad is None:
            continue
        value = tensor._grad._value
        if value.trace is not trace or value.slot < values:
            return
        grads.append((i, value.slot - values, value.aval))
    if len({offset for _, offset, _ in grads}) != len(grads):
        return  # leaves that share one gradient
    recording = Recording(
        tuple(trace.code[code:]),
        *numbers,
        len(trace.values) - values,
        tuple(grads),
        tuple([i for i, n in enumerate(tape.nodes) if n.saved is None]),
    )
    _memory.add(tape.key, recording)


def _saved_numbers(
    tape: Tape, applied: list[Any]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The places among `tape.saved` of the floats and ints that a walk in this order passes on."""
    start: dict[Any, int] = {}
    at = 0
    for node in tape.nodes:
        start[node] = at
        at += len(node.call.saved_at)
    if not all(node in start for node in applied):
        return None
    places = [i for n in applied for i in range(start[n], start[n] + len(n.call.saved_at))]
    floats = tuple([i for i in places if tape.saved[i].__class__ is float])
    return floats, tuple([i for i in places if tape.saved[i].__class__ is int])
