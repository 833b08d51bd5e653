"""Engines for graphs with dynamic shapes."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from bireme.capture import symbols
from bireme.capture.rewrite import specialize
from bireme.core.aval import Aval, aval_of
from bireme.core.cache import BoundedCache
from bireme.inference.config import Config
from bireme.inference.engines import Engine, EngineUnavailable, Runner, XlaEngine
from bireme.inference.exported import OnnxRuntimeEngine, OpenVinoEngine
from bireme.inference.lite import LiteEngine
from bireme.inference.net import Prepared

# Sizes that get an engine of their own at once, each with its own copy of the weights.
OWN_SIZES = 4


class SizedEngine(Engine):
    """The first sizes each get an engine of their own, which is faster (PP-OCR's detector: 33
    instead of 41 ms in OpenVINO); the others share one with dynamic shapes. If no such engine
    exists, every size gets its own, and the least recently used ones are evicted."""

    def __init__(self, kind: type[Engine], prepared: Prepared, options: Config):
        super().__init__(prepared, options)
        self.name = kind.name
        self._kind = kind
        self._lock = threading.Lock()
        self._sized: BoundedCache[tuple[Aval, ...], Engine] = BoundedCache(
            lambda: options._max_programs
        )
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
                return found
            own = min(OWN_SIZES, self._options._max_programs)
            if len(self._sized) >= own and not self._only_sized:
                try:
                    if self._open is None:
                        self._open = self._kind(self._prepared, self._options)
                    return self._open
                except EngineUnavailable:
                    self._only_sized = True
            sizes = symbols.solve(self._prepared.types, list(types))
            sized = Prepared(specialize(self._prepared.graph, sizes), list(types))
            return self._sized.add(types, self._kind(sized, self._options))

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
    if kind in (XlaEngine, LiteEngine) or all(t.is_static for t in prepared.types):
        return kind(prepared, options)  # these two plan for each size themselves
    made = SizedEngine(kind, prepared, options)
    made.engine(arrays)
    return made


ENGINES: dict[str, type[Engine]] = {
    e.name: e for e in (XlaEngine, LiteEngine, OnnxRuntimeEngine, OpenVinoEngine)
}
