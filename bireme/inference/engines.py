"""What runs a prepared graph: XLA, onnxruntime or OpenVINO."""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
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

BUILT_IN = 1 << 20  # bytes of weights in each program; a MiB takes 50 ms to compile


class EngineUnavailable(BiremeError, RuntimeError):
    """An engine that is not installed, or that cannot run this model."""


class Engine(ABC):
    """Runs one prepared graph. Several threads may call `run` at once."""

    name: str

    def __init__(self, prepared: Prepared, options: Config):
        self._prepared = prepared
        self._options = options

    @abstractmethod
    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results for these inputs."""

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

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
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


def _onnx_model(prepared: Prepared) -> bytes:
    try:
        from bireme.convert.onnx.exporter import graph_to_onnx

        return graph_to_onnx(prepared.graph).SerializeToString()
    except (BiremeError, KeyError, ValueError) as e:
        raise EngineUnavailable(f"the model cannot be written as ONNX: {e}") from None


class OnnxRuntimeEngine(Engine):
    """The model exported to ONNX, in onnxruntime."""

    name = "onnxruntime"

    def __init__(self, prepared: Prepared, options: Config):
        try:
            ort: Any = import_module("onnxruntime")
        except ImportError:
            raise EngineUnavailable(
                "onnxruntime is not installed: pip install 'bireme[onnx]'"
            ) from None
        super().__init__(prepared, options)
        settings = ort.SessionOptions()
        settings.log_severity_level = 3
        settings.intra_op_num_threads = options.cpu_math_library_num_threads()
        model = _onnx_model(prepared)
        try:
            self._session = ort.InferenceSession(model, settings, ["CPUExecutionProvider"])
        except Exception as e:  # its errors share no base class
            raise EngineUnavailable(f"onnxruntime cannot load the model: {e}") from None
        self._names = [i.name for i in self._session.get_inputs()]

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return list(self._session.run(None, dict(zip(self._names, arrays, strict=True))))


def _openvino() -> Any:
    """OpenVINO without its telemetry, which forks this process to report its use: a fork of a
    process with XLA's threads may never end. OpenVINO has a stand-in for where it is missing."""
    silent = "openvino" not in sys.modules and "openvino_telemetry" not in sys.modules
    if silent:
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    try:
        return import_module("openvino")
    finally:
        if silent:
            del sys.modules["openvino_telemetry"]


class OpenVinoEngine(Engine):
    """The model exported to ONNX, compiled by OpenVINO."""

    name = "openvino"

    def __init__(self, prepared: Prepared, options: Config):
        try:
            ov: Any = _openvino()
        except ImportError:
            raise EngineUnavailable(
                "openvino is not installed: pip install 'bireme[openvino]'"
            ) from None
        super().__init__(prepared, options)
        model = _onnx_model(prepared)
        settings: dict[str, Any] = {
            "INFERENCE_NUM_THREADS": options.cpu_math_library_num_threads(),
            "PERFORMANCE_HINT": "LATENCY",
        }
        if not options._precision:
            settings["INFERENCE_PRECISION_HINT"] = "f32"
        try:
            core = ov.Core()
            self._compiled = core.compile_model(core.read_model(model), "CPU", settings)
        except Exception as e:  # its errors are RuntimeErrors of many kinds
            raise EngineUnavailable(f"OpenVINO cannot load the model: {e}") from None
        self._local = threading.local()

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        request = getattr(self._local, "request", None)
        if request is None:
            request = self._local.request = self._compiled.create_infer_request()
        request.infer(list(arrays), share_inputs=True, share_outputs=True)
        return [np.array(t.data) for t in request.output_tensors]


class PerSizeEngine(Engine):
    """Another engine for every set of input shapes: for graphs whose open sizes it cannot take."""

    def __init__(self, kind: type[Engine], prepared: Prepared, options: Config):
        super().__init__(prepared, options)
        self.name = kind.name
        self._kind = kind
        self._lock = threading.Lock()
        self._engines: OrderedDict[tuple[Aval, ...], Engine] = OrderedDict()

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self.engine(arrays).run(arrays)

    def engine(self, arrays: Sequence[np.ndarray]) -> Engine:
        """The engine for inputs of these shapes."""
        types = tuple([aval_of(a) for a in arrays])
        with self._lock:
            found = self._engines.get(types)
            if found is None:
                sizes = dims.solve(self._prepared.types, list(types))
                sized = Prepared(specialize(self._prepared.graph, sizes), list(types))
                found = self._engines[types] = self._kind(sized, self._options)
                while len(self._engines) > self._options._max_programs:
                    self._engines.popitem(last=False)
            self._engines.move_to_end(types)
        return found

    def shrink(self) -> None:
        with self._lock:
            self._engines.clear()


def create_engine(
    name: str, prepared: Prepared, options: Config, arrays: Sequence[np.ndarray]
) -> Engine:
    """The engine `name` for a graph: one for all sizes, or one per size where that fails."""
    kind = ENGINES[name]
    try:
        return kind(prepared, options)
    except EngineUnavailable:
        if all(t.is_static for t in prepared.types):
            raise
    made = PerSizeEngine(kind, prepared, options)
    made.engine(arrays)
    return made


ENGINES: dict[str, type[Engine]] = {
    e.name: e for e in (XlaEngine, OnnxRuntimeEngine, OpenVinoEngine)
}
