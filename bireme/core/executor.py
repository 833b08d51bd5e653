"""Runs traces: cold tier first, compiled once a trace comes back.

A trace's key is its code stream, which results are alive, and which inputs nobody else holds (they
are donated). The first time a key is seen its graph is interpreted with NumPy; when it has been
seen often enough for its size it is compiled, in a background thread unless asked otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme import backends
from bireme.backends import worth
from bireme.core import checks, kernels, ownership, place, proofs, rollback, sharding
from bireme.core.aval import Aval
from bireme.core.cache import BoundedCache, Entry
from bireme.core.graph import Graph, Step
from bireme.core.op import CALLS
from bireme.core.program import Deliver, Program
from bireme.core.trace import Trace, Value, set_runner
from bireme.host import config

_programs: BoundedCache[Any, Program] = BoundedCache(
    lambda: config.max_programs, "set BIREME_MAX_PROGRAMS"
)


def stand_in(program: Program) -> Any:
    """What runs in the place of a program; capture/__init__.py replaces it."""


def run(trace: Trace) -> None:
    """Execute a finished trace and give its live values their buffers."""
    with trace.lock:
        trace.nodes = []
        values, leaves = trace.values, list(trace.leaves)
        if config.sharded:
            sharding.align(leaves)
        live = ownership.wanted(values)
        buffers = [v.buf for v in leaves]
        free = ownership.donatable(leaves, buffers)
        placed = sharding.shardings(buffers) if config.sharded else None
        program = find(trace.code, leaves, live, free, placed).value
        if not program.outputs:
            trace.values, trace.leaves = [], {}
            return
        if program.questions:
            unproved = proofs.unproved(program.questions, leaves, trace.floats, trace.ints)
            if unproved:
                program = _watching(program, unproved)
        trace.outputs = program.outputs
        try:
            execute(program, buffers, leaves, trace.floats, trace.ints, trace.results.extend)
        except BaseException as error:
            if not trace.results:
                rollback.take_back(trace, getattr(error, "failed_result", None))
            raise
        finally:
            # Even if Ctrl-C arrives right after the executable returned, its results are
            # already with the trace: donated inputs are never lost.
            _deliver(trace)


def _deliver(trace: Trace) -> None:
    """Hand the results that came back to their values; interrupted, it can be repeated."""
    if not trace.results:
        return
    for slot, buf in zip(trace.outputs, trace.results[0], strict=True):
        value = trace.values[slot]
        value.buf = buf
        value.trace = None
    # After a failure a trace keeps its values, so that those which do not depend on what failed
    # can still be computed.
    trace.results, trace.values, trace.leaves, trace.undo = [], [], {}, []


def find(
    code: Sequence[int],
    leaves: Sequence[Value],
    live: bytes,
    free: bytes,
    placed: tuple[Any, ...] | None = None,
) -> Entry[Program]:
    """The program of this code, made if it was not seen before or was evicted.

    `live` says of each value whether it is a result, `free` of each leaf whether nobody else holds
    it, and `placed` how leaves are spread over devices.
    """
    where = place.default_place()
    key = (tuple(code), live, free, where, kernels.settings(), placed)
    if (entry := _programs.entry(key)) is None:
        outputs = [i for i, alive in enumerate(live) if alive]
        graph = Graph.from_code(code, [v.aval for v in leaves], outputs)
        program = Program(graph, where, _donations(graph, free), shardings=placed)
        program.key = key
        entry = _programs.add_entry(key, program)
    return entry


def _watching(program: Program, watched: tuple[int, ...]) -> Program:
    """The same program, which also returns evidence of these requirements."""
    key = (program.key, watched)
    if (found := _programs.get(key)) is None:
        made = Program(program.graph, program.place, shardings=program.shardings, watched=watched)
        found = _programs.add(key, made)
    return found


def _donations(graph: Graph, free: bytes) -> tuple[int, ...]:
    """Inputs that nobody else holds and that have a result of their type to become."""
    types = graph.value_types()
    room = Counter([types[o] for o in graph.outputs])
    chosen = []
    for i, is_free in enumerate(free):
        t = graph.inputs[i]
        if is_free and room[t] > 0:
            room[t] -= 1
            chosen.append(i)
    return tuple(chosen)


def execute(
    program: Program,
    buffers: list[Any],
    leaves: list[Value],
    floats: Sequence[float],
    ints: Sequence[int],
    deliver: Deliver,
) -> None:
    """Run a program in the tier that it has reached; `deliver` as for `Program.call`."""
    program.hits += 1
    if program.executable is None:
        if (wider := stand_in(program)) is not None:
            wider.run(buffers, leaves, floats, ints, deliver)
            return
        program.consider_compiling()
    # With `check_nan_inf` results are seen op by op only.
    executable = None if config.check_nan_inf else program.executable
    for count in checks.counters:
        count([n.call for n in program.nodes], {} if executable is None else executable.kernels)
    if executable is None:
        began = worth.clock()
        try:
            results = run_cold(program.graph, program.steps, buffers, floats, ints)
        except MemoryError as e:
            raise program.explained(e) from e
        program.cold_seconds += worth.clock() - began
        program.cold_runs += 1
        deliver(iter((results,)))
        return
    program.bring(buffers, leaves)
    program.call((np.array(floats, np.float64), np.array(ints, np.int64), *buffers), deliver)


def run_cold(
    graph: Graph,
    steps: list[Step],
    buffers: list[Any],
    floats: Sequence[float],
    ints: Sequence[int],
) -> list[Any]:
    """Interpret the graph op by op with NumPy bodies (and cached one-op executables)."""
    cold = backends.reference()
    leaves = [b if b.__class__ is np.ndarray else np.asarray(sharding.whole(b)) for b in buffers]
    run = cold.run_checked if config.check_nan_inf else cold.run_call
    try:
        with cold.running():
            return graph.evaluate(leaves, floats, ints, run, steps)
    except Exception as error:
        failed = getattr(error, "failed_node", None)
        error.failed_result = None if failed is None else failed.first  # type: ignore[attr-defined] (see `run`)
        raise


def wait_for_compilation() -> None:
    """Block until every compilation in the background has finished."""
    for future in [p.future for p in _programs.values() if p.future is not None]:
        future.exception()


def wait_for_searches() -> None:
    """Have all programs in their fastest form now; it is otherwise searched for beside the runs."""
    wait_for_compilation()
    for program in _programs.values():
        program.improve(wait=True)


def clear_programs() -> None:
    """Forget every compiled program (they come back from the disk cache where it has them)."""
    _programs.clear()


def programs() -> list[Program]:
    """Those that are kept, in the order in which they were first met."""
    return _programs.values()


def program_count() -> int:
    return len(_programs)


def run_for_other_thread(trace: Trace, value: Value) -> None:
    """Compute one value of a trace that this thread does not record into.

    One that is closed is run, by whichever thread comes first: its own may have been interrupted
    before it did. Of one that is still recorded, or whose run failed, this value is computed from
    a snapshot. The trace's lists only grow, and an entry's code is appended before its values, so
    a prefix is always whole. The owner recomputes the value in its own flush, with the same result.
    """
    with trace.lock:
        _deliver(trace)  # if its own thread was interrupted while doing so
        if trace.closed and not trace.failed and value.buf is None:
            run(trace)
        if value.buf is not None:
            return
        count = len(trace.values)
        code, leaves = list(trace.code), list(trace.leaves)
        floats, ints = list(trace.floats), list(trace.ints)
    graph = Graph.from_code(_whole_calls(code, count), [v.aval for v in leaves], [value.slot])
    (buf,) = run_cold(graph, graph.schedule(), [v.buf for v in leaves], floats, ints)
    value.buf = buf


def _whole_calls(code: list[int], results: int) -> list[int]:
    at = made = 0
    while at < len(code) and made < results:
        call = CALLS[code[at]]
        at += 1 + sum(isinstance(t, Aval) for t in call.types)
        made += len(call.outs)
    return code[:at]


set_runner(run, run_for_other_thread)
