"""A program: a graph, its executable once there is one, and the one way to call it.

The executor's traces, captured steps, direct programs and predictors differ in where arguments come
from and where results go. Everything between is the same and lives here: the device and its
backend, donation, memory, waiting, requirements, and error messages.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import starmap
from typing import Any

import numpy as np

from bireme.backends import Executable, host_cost, worth
from bireme.core import checks, place, proofs, stats
from bireme.core.errors import BiremeError, ExecutionError, OutOfMemory, user_line
from bireme.core.graph import Graph
from bireme.core.value import Value
from bireme.host import background, config, heap, jax_door, thresholds, uninterrupted, waiting

# Before the first runs of a program of this size, what its compilation, the cold tier and the runs
# before (on memory that lies elsewhere) left on the heap goes back to the system.
WARM, _LARGE = 4, 32

# Threads of XLA's compiler abort the process where they find no memory for their stacks.
_COMPILER = 64 << 20

# Takes what a run returns out of an iterator, in native code (see `Program.call`).
Deliver = Callable[[Iterator[list[Any]]], Any]


class Program:
    """One distinct graph for one device.

    A run returns evidence of the requirements numbered `watched`. `fixed` has the contents of
    inputs that are constants: the program is called with the others, and without numbers. A
    `guarded` program looks after memory before each run: training loops need it, since their runs
    overwrite inputs and start before the last one has ended.
    """

    __slots__ = (
        "at_once", "called", "cold_runs", "cold_seconds", "compile_seconds", "donated",
        "executable", "failed", "fallible", "fixed", "future", "graph", "guarded", "hits",
        "host_seconds", "key", "line", "lock", "nodes", "on_disk", "outputs", "place", "questions",
        "requirements", "runs", "shardings", "size", "steps", "watched",
    )  # fmt: skip

    def __init__(
        self,
        graph: Graph,
        where: place.Place,
        donated: tuple[int, ...] = (),
        *,
        shardings: tuple[Any, ...] | None = None,
        watched: tuple[int, ...] = (),
        fixed: Mapping[int, Any] | None = None,
        guarded: bool = True,
    ):
        self.graph = graph
        self.place = where
        self.steps = graph.schedule()
        self.nodes = [node for node, _, _ in self.steps]
        self.requirements = proofs.of_program(graph, self.nodes)
        self.questions = proofs.questions(self.requirements)
        self.watched = watched
        # It may fail after it was started, so it is waited for and donates nothing.
        self.fallible = bool(watched) or proofs.is_fallible(self.nodes)
        self.size = sum([n.call.op.size for n in self.nodes])
        self.at_once = any(n.call.op.at_once and n.call.op.at_once(n.call) for n in self.nodes)
        self.line = user_line()  # that first ran it; a Call names the line of its own first use
        self.outputs = graph.outputs
        self.donated = () if self.fallible else donated
        self.shardings = shardings
        self.fixed = fixed
        self.guarded = guarded
        self.key: Any = None  # in the executor's cache
        self.host_seconds: float | None = None  # in the cold tier, estimated
        self.hits = 0  # how often the executor met it
        self.cold_runs, self.cold_seconds = 0, 0.0  # in the cold tier
        self.compile_seconds = 0.0
        self.on_disk: bool | None = None  # None: nobody has looked
        self.runs = 0  # of the executable
        self.called: set[tuple[type, ...]] = set()  # with arguments of these types
        self.executable: Any = None
        self.future: Future[Executable] | None = None
        self.failed = False
        self.lock = threading.Lock()  # of `executable` and `future`

    # --- compiling ------------------------------------------------------------------------

    def compile(self) -> None:
        """Compile now, counted and explained by the user's line."""
        job = stats.CompileJob(self.graph, user_line())
        self.executable = self._awaited(background.submit(self._counted, job))

    def compile_uncounted(self) -> None:
        """Compile now, for users who expect a compilation for each size (predictors)."""
        self.executable = self._awaited(background.submit(self._compiled))

    def consider_compiling(self) -> None:
        """Compile if the program is worth it by now; take over what was compiled meanwhile."""
        mode = config.compile_mode
        if mode == "never" or config.forked or config.check_nan_inf or self.failed:
            return
        immediate = mode == "always" or config.sharded or self.at_once or not self.begins_on_host()
        if self.future is None and not immediate and not self._pays():
            return
        if mode == "auto" and not immediate:
            self.compile_aside()
        elif (future := self._started()) is not None:
            self._wait_for(future)

    def compile_aside(self) -> None:
        """Compile beside the runs, and take over what was compiled so meanwhile."""
        if (future := self._started()) is not None and future.done():
            self._take_over(future)

    def _started(self) -> Future[Executable] | None:
        """The compilation, unless it has ended. Threads that meet the same program compile once."""
        with self.lock:
            if self.future is None and self.executable is None and not self.failed:
                job = stats.CompileJob(self.graph, user_line())
                self.future = background.submit(self._counted, job)
            return self.future

    def begins_on_host(self) -> bool:
        """Whether the cold tier runs the program first: any on a CPU, and on other devices one that
        the host has done before it could be compiled."""
        if self.place.is_cpu_place():
            return True
        if self.host_seconds is None:
            self.host_seconds = host_cost.seconds(self.nodes)
        return self.host_seconds <= thresholds.BEGINS_ON_HOST and not self.place.backend().raises

    def _pays(self) -> bool:
        """Whether compiling is worth its time. Who waits for it (`sync`) has it at the second run
        of any program that is not tiny: counts that do not depend on a clock. So has a program of
        another device that began on the host."""
        if config.compile_mode == "sync" or not self.place.is_cpu_place():
            return self.hits >= 2 and self.hits * self.size >= 16
        return worth.pays(self)

    def _wait_for(self, future: Future[Executable]) -> None:
        """Use what is being compiled, or raise its error. Ctrl-C ends the waiting, and what was
        compiled is taken over by the next call."""
        try:
            executable = self._awaited(future)
        except Exception:
            self.future = None
            raise
        self.executable, self.future = executable, None

    def _awaited(self, future: Future[Executable]) -> Executable:
        return waiting.result(future, lambda: f"compiling {self.size} ops ({self.line})")

    def improve(self, wait: bool = False) -> None:
        """Take over a faster executable that was made beside the runs; with `wait` make it now."""
        if self.executable is not None and self.executable.improve(wait):
            self.called.clear()

    def _take_over(self, future: Future[Executable]) -> None:
        """Use what was compiled in the background from now on."""
        with self.lock:
            if self.future is not future:  # another thread did
                return
            error = future.exception()
            if error is None:
                self.executable = future.result()
            else:
                self.failed = True
            self.future = None
        if error is not None:
            stats.warn_compile_failed(self.graph, error)

    def _counted(self, job: stats.CompileJob) -> Executable:
        heap.probe(_COMPILER)
        if self.place.is_cpu_place():
            self.place.device()  # importing JAX and making its client are counted by themselves
        with job:
            executable = self._compiled()
            job.kernels = Counter(executable.kernels)
        self.compile_seconds = job.seconds
        worth.learn(self, job.seconds)
        return executable

    def _compiled(self) -> Executable:
        return self.place.backend().compile(
            self.graph,
            place=self.place,
            fixed=self.fixed,
            donated=self.donated,
            shardings=self.shardings,
            watched=self.watched,
        )

    # --- running --------------------------------------------------------------------------

    def bring(self, buffers: list[Any], values: Sequence[Value], everything: bool = False) -> None:
        """Move what the executable cannot take, and arrays that stay alive, to the device: once,
        and not in every run. `buffers` are those of `values`; both get the new ones. With
        `everything` small and donated arrays move, too."""
        executable, donated = self.executable, self.donated
        for i, buf in enumerate(buffers):
            if buf.__class__ is np.ndarray:
                # A run would copy all that it overwrites before the first is freed.
                moves = everything or buf.nbytes > (
                    thresholds.HEAVY if i in donated else thresholds.MOVED
                )
                if moves and not place.is_kept_on_host(buf):
                    if buf.dtype.kind in "iu":
                        values[i].host = buf
                    buffers[i] = values[i].buf = executable.put(buf)
        if config.several_backends:
            for i, buf in enumerate(buffers):
                if not executable.takes(buf):
                    buffers[i] = values[i].buf = executable.put(np.asarray(buf))

    def call(self, arguments: Sequence[Any], deliver: Deliver) -> None:
        """Run once.

        `deliver` gets an iterator over one item, the list of results; asking for it is what runs
        the program. It takes the item and puts the results away in native code, so that Ctrl-C
        comes before the run or after it: what a run overwrites is never lost.
        """
        executable = self.executable
        for watch in checks.starting:
            watch(executable)
        results: Any = None
        self.improve()
        try:
            if self.guarded:
                executable.wait_for(arguments)
                if self.runs < WARM and self.size >= _LARGE:
                    heap.release()
                executable.reserve()
            if self.fallible:
                results = executable.call_and_wait(arguments)
            else:
                self._call(arguments, deliver)
        except BiremeError:  # a backend that looks at requirements itself says what is wrong
            raise
        except Exception as e:
            raise self.explained(e) from e
        if self.fallible:
            deliver(iter((self._proved(results),)))
        self.runs += 1

    def _call(self, arguments: Sequence[Any], deliver: Deliver) -> None:
        call = self.executable.call
        if not self.donated:
            deliver(starmap(call, (arguments,)))
            return
        # JAX has native code for arguments of these types once it was called with such.
        types = tuple(map(type, arguments))
        if types in self.called:
            deliver(starmap(call, (arguments,)))
        else:
            uninterrupted.run(lambda: deliver(starmap(call, (arguments,))))
            self.called.add(types)

    def results(self, *arguments: Any) -> list[Any]:
        """`call` for users who hold the arguments themselves."""
        delivered: list[list[Any]] = []
        self.call(arguments, delivered.extend)
        return delivered[0]

    def _proved(self, results: list[Any]) -> list[Any]:
        """The results without the evidence that was asked for, which has been looked at."""
        if not self.watched or self.place.backend().raises:
            return results
        *results, evidence = results
        proofs.look(self.requirements, self.watched, evidence)
        return results

    def explained(self, error: Exception) -> Exception:
        """What a run raised, in terms of the user's code."""
        raised = jax_door.callback_error()
        if raised is not None:
            return raised
        text = str(error)
        first = self.nodes[0].call.source if self.nodes else "unknown"
        last = self.nodes[-1].call.source if self.nodes else "unknown"
        where = f"the operations recorded from {first} to {last} ({len(self.nodes)} ops)"
        exhausted = "RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower()
        if exhausted or isinstance(error, MemoryError):
            heaviest = max(
                self.nodes, key=lambda n: max(o.size * o.dtype.itemsize for o in n.call.outs)
            )
            return OutOfMemory(
                f"the device ran out of memory while running {where}. The largest single result is "
                f"[{heaviest.call.op.name}] {heaviest.call.outs[0]}, recorded at "
                f"{heaviest.call.source}. Use a smaller batch, recompute, or AMP. {text[:300]}"
            )
        return ExecutionError(f"running {where} failed: {text[:2000]}")
