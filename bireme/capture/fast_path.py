"""A captured training step that is called again: its program, with the arguments laid out.

A call that finds every tensor as the last one left it, and nothing recorded that is still to run,
needs no trace and no key. It checks that by identity, calls the executable, and puts the new
contents into the Values of the parameters and of the optimizer's state: a few microseconds for each
hundred tensors. Whatever is different takes the ordinary way, through the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any

import numpy as np

from bireme.capture.capture import Captured
from bireme.core import checks, executor, kernels, ownership, place, proofs
from bireme.core.cache import Entry
from bireme.core.program import WARM, Program
from bireme.core.tensor import Parameter, Tensor
from bireme.core.trace import Trace, Value, flush_sealed, state
from bireme.core.value import value_of
from bireme.host import config

_value = attrgetter("_value")
_node = attrgetter("_node")
_views = attrgetter("_views")
_grad = attrgetter("_grad")
_is_zero = attrgetter("_grad_is_zero")
_NONE, _NOTHING = type(None), {None}
_aval = attrgetter("aval")
_buf = attrgetter("buf")
_set_buf = Value.buf.__set__  # type: ignore[attr-defined]


# A Value that is written is held by its tensor and by two sequences of the call's Values; a buffer
# by its Value and by two sequences of buffers.
_HOLDERS = 3


def _picker(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """What takes the items at these places out of a sequence."""
    if len(places) > 1:
        return itemgetter(*places)
    (only,) = places
    return lambda items: (items[only],)


def fits_fast_path(captured: Captured) -> bool:
    """Whether a captured call can take the `FastPath`: it updates parameters, and leaves neither
    gradients nor anything to differentiate behind."""
    outer = {id(t) for t in captured.outer}
    return (
        captured.op.backward is None
        and not captured.checks
        and not captured.guards
        and any(isinstance(w.target, Parameter) for w in captured.writes)
        and all(id(w.target) in outer and not w.tracked for w in captured.writes)
        and all(w.target._view is None for w in captured.writes)  # type: ignore[union-attr]
        and all(isinstance(e.target, Tensor) and e.output is None for e in captured.grads)
        and not captured.gradients
        and not any(had for _, had in captured.graded)
    )


class FastPath:
    """All that the next call needs. It holds no Values: whoever else updates the parameters still
    finds them in nobody else's hands."""

    def __init__(self, captured: Captured, arguments: Sequence[Tensor]):
        self.captured = captured
        self.outer = captured.outer
        self.nodes = [t._node for t in self.outer]
        self.cleared: list[Any] = [e.target for e in captured.grads]
        self.zeros = [e.is_zero for e in captured.grads]
        self.graded = [t for t, _ in captured.graded]
        at = {id(t): i for i, t in enumerate(self.outer)}
        written = [at[id(w.target)] for w in captured.writes]
        self.targets = [self.outer[i] for i in written]
        self.written = _picker([len(arguments) + i for i in written])
        self.types = [t._value.aval for t in (*arguments, *self.outer)]
        call = captured.op.call_for(tuple(self.types))
        self.results = call.outs[: len(captured.tracked)]
        free = bytearray(len(self.types))
        for i in written:
            free[len(arguments) + i] = 1
        self.live = bytes([1] * len(call.outs))
        self.free = bytes(free)
        self.code = [call.id, *range(-1, -1 - len(self.types), -1)]
        self.numbers: list[Any] = [None] * len(captured.live)
        self.place: Any = None
        self.kernels: Any = None
        self.entry: Entry[Program]
        self.program: Program
        self.no_numbers: Any = None

    def _find_program(self, leaves: list[Value]) -> None:
        where, switched = place.default_place(), kernels.settings()
        self.entry = executor.find(self.code, leaves, self.live, self.free)
        self.program = self.entry.value
        self.no_numbers = None
        # Last, because Ctrl-C may come before: these say that the program is the right one.
        self.place, self.kernels = where, switched

    def run(self, arguments: Sequence[Tensor]) -> list[Value] | None:
        """The results, or None where something is not as the last call left it."""
        if state.sealed is not None:
            flush_sealed()
        trace = state.trace
        if trace.values or trace.__class__ is not Trace or config.sharded:
            return None
        leaves = [*map(_value, arguments), *map(_value, self.outer)]
        written = self.written(leaves)
        # Lists that are equal in C, item by item the same object: nothing else is equal to a type
        # or a node. Gradients are tensors, which have an `==` of their own, and go into a set.
        if (
            list(map(_aval, leaves)) != self.types
            or list(map(_node, self.outer)) != self.nodes
            or any(map(_views, self.targets))
            or list(map(_is_zero, self.cleared)) != self.zeros
            or (self.graded and set(map(_grad, self.graded)) != _NOTHING)
            or ownership.most_holders(written) > _HOLDERS
        ):
            return None
        for i, (tensor, read) in enumerate(self.captured.live):
            number = read()
            if number != self.numbers[i]:
                tensor._value.buf, self.numbers[i] = np.array(number), number
        buffers = list(map(_buf, leaves))
        kinds = set(map(type, buffers))
        if _NONE in kinds or ownership.most_holders(self.written(buffers)) > _HOLDERS:
            return None
        if place.default_place() is not self.place or kernels.settings() != self.kernels:
            self._find_program(leaves)
        if (
            self.program.fallible
            or (self.program.questions and proofs.unproved(self.program.questions, leaves, (), ()))
            or (config.several_backends and not self._takes(buffers))
        ):
            return None
        keys = [g.draw() for g in self.captured.generators]
        drawn = [n for key in keys for n in key]
        ints = [drawn[p] for p in self.captured.op.parts]
        results = [value_of(t, None) for t in self.results]
        into = [*results, *written]
        program = self.program

        def deliver(runs: Iterator[list[Any]]) -> None:
            # One native call, from the arguments to the results in their Values.
            any(map(_set_buf, into, chain.from_iterable(runs)))

        try:
            self.entry.touch()
            if program.runs < WARM or checks.counters or checks.starting or config.check_nan_inf:
                # The executor has the tiers, and tells those who watch.
                executor.execute(program, list(buffers), leaves, (), ints, deliver)
                return results
            if np.ndarray in kinds:
                program.bring(buffers, leaves, everything=True)
            if self.no_numbers is None:
                # What does not change from call to call is moved to the device once.
                put = program.executable.put
                self.no_numbers = put(np.zeros(0)), put(np.zeros(0, np.int64))
            floats, none = self.no_numbers
            numbers = np.array(ints, np.int64) if ints else none
            program.call((floats, numbers, *buffers), deliver)
        except BaseException as error:
            # Ctrl-C may come behind the call, when everything has happened.
            if isinstance(error, Exception) or all(map(is_, map(_buf, leaves), buffers)):
                for g, key in zip(self.captured.generators[::-1], keys[::-1], strict=True):
                    g.give_back(key)
            raise
        return results

    def _takes(self, buffers: list[Any]) -> bool:
        executable = self.program.executable
        return executable is None or all(map(executable.takes, buffers))
