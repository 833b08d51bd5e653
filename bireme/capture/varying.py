"""Programs that differ only in one size share one program.

Texts have other lengths in every step, so each step would be another program, and on a GPU each
compilation takes seconds. When a second program with the same operations comes, the two are
compared: where sizes differ, each must be a multiple of one size, plus a constant. That gives a
graph with a symbol for the size. It is compiled once for all sizes up to a bound, on padded arrays
(padded.py), and every further program is checked: with its size in place of the symbol the graph
must be that program, call by call. A program that comes back often gets one of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from bireme.capture import symbols
from bireme.capture.generalising import LEAST, Different, Fit, generalised
from bireme.capture.padded import SizeRange, Unsupported, padded_function
from bireme.core import checks, kernels
from bireme.core.cache import BoundedCache
from bireme.core.dims import is_symbolic
from bireme.core.graph import Graph
from bireme.core.program import Deliver, Program
from bireme.core.value import Value
from bireme.host import config, jax_door, waiting

# A bound serves sizes down to this part of it: below, padding would be nearly all of the work.
_SERVED = 16
# Runs of sizes for which a closer bound would do, after which that is compiled beside the runs.
_CLOSER = 100
# Runs after which a program gets one for its own size, beside the runs.
_OWN = 64
# Bytes of an open input or result that is padded or cropped by the host. On a device that takes a
# small program for each size.
_ON_HOST = 1 << 20


class PaddedProgram(Program):
    """A program for all sizes of a range; its inputs are padded, and the last of its integers is
    the size."""

    __slots__ = ("sizes",)

    def __init__(self, graph: Graph, of: Program, sizes: SizeRange):
        self.sizes = sizes
        opened = any(not graph.type_of(o).is_static for o in graph.outputs)
        donated = tuple([i for i in of.donated if graph.inputs[i].is_static])
        # What comes back is cropped in Python: nothing may be lost on the way.
        super().__init__(graph, of.place, () if opened else donated)
        self.line = of.line

    def _awaited(self, future: Any) -> Any:
        about = f"compiling {self.size} ops for sizes up to {self.sizes.high} ({self.line})"
        return waiting.result(future, lambda: about)

    def _compiled(self) -> Any:
        backend: Any = self.place.backend()
        return backend.compile(
            self.graph,
            place=self.place,
            donated=self.donated,
            pad=lambda function, types: padded_function(function, types, self.sizes),
        )


@dataclass
class StandIn:
    """A padded program in the place of another."""

    program: PaddedProgram
    size: int
    # Where the open inputs are and how large they become; where the open results are, and what of
    # them is wanted.
    inputs: list[tuple[int, tuple[int, ...]]]
    results: list[tuple[int, tuple[int, ...]]]

    def run(
        self,
        buffers: list[Any],
        leaves: list[Value],
        floats: Sequence[float],
        ints: Sequence[int],
        deliver: Deliver,
    ) -> None:
        program = self.program
        for count in checks.counters:
            count([n.call for n in program.nodes], program.executable.kernels)
        for i, extents in self.inputs:
            buffers[i] = _padded(program, buffers[i], extents)
        program.bring(buffers, leaves)
        numbers = np.array(floats, np.float64), np.array([*ints, self.size], np.int64)
        if not self.results:
            program.call((*numbers, *buffers), deliver)
            return
        made = program.results(*numbers, *buffers)
        for i, shape in self.results:
            made[i] = _cropped(made[i], shape)
        deliver(iter((made,)))


def _padded(program: PaddedProgram, array: Any, extents: tuple[int, ...]) -> Any:
    if isinstance(array, np.ndarray) or array.nbytes <= _ON_HOST:
        padded = np.zeros(extents, array.dtype)
        padded[tuple(map(slice, array.shape))] = np.asarray(array)
        return program.executable.put(padded)
    behind = [(0, n - d) for n, d in zip(extents, array.shape, strict=True)]
    return jax_door.jnp().pad(array, behind)


def _cropped(array: Any, shape: tuple[int, ...]) -> Any:
    if array.nbytes <= _ON_HOST:
        return np.ascontiguousarray(np.asarray(array)[tuple(map(slice, shape))])
    return jax_door.jax().lax.slice(array, (0,) * len(shape), shape)


@dataclass
class Answer:
    """What is known of a program."""

    program: Program
    family: Family | None
    found: StandIn | None
    of: int = 1  # so many programs of the family have been looked at


class Family:
    """Programs of the same operations: the first that was met, and those that stand in for all."""

    def __init__(self, sample: Graph):
        self.sample = sample
        self.programs: list[PaddedProgram] = []  # the closest bound first
        self.refused: str | None = None  # why there is none
        self._next: PaddedProgram | None = None  # is being compiled
        self._runs: dict[int, int] = {}  # by the closest bound that would do

    def stand_in(self, program: Program) -> StandIn | None:
        """What to run in the place of a program; compiled now if there is nothing yet."""
        if self.refused is not None:
            return None
        found = self._known(program)
        if found is not None:
            return found
        try:
            padded = self._generalised(program, lambda sizes: _range(_power(max(sizes))))
            found = _standing(padded, program)
            if found is None or padded.fallible:
                raise Different("the program cannot be started without looking at its inputs")
            padded.compile()
        except (Different, Unsupported) as e:
            self.refused = f"{e}"
            return None
        except Exception as e:  # a body that cannot be traced with an open size: each has its own
            self.refused = f"{type(e).__name__}: {e}"
            return None
        self._add(padded)
        return found

    def _known(self, program: Program) -> StandIn | None:
        return next((s for w in self.programs if (s := _standing(w, program)) is not None), None)

    def _generalised(
        self, program: Program, within: Callable[[tuple[int, int]], SizeRange]
    ) -> PaddedProgram:
        graph, sizes = generalised(self.sample, program.graph, within)
        return PaddedProgram(graph, program, sizes)

    def _add(self, padded: PaddedProgram) -> None:
        self.programs = sorted([*self.programs, padded], key=lambda w: w.sizes.high)

    def closer(self, answer: Answer) -> None:
        """Compile a closer bound once it would often have been run; take it once it is there."""
        made = self._next
        if made is not None:
            made.compile_aside()
            if made.executable is not None:
                self._add(made)
            if made.executable is not None or made.failed:
                self._next = None
        if answer.of != len(self.programs):
            answer.of = len(self.programs)
            answer.found = self._known(answer.program) or answer.found
        found = answer.found
        bound = 0 if found is None else _closest(found.size)
        if found is None or bound >= found.program.sizes.high:
            return
        self._runs[bound] = self._runs.get(bound, 0) + 1
        if self._runs[bound] == _CLOSER and self._next is None:
            with suppress(Different):
                self._next = self._generalised(answer.program, lambda sizes: _range(bound))
                self._next.compile_aside()


def _power(size: int) -> int:
    return max(1 << math.ceil(math.log2(max(size, 2))), 8)


def _closest(size: int) -> int:
    """The bound with the least padding: a power of two, or the middle of two."""
    high = _power(size)
    return high * 3 // 4 if size <= high * 3 // 4 else high


def _range(high: int) -> SizeRange:
    low = max(high // _SERVED, LEAST)
    return SizeRange(f"size_{low}_{high}", low, high)


def _standing(padded: PaddedProgram, program: Program) -> StandIn | None:
    """`padded` in the place of `program`, if it is the same for the program's size."""
    graph, exact, sizes = padded.graph, program.graph, padded.sizes
    size = _size(graph, exact, sizes.name)
    if size is None or not sizes.low <= size <= sizes.high:
        return None
    if not Fit(sizes.name, size).graph(graph, exact):
        return None
    inputs = [
        (i, tuple(map(sizes.extent, t.shape)))
        for i, t in enumerate(graph.inputs)
        if not t.is_static
    ]
    results = [
        (i, exact.type_of(o).shape)
        for i, o in enumerate(graph.outputs)
        if not graph.type_of(o).is_static
    ]
    return StandIn(padded, size, inputs, results)


