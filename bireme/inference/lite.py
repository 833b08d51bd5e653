"""The engine of Bireme Lite: the runtime in lite/ on this machine."""

from __future__ import annotations

import io

import numpy as np

from bireme.core.errors import BiremeError
from bireme.inference.config import Config
from bireme.inference.engines import Engine, EngineUnavailable, Runner
from bireme.inference.net import Prepared

_ALIGN = 64


class LiteEngine(Engine):
    """The graph as a model of Bireme Lite; one planned copy for each predictor."""

    name = "lite"

    def __init__(self, prepared: Prepared, options: Config):
        super().__init__(prepared, options)
        if not options._place.is_cpu_place():
            raise EngineUnavailable("the engine 'lite' computes on the CPU")
        from bireme.lite.exporter import write_graph

        outputs = [f"output_{i}" for i in range(len(prepared.graph.outputs))]
        inputs = [f"input_{i}" for i in range(len(prepared.types))]
        file = io.BytesIO()
        try:
            write_graph(prepared.graph, file, inputs, outputs)
            self._contents = _aligned(file.getbuffer())
            self.runner()  # this library may lack something
        except BiremeError as e:
            raise EngineUnavailable(f"the engine 'lite' cannot run the model: {e}") from None

    def runner(self) -> Runner:
        from bireme.lite.runtime import Model

        threads = self._options.cpu_math_library_num_threads()
        return Model(self._contents, threads=threads).run


def _aligned(contents: memoryview) -> np.ndarray:
    """The bytes where the runtime uses them as they lie."""
    room = np.empty(len(contents) + _ALIGN, np.uint8)
    first = -room.ctypes.data % _ALIGN
    made = room[first : first + len(contents)]
    made[:] = contents
    return made
