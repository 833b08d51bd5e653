"""What runs a prepared graph, and the engine of our own: XLA."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import numpy as np

from bireme import passes
from bireme.capture import symbols
from bireme.capture.rewrite import specialize
from bireme.core import kernels
from bireme.core.aval import Aval, aval_of
from bireme.core.cache import BoundedCache
from bireme.core.errors import BiremeError
from bireme.core.graph import Graph
from bireme.core.program import Program
from bireme.host import jax_door
from bireme.inference.config import ENGINE_PASSES, Config
from bireme.inference.net import Prepared
from bireme.kernels import cpu_packed, native

# Results for inputs. They may lie in memory that the next call overwrites.
Runner = Callable[[Sequence[np.ndarray]], list[np.ndarray]]

BUILT_IN = 1 << 20  # bytes of weights in each program; a MiB takes 50 ms to compile


class EngineUnavailable(BiremeError, RuntimeError):
    """An engine that is not installed, or that cannot run this model."""


class Engine(ABC):
    """Runs one prepared graph, for any number of predictors and threads at once."""

    name: str

    def __init__(self, prepared: Prepared, options: Config):
        self._prepared = prepared
        self._options = options

    @abstractmethod
    def runner(self) -> Runner:
        """What runs the graph for one predictor, which makes one call at a time."""

    def shrink(self) -> None:
        """Give back what can be made again: nothing, unless an engine says otherwise."""
        return


class XlaEngine(Engine):
    """One compiled program per set of input shapes; those unused for longest are dropped."""

    name = "xla"

    def __init__(self, prepared: Prepared, options: Config):
        super().__init__(prepared, options)
        self._programs: BoundedCache[tuple[Aval, ...], Program] = BoundedCache(
            lambda: options._max_programs, "call config.set_onednn_cache_capacity()"
        )
        if options._threads_chosen:
            jax_door.limit_cpu_threads(options.cpu_math_library_num_threads())
        self._place = options._place
        self._place.check()
        self._graph = self._fused(prepared.graph)
        count = len(prepared.types)
        weights = {i: np.asarray(self._graph.constants[i]) for i in range(count, self._inputs)}
        # The smallest are built into the programs, where XLA folds them and a call is spared
        # passing them; large ones are shared.
        self._fixed = _smallest(weights, BUILT_IN)
        self._weights = [self._place.put(w) for i, w in weights.items() if i not in self._fixed]
        self.compiled = 0

    @property
    def _inputs(self) -> int:
        return len(self._graph.inputs)

    def _fused(self, graph: Graph) -> Graph:
        """The graph for this machine's kernels, with weights packed once."""
        options = self._options
        chosen = [n for n in options.pass_builder().all_passes() if n in ENGINE_PASSES]
        if not (chosen and options.ir_optim() and options._cpu_kernels):
            return graph
        if not (self._place.is_cpu_place() and native.wanted() is not None):
            return graph
        graph = passes.run(graph, [*chosen, "fold_constants"])
        return passes.run(cpu_packed.pack(graph), ["dead_code"])

    def runner(self) -> Runner:
        return self._run

    def _run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        program = self._program(tuple([aval_of(a) for a in arrays]))
        outs = program.results(*arrays, *self._weights)
        return [np.asarray(o) for o in outs]

    def _program(self, types: tuple[Aval, ...]) -> Program:
        found = self._programs.get(types)
        return self._programs.add(types, self._compile(types)) if found is None else found

    def _compile(self, types: tuple[Aval, ...]) -> Program:
        graph = specialize(self._graph, symbols.solve(self._prepared.types, list(types)))
        plain = nullcontext() if self._options._cpu_kernels else kernels.disabled()
        with _COMPILING, plain:
            self.compiled += 1
            program = Program(graph, self._place, fixed=self._fixed, guarded=False)
            program.compile_uncounted()
            return program

    def shrink(self) -> None:
        self._programs.clear()


def _smallest(weights: dict[int, np.ndarray], limit: int) -> dict[int, np.ndarray]:
    """As many of the smallest as have this many bytes together."""
    found = {}
    for i, weight in sorted(weights.items(), key=lambda pair: pair[1].nbytes):
        limit -= weight.nbytes
        if limit < 0:
            break
        found[i] = weight
    return found


_COMPILING = threading.RLock()  # the kernel switches are the process's: one compilation at a time