def _size(general: Graph, graph: Graph, name: str) -> int | None:
    """The size that makes the first open input what it is."""
    for g, t in zip(general.inputs, graph.inputs, strict=True):
        if not g.is_static and g.ndim == t.ndim:
            for d, n in zip(g.shape, t.shape, strict=True):
                if is_symbolic(d):
                    rest = symbols.evaluate(str(d), {name: 0})
                    factor = symbols.evaluate(str(d), {name: 1}) - rest
                    return None if (n - rest) % factor else (n - rest) // factor
    return None


# --- the executor's question --------------------------------------------------------------------


_families: BoundedCache[Any, Family] = BoundedCache(256)
# An answer keeps its program: no more than the executor keeps.
_answers: BoundedCache[int, Answer] = BoundedCache(lambda: config.max_programs)


def families() -> list[Family]:
    """Those that are known, for profiling and tests."""
    return _families.values()


def applies(program: Program) -> bool:
    """Whether a program of this kind is compiled at first sight, so that every size would be."""
    return not program.place.is_cpu_place() and not program.begins_on_host()


def stand_in(program: Program) -> StandIn | None:
    """What to run instead of a program that is not compiled yet."""
    if config.compile_mode != "auto" or config.check_nan_inf or config.forked or config.sharded:
        return None
    answer = _answers.get(id(program))
    if answer is None or answer.program is not program:
        answer = _answers.add(id(program), _answered(program))
    if answer.found is None or answer.family is None:
        return None
    if program.hits >= _OWN:
        program.compile_aside()
        if program.executable is not None:
            return None
    answer.family.closer(answer)
    return answer.found


def _answered(program: Program) -> Answer:
    if program.fixed is not None or program.fallible or program.at_once or not applies(program):
        return Answer(program, None, None)
    if not program.place.backend().pads:
        return Answer(program, None, None)
    key = (
        tuple([(n.call.op.name, n.args) for n in program.graph.nodes]),
        tuple([(t.ndim, t.dtype) for t in program.graph.inputs]),
        tuple(program.outputs),
        program.donated,
        program.place,
        kernels.settings(),
    )
    family = _families.get(key)
    if family is None:
        _families.add(key, Family(program.graph))
        return Answer(program, None, None)
    return Answer(program, family, family.stand_in(program))
