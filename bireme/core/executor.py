"""Runs traces: cold tier first, compiled once a trace comes back.

A trace's key is its code stream, which results are alive, and which inputs nobody else holds
(they are donated). The first time a key is seen its graph is interpreted with NumPy; when it
has been seen often enough for its size it is compiled, in a background thread unless asked
otherwise, and the compiled program takes over.
"""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future
from sys import getrefcount
from typing import Any

import numpy as np

from bireme.backends import get_backend
from bireme.core import background, checks, config, heap, kernels, place, sharding, stats
from bireme.core.errors import ExecutionError, OutOfMemory, user_line
from bireme.core.graph import Graph
from bireme.core.trace import Trace, Value, set_runner


class Program:
    """One distinct trace: its graph and, once it pays, its executable."""

    __slots__ = (
        "donated", "executable", "failed", "future", "graph", "hits", "nodes", "outputs",
        "runs", "shardings", "size", "used",
    )  # fmt: skip

    def __init__(
        self, graph: Graph, donated: tuple[int, ...], shardings: tuple[Any, ...] | None = None
    ):
        self.graph = graph
        self.nodes = graph.needed()
        self.size = sum([n.call.op.size for n in self.nodes])
        self.outputs = graph.outputs
        self.donated = donated
        self.shardings = shardings
        self.hits = 0
        self.used = 0  # when it last ran, by the count of all runs
        self.runs = 0  # of the executable
        self.executable: Any = None
        self.future: Future[Any] | None = None
        self.failed = False


# Before the first runs of a program of this size, what its compilation, the cold tier and the runs
# before (on memory that lies elsewhere) left on the heap goes back to the system.
_SETTLED, _LARGE = 4, 32

_programs: dict[Any, Program] = {}
_clock = itertools.count(1)
_programs_lock = threading.Lock()


def _baseline() -> tuple[int, int]:
    """Reference counts of a Value and of a buffer that only a trace holds."""
    holder = [Value(None, None, 0, np.empty(1))]  # type: ignore[arg-type]
    (value_count,) = map(getrefcount, holder)
    buffers = [v.buf for v in holder]
    (buffer_count,) = map(getrefcount, buffers)
    return value_count, buffer_count


_ONLY_TRACE, _ONLY_VALUE = _baseline()


def run(trace: Trace) -> None:
    """Execute a finished trace and give its live values their buffers."""
    with trace.lock:
        trace.nodes = []
        values, leaves = trace.values, trace.leaves
        if config.sharded:
            sharding.align(leaves)
        live = bytes([c > _ONLY_TRACE for c in map(getrefcount, values)])
        buffers = [v.buf for v in leaves]
        free = bytes(
            [
                v <= _ONLY_TRACE and b <= _ONLY_VALUE
                for v, b in zip(map(getrefcount, leaves), map(getrefcount, buffers), strict=True)
            ]
        )
        key = (tuple(trace.code), live, free, place.default_place(), kernels.settings())
        placed = None
        if config.sharded:
            placed = sharding.shardings(buffers)
            key = (*key, placed)
        program = _programs.get(key)
        if program is None:
            program = _new_program(key, trace, live, free, placed)
        if not program.outputs:
            trace.values, trace.leaves = [], []
            return
        program.hits += 1
        program.used = next(_clock)
        trace.outputs = program.outputs
        try:
            _execute(program, buffers, leaves, trace)
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
    # Inputs still point at this trace; it must not keep its values alive. After a failure it
    # does, so that a later read can try again.
    trace.results, trace.values, trace.leaves = [], [], []


def _new_program(
    key: Any, trace: Trace, live: bytes, free: bytes, placed: tuple[Any, ...] | None
) -> Program:
    inputs = [v.aval for v in trace.leaves]
    outputs = [i for i, alive in enumerate(live) if alive]
    graph = Graph.from_code(trace.code, inputs, outputs)
    program = Program(graph, _donations(graph, free), placed)
    with _programs_lock:
        while len(_programs) >= config.max_programs:
            # The one unused for longest, never the step of the loop that is running. Looking
            # for it here costs a hit nothing.
            del _programs[min(_programs, key=lambda k: _programs[k].used)]
        _programs[key] = program
    return program


def _donations(graph: Graph, free: bytes) -> tuple[int, ...]:
    """Inputs that nobody else holds and that have a result of their type to become."""
    types = graph.value_types()
    room: dict[Any, int] = {}
    for o in graph.outputs:
        room[types[o]] = room.get(types[o], 0) + 1
    chosen = []
    for i, is_free in enumerate(free):
        t = graph.inputs[i]
        if is_free and room.get(t, 0) > 0:
            room[t] -= 1
            chosen.append(i)
    return tuple(chosen)


