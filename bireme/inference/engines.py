"""What runs a prepared graph, and the engine of our own: XLA."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from bireme import passes
from bireme.backends import get_backend
from bireme.core import dims, jax_door, kernels
from bireme.core import place as places
from bireme.core.aval import Aval, aval_of
from bireme.core.errors import BiremeError
from bireme.core.graph import Graph
from bireme.core.rewrite import specialize
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
        self._lock = threading.Lock()
        self._programs: OrderedDict[tuple[Aval, ...], Any] = OrderedDict()
        jax = jax_door.jax()
        if options._threads_chosen:
            jax_door.limit_cpu_threads(options.cpu_math_library_num_threads())
        self._device = options._place.device()
        self._graph = self._fused(prepared.graph)
        count = len(prepared.types)
        weights = {i: np.asarray(self._graph.constants[i]) for i in range(count, self._inputs)}
        # The smallest are built into the programs, where XLA folds them and a call is spared
        # passing them; large ones are shared.
        self._fixed = _smallest(weights, BUILT_IN)
        self._weights = [
            jax.device_put(w, self._device) for i, w in weights.items() if i not in self._fixed
        ]
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
        if self._device.platform != "cpu" or not native.available():
            return graph
        graph = passes.run(graph, [*chosen, "fold_constants"])
        return passes.run(cpu_packed.pack(graph), ["dead_code"])

    def runner(self) -> Runner:
        return self._run

    def _run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        program = self._program(tuple([aval_of(a) for a in arrays]))
        outs = program.call(*arrays, *self._weights)
        return [np.asarray(o) for o in outs]

    def _program(self, types: tuple[Aval, ...]) -> Any:
        with self._lock:
            found = self._programs.get(types)
            if found is not None:
                self._programs.move_to_end(types)
                return found
        made = self._compile(types)
        with self._lock:
            self._programs[types] = made
            while len(self._programs) > self._options._max_programs:
                self._programs.popitem(last=False)
        return made

    def _compile(self, types: tuple[Aval, ...]) -> Any:
        graph = specialize(self._graph, dims.solve(self._prepared.types, list(types)))
        plain = nullcontext() if self._options._cpu_kernels else kernels.disabled()
        with _COMPILING, _default_place(self._options._place), plain:
            self.compiled += 1
            return get_backend("xla").compile_fixed(graph, self._fixed)

    def shrink(self) -> None:
        with self._lock:
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


# The default place and the kernel switches are the process's: one compilation at a time.
_COMPILING = threading.RLock()


@contextmanager
def _default_place(place: places.Place) -> Iterator[None]:
    before = places.default_place()
    if place == before:
        yield
        return
    places.set_default_place(place)
    try:
        yield
    finally:
        places.set_default_place(before)
