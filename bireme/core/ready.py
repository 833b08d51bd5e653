"""A captured training step that is called again: its program, with the arguments laid out.

A call that finds every tensor as the last one left it, and nothing recorded that is still to run,
needs no trace and no key. It checks that by identity, calls the executable, and puts the new
contents into the Values of the parameters and of the optimizer's state: a few microseconds for each
hundred tensors. Whatever is different takes the ordinary way, through the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, starmap
from operator import attrgetter, itemgetter
from sys import getrefcount
from typing import Any

import numpy as np

from bireme.core import checks, config, executor, kernels, place
from bireme.core.capture import Captured
from bireme.core.tensor import Parameter, Tensor
from bireme.core.trace import Trace, Value, flush_sealed, state

_value = attrgetter("_value")
_node = attrgetter("_node")
_views = attrgetter("_views")
_grad = attrgetter("_grad")
_is_zero = attrgetter("_grad_is_zero")
_NONE, _NOTHING = type(None), {None}
_aval = attrgetter("aval")
_buf = attrgetter("buf")
_set_buf = Value.buf.__set__  # type: ignore[attr-defined]
_WARM = 4  # calls that the executor makes itself, which looks after the heap meanwhile


def _alone() -> tuple[int, int]:
    """Reference counts of a Value that its tensor and two lists hold, and of a buffer that its
    Value and two lists hold."""
    tensor = Tensor(Value(None, None, 0, np.empty(1)), None)  # type: ignore[arg-type]
    first, second = [tensor._value], [tensor._value]
    count = max(map(getrefcount, first))
    buffers = list(map(_buf, second))
    also = list(buffers)
    return count, max(map(getrefcount, also))


_ONLY_TENSOR, _ONLY_VALUE = _alone()


def _picker(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """What takes the items at these places out of a sequence."""
    if len(places) > 1:
        return itemgetter(*places)
    (only,) = places
    return lambda items: (items[only],)


def can_be_ready(captured: Captured) -> bool:
    """Whether a captured call does what `Ready` can: it updates parameters, and leaves neither
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
        and not any(had for _, had in captured.graded)
    )


class Ready:
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
        self.program: executor.Program
        self.no_numbers: Any = None

    def _find_program(self, leaves: list[Value]) -> None:
        self.place, self.kernels = place.default_place(), kernels.settings()
        key = (tuple(self.code), self.live, self.free, self.place, self.kernels)
        program = executor._programs.get(key)
        if program is None:
            trace = Trace()
            trace.code, trace.leaves = self.code, leaves
            program = executor._new_program(key, trace, self.live, self.free, None)
        self.program = program
        self.no_numbers = None

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
            or max(map(getrefcount, written)) > _ONLY_TENSOR
        ):
            return None
        for i, (tensor, read) in enumerate(self.captured.live):
            number = read()
            if number != self.numbers[i]:
                tensor._value.buf, self.numbers[i] = np.array(number), number
        buffers = list(map(_buf, leaves))
        kinds = set(map(type, buffers))
        if _NONE in kinds or max(map(getrefcount, self.written(buffers))) > _ONLY_VALUE:
            return None
        if place.default_place() is not self.place or kernels.settings() != self.kernels:
            self._find_program(leaves)
        ints = self._draw() if self.captured.generators else ()
        results = [Value(t, None, 0) for t in self.results]
        into = [*results, *written]
        program = self.program
        if program.runs < _WARM or checks.counters or checks.starting or config.check_nan_inf:
            self._call_first(leaves, ints, into)
            return results
        if np.ndarray in kinds:
            for at, array in enumerate(buffers):
                if array.__class__ is np.ndarray and not place.is_kept_on_host(array):
                    leaves[at].buf = buffers[at] = program.executable.put(array)
        self._call(program, buffers, ints, into)
        return results

    def _draw(self) -> Sequence[int]:
        drawn = [n for g in self.captured.generators for n in g.next_key()]
        return [drawn[p] for p in self.captured.op.parts]

    def _call(
        self, program: executor.Program, buffers: list[Any], ints: Sequence[int], into: list[Value]
    ) -> None:
        executable = program.executable
        if self.no_numbers is None:
            # What does not change from call to call is moved to the device once.
            self.no_numbers = executable.put(np.zeros(0)), executable.put(np.zeros(0, np.int64))
        floats, none = self.no_numbers
        given = (floats, np.array(ints, np.int64) if ints else none, *buffers)
        program.hits += 1
        program.used = next(executor._clock)
        try:
            executable.wait_for(given)
            # One native call, from the arguments to the results in their Values: Ctrl-C comes
            # before it or after it, and donated inputs are never lost.
            any(map(_set_buf, into, chain.from_iterable(starmap(executable.call, (given,)))))
        except Exception as e:
            raise executor._explained(e, program) from e

    def _call_first(self, leaves: list[Value], ints: Sequence[int], into: list[Value]) -> None:
        trace = Trace()
        trace.ints = list(ints)
        self.program.hits += 1
        self.program.used = next(executor._clock)
        try:
            executor._execute(self.program, list(map(_buf, leaves)), leaves, trace)
        finally:
            for made in trace.results:
                any(map(_set_buf, into, made))