def _execute(program: Program, buffers: list[Any], leaves: list[Value], trace: Trace) -> None:
    """Run the program; what comes back goes to `trace.results` before anything can interrupt."""
    if program.executable is None:
        _consider_compiling(program)
    executable = program.executable
    if config.check_nan_inf:  # results are seen op by op only
        executable = None
    for count in checks.counters:
        count([n.call for n in program.nodes], {} if executable is None else executable.kernels)
    if executable is None:
        trace.results.append(
            run_cold(program.graph, program.nodes, buffers, trace.floats, trace.ints)
        )
        return
    floats = np.array(trace.floats, np.float64)
    ints = np.array(trace.ints, np.int64)
    donated = program.donated
    for i, buf in enumerate(buffers):
        # A NumPy buffer that stays alive is moved to the device once, not in every step.
        if (
            buf.__class__ is np.ndarray
            and i not in donated
            and buf.nbytes > 1024
            and not place.is_kept_on_host(buf)
        ):
            buffers[i] = leaves[i].buf = executable.put(buf)
            del buf
    for watch in checks.starting:
        watch(executable)
    arguments = (floats, ints, *buffers)
    try:
        executable.wait_for(buffers)
        if program.runs < _SETTLED and program.size >= _LARGE:
            heap.release()
        trace.results.extend(itertools.starmap(executable.call, (arguments,)))
    except Exception as e:
        raise _explained(e, program) from e
    program.runs += 1


def _explained(error: Exception, program: Program) -> Exception:
    text = str(error)
    first = program.nodes[0].call.source if program.nodes else "unknown"
    last = program.nodes[-1].call.source if program.nodes else "unknown"
    where = f"the operations recorded from {first} to {last} ({len(program.nodes)} ops)"
    if "RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower():
        heaviest = max(
            program.nodes, key=lambda n: max(o.size * o.dtype.itemsize for o in n.call.outs)
        )
        return OutOfMemory(
            f"the device ran out of memory while running {where}. The largest single result is "
            f"[{heaviest.call.op.name}] {heaviest.call.outs[0]}, recorded at "
            f"{heaviest.call.source}. Use a smaller batch, recompute, or AMP. {text[:300]}"
        )
    return ExecutionError(f"running {where} failed: {text[:2000]}")


def run_cold(
    graph: Graph, nodes: list[Any], buffers: list[Any], floats: list[float], ints: list[int]
) -> list[Any]:
    """Interpret the graph op by op with NumPy bodies (and cached one-op executables)."""
    cold = get_backend("numpy")
    leaves = [b if b.__class__ is np.ndarray else np.asarray(sharding.whole(b)) for b in buffers]
    step = cold.run_checked if config.check_nan_inf else cold.run_call
    with np.errstate(all="ignore"):
        return graph.evaluate(leaves, floats, ints, step, nodes)


def _consider_compiling(program: Program) -> None:
    mode = config.compile_mode
    if mode == "never" or config.forked or config.check_nan_inf or program.failed:
        return
    if program.future is not None:
        if program.future.done():
            _take_over(program)
        return
    immediate = mode == "always" or config.sharded or not place.default_place().is_cpu_place()
    # A tiny trace is as fast in NumPy; a big one is worth compiling the second time it is seen.
    if not immediate and (program.hits < 2 or program.hits * program.size < 16):
        return
    job = stats.CompileJob(program.graph, user_line())
    if mode == "auto" and not immediate:
        program.future = background.submit(_compile, program, job)
    else:
        program.executable = _compile(program, job)


def _compile(program: Program, job: stats.CompileJob) -> Any:
    with job:
        executable = get_backend("xla").compile(
            program.graph, program.nodes, program.donated, program.shardings
        )
        job.kernels = executable.kernels
        return executable


def _take_over(program: Program) -> None:
    future, program.future = program.future, None
    assert future is not None  # noqa: S101 (only called with one)
    error = future.exception()
    if error is None:
        program.executable = future.result()
        return
    program.failed = True
    stats.warn_compile_failed(program.graph, error)


def wait_for_compilation() -> None:
    """Block until every compilation in the background has finished."""
    for program in list(_programs.values()):
        if program.future is not None:
            program.future.exception()


def clear_programs() -> None:
    """Forget every compiled program (they come back from the disk cache where it has them)."""
    with _programs_lock:
        _programs.clear()


def program_count() -> int:
    return len(_programs)


def run_for_other_thread(trace: Trace, value: Value) -> None:
    """Compute one value of another thread's unfinished trace from a snapshot of it.

    The owner may be recording meanwhile. Its lists only grow, and an entry's code is appended
    before its values, so a prefix is always whole. The owner recomputes the value in its own
    flush, with the same result.
    """
    with trace.lock:
        _deliver(trace)  # if its own thread was interrupted while doing so
        if value.buf is not None:
            return
        count = len(trace.values)
        code, leaves = list(trace.code), list(trace.leaves)
        floats, ints = list(trace.floats), list(trace.ints)
    graph = Graph.from_code(_whole_calls(code, count), [v.aval for v in leaves], [value.slot])
    (buf,) = run_cold(graph, graph.needed(), [v.buf for v in leaves], floats, ints)
    value.buf = buf


def _whole_calls(code: list[int], results: int) -> list[int]:
    from bireme.core.aval import Aval
    from bireme.core.op import CALLS

    at = made = 0
    while at < len(code) and made < results:
        call = CALLS[code[at]]
        at += 1 + sum(isinstance(t, Aval) for t in call.types)
        made += len(call.outs)
    return code[:at]


set_runner(run, run_for_other_thread)
