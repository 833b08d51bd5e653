"""Engines for graphs with open sizes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from bireme.core import dims
from bireme.core.aval import Aval, aval_of
from bireme.core.rewrite import specialize
from bireme.inference.config import Config
from bireme.inference.engines import Engine, EngineUnavailable, Runner, XlaEngine
from bireme.inference.exported import OnnxRuntimeEngine, OpenVinoEngine
from bireme.inference.net import Prepared

# Sizes that get an engine of their own at once, each with its own copy of the weights.
OWN_SIZES = 4


class SizedEngine(Engine):
    """The first sizes have each an engine made for them, which is faster (PP-OCR's detector: 33
    instead of 41 ms in OpenVINO); the others share one that takes them all. Where there cannot be
    such a one, every size gets its own, and those unused for longest are dropped."""

    def __init__(self, kind: type[Engine], prepared: Prepared, options: Config):
        super().__init__(prepared, options)
        self.name = kind.name
        self._kind = kind
        self._lock = threading.Lock()
        self._sized: OrderedDict[tuple[Aval, ...], Engine] = OrderedDict()
        self._open: Engine | None = None
        self._only_sized = False

    def runner(self) -> Runner:
        made: dict[Engine, Runner] = {}

        def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            engine = self.engine(arrays)
            found = made.get(engine)
            if found is None:
                for old in [e for e in made if not self._has(e)]:
                    del made[old]
                found = made[engine] = engine.runner()
            return found(arrays)

        return run

    def engine(self, arrays: Sequence[np.ndarray]) -> Engine:
        """The engine for inputs of these shapes."""
        types = tuple([aval_of(a) for a in arrays])
        with self._lock:
            found = self._sized.get(types)
            if found is not None:
                self._sized.move_to_end(types)
                return found
            most = self._options._max_programs
            if len(self._sized) >= min(OWN_SIZES, most) and not self._only_sized:
                try:
                    if self._open is None:
                        self._open = self._kind(self._prepared, self._options)
                    return self._open
                except EngineUnavailable:
                    self._only_sized = True
            sizes = dims.solve(self._prepared.types, list(types))
            sized = Prepared(specialize(self._prepared.graph, sizes), list(types))
            found = self._sized[types] = self._kind(sized, self._options)
            while len(self._sized) > most:
                self._sized.popitem(last=False)
        return found

    def _has(self, engine: Engine) -> bool:
        return engine is self._open or engine in self._sized.values()

    def shrink(self) -> None:
        with self._lock:
            self._sized.clear()
            self._open = None


def create_engine(
    name: str, prepared: Prepared, options: Config, arrays: Sequence[np.ndarray]
) -> Engine:
    """The engine `name` for a graph, ready for these inputs."""
    kind = ENGINES[name]
    if kind is XlaEngine or all(t.is_static for t in prepared.types):
        return kind(prepared, options)  # XLA compiles a program for each size
    made = SizedEngine(kind, prepared, options)
    made.engine(arrays)
    return made


ENGINES: dict[str, type[Engine]] = {
    e.name: e for e in (XlaEngine, OnnxRuntimeEngine, OpenVinoEngine)
}
