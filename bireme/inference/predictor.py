"""The predictor: a model ready to run."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import bireme
from bireme.convert.paddle.model import LOD_SUFFIX
from bireme.core.aval import Aval, aval_of
from bireme.core.cache import BoundedCache
from bireme.core.errors import BiremeError, InvalidArgument
from bireme.host import heap
from bireme.inference.auto import fastest
from bireme.inference.config import Config
from bireme.inference.engines import Engine, Runner
from bireme.inference.handle import Tensor
from bireme.inference.kinds import DataType, data_type
from bireme.inference.net import MAX_GRAPHS, Net, Prepared
from bireme.inference.shapes import MAX_SHAPES, add_shapes
from bireme.inference.sized import create_engine
from bireme.inference.watching import Hook, run_watched


class UnknownHandle(BiremeError, RuntimeError):
    """A name that is no input or result of the model."""


class _Shared:
    """The model and the engines that a predictor and its clones share."""

    def __init__(self, config: Config):
        self.options = config
        self.net = Net(config)
        self.engines: BoundedCache[int, tuple[Prepared, Engine]] = BoundedCache(MAX_GRAPHS)
        self.lock = threading.Lock()
        self.known: BoundedCache[tuple[Aval, ...], Engine] = BoundedCache(MAX_SHAPES)

    def engine(self, arrays: list[np.ndarray]) -> Engine:
        types = tuple([aval_of(a) for a in arrays])
        known = self.known.get(types)
        return self._find(types, arrays) if known is None else known

    def _find(self, types: tuple[Aval, ...], arrays: list[np.ndarray]) -> Engine:
        prepared = self.net.prepared(types)
        with self.lock:
            found = self.engines.get(id(prepared))
            if found is None:
                name = self.options.engine()
                if name == "auto":
                    engine = fastest(prepared, self.options, arrays)
                else:
                    engine = create_engine(name, prepared, self.options, arrays)
                found = self.engines.add(id(prepared), (prepared, engine))
            if types not in self.known:
                self.known.add(types, found[1])
                if self.options.shape_range_info_collected():
                    names = self.net.inputs
                    shapes = {n: list(a.shape) for n, a in zip(names, arrays, strict=True)}
                    add_shapes(self.options.shape_range_info_path(), shapes)
        return found[1]


class Predictor:
    """Runs a model. One thread at a time uses a predictor; `clone()` makes one for another
    thread that shares the weights and the compiled programs."""

    def __init__(self, config: Config, _shared: _Shared | None = None):
        if not isinstance(config, Config):
            raise InvalidArgument(
                f"a predictor is made from an inference.Config. Received: {type(config).__name__}"
            )
        self._shared = _shared or _Shared(config)
        net = self._shared.net
        declared = dict(zip(net.inputs, net.types, strict=True))
        self._declared = {name: declared[name] for name in net.given}
        self._inputs = {name: Tensor(name, t) for name, t in self._declared.items()}
        self._outputs = {name: Tensor(name, None) for name in net.outputs}
        self._runners: BoundedCache[Engine, Runner] = BoundedCache(MAX_GRAPHS)
        self._stages: dict[str, list[float]] = {}
        self._before: list[Hook] = []
        self._after: list[Hook] = []
        if _shared is None:
            for shapes in config._warm_up:
                self._warm_up(shapes, declared)

    def _warm_up(self, shapes: dict[str, Sequence[int]], declared: dict[str, Aval]) -> None:
        missing = [n for n in declared if n not in shapes]
        if missing:
            raise InvalidArgument(f"the warm-up names no shape for {', '.join(missing)}")
        arrays = []
        for name, t in declared.items():
            array = np.zeros([int(d) for d in shapes[name]], t.dtype.numpy)
            if name.endswith(LOD_SUFFIX):
                rows = int(shapes[name.removesuffix(LOD_SUFFIX)][0])
                array = np.linspace(0, rows, array.size).astype(np.int64)
            arrays.append(array)
        self._runner(arrays)(arrays)

    def _runner(self, arrays: list[np.ndarray]) -> Runner:
        engine = self._shared.engine(arrays)
        found = self._runners.get(engine)
        if found is None:
            found = self._runners.add(engine, engine.runner())
        return found

    def get_input_names(self) -> list[str]:
        return list(self._inputs)

    def get_output_names(self) -> list[str]:
        return list(self._outputs)

    def get_input_tensor_shape(self) -> dict[str, list[int]]:
        """The declared shape of each input; an open size is -1."""
        return {
            name: [d if type(d) is int else -1 for d in aval.shape]
            for name, aval in self._declared.items()
        }

    def get_input_types(self) -> dict[str, DataType]:
        """The declared element type of each input."""
        return {name: data_type(aval.dtype) for name, aval in self._declared.items()}

    def get_input_handle(self, name: str) -> Tensor:
        """The handle of the input of this name."""
        return _named(self._inputs, name, "input")

    def get_output_handle(self, name: str) -> Tensor:
        """The handle of the result of this name."""
        return _named(self._outputs, name, "result")

    def run(self, inputs: Sequence[Any] | None = None) -> list[Any] | None:
        """Run the model on what the input handles hold, or on tensors given in order."""
        if inputs is not None:
            if len(inputs) != len(self._inputs):
                raise InvalidArgument(
                    f"this model takes {len(self._inputs)} inputs: {', '.join(self._inputs)}. "
                    f"Received: {len(inputs)}"
                )
            for handle, tensor in zip(self._inputs.values(), inputs, strict=True):
                handle.share_external_data(tensor)
        with self._stage("prepare"):
            arrays = self._arrays()
            watched = bool(self._before or self._after)
            runner = None if watched else self._runner(arrays)
            for handle in self._outputs.values():
                handle._array = None  # it may lie where the new results will
        with self._stage("run"):
            if runner is None:
                prepared = self._shared.net.prepared([aval_of(a) for a in arrays])
                results = run_watched(prepared, arrays, self._before, self._after)
            else:
                results = runner(arrays)
        net = self._shared.net
        for i, (handle, array) in enumerate(zip(self._outputs.values(), results, strict=True)):
            handle._array = array
            source = net.output_lod(i)
            handle._lod = self._inputs[source].lod() if source is not None else []
        if inputs is None:
            return None
        if self._shared.options._memory_optim:
            for handle in self._inputs.values():
                handle._forget()
        return [bireme.to_tensor(a) for a in results]

    def _arrays(self) -> list[np.ndarray]:
        arrays = []
        for name in self._shared.net.inputs:
            plain = name.removesuffix(LOD_SUFFIX)
            handle = self._inputs[plain]
            array = handle._array
            if array is None:
                raise InvalidArgument(
                    f"the input '{plain}' is not set; use "
                    f"predictor.get_input_handle('{plain}').copy_from_cpu(...)"
                )
            if name != plain:
                array = _offsets(handle, array.shape[0])
            arrays.append(array)
        return arrays

    def register_input_hook(self, hook: Hook) -> None:
        """Call `hook(op, name, tensor)` for every input of every op in each run.

        With hooks the model runs op by op in NumPy, slowly: they are for debugging. They see the
        graph after its passes; `Config.switch_ir_optim(False)` shows the model's own.
        """
        self._before.append(hook)

    def register_output_hook(self, hook: Hook) -> None:
        """The same for every result of every op."""
        self._after.append(hook)

    def clone(self, *stream: Any) -> Predictor:
        """A predictor with handles of its own that shares all else."""
        if stream:
            raise InvalidArgument("XLA manages its own streams; call clone() without one")
        return Predictor(self._shared.options, self._shared)

    def clear_intermediate_tensor(self) -> None:
        """Forget the inputs and results that the handles hold."""
        for handle in (*self._inputs.values(), *self._outputs.values()):
            handle._forget()

    def try_shrink_memory(self) -> int:
        """Drop compiled programs and give free memory back; they are compiled again when needed.

        Returns how many engines were shrunk.
        """
        with self._shared.lock:
            engines = [engine for _, engine in self._shared.engines.values()]
        for engine in engines:
            engine.shrink()
        self._runners.clear()
        heap.release()
        return len(engines)

    def engine_name(self) -> str | None:
        """The engine that runs the model; None before the first run."""
        for _, engine in self._shared.engines.values():
            return engine.name
        return None

    def pass_report(self) -> str:
        """What each pass did to the model's graph, as a table; filled by the first run."""
        return str(self._shared.net.report)

    def profile_report(self) -> str:
        """How long the stages of the runs took (see Config.enable_profile)."""
        if not self._stages:
            return "no runs were measured: call config.enable_profile() first"
        lines = [f"{'stage':<10}{'runs':>6}{'total ms':>12}{'mean ms':>12}{'max ms':>12}"]
        for name, times in self._stages.items():
            total = sum(times) * 1e3
            lines.append(
                f"{name:<10}{len(times):>6}{total:>12.3f}{total / len(times):>12.3f}"
                f"{max(times) * 1e3:>12.3f}"
            )
        return "\n".join(lines)

    def _stage(self, name: str) -> _Stage:
        return _Stage(self._stages if self._shared.options._profile else None, name)


class _Stage:
    """Measures a `with` block, if anybody wants to know."""

    __slots__ = ("_name", "_start", "_times")

    def __init__(self, times: dict[str, list[float]] | None, name: str):
        self._times = times
        self._name = name
        self._start = 0.0

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *error: Any) -> None:
        if self._times is not None:
            self._times.setdefault(self._name, []).append(time.perf_counter() - self._start)


def _offsets(handle: Tensor, rows: int) -> np.ndarray:
    """Where the sequences of an input start: its last LoD level, or one sequence of all rows."""
    level = handle.lod()[-1] if handle.lod() else [0, rows]
    if level[-1] != rows:
        raise InvalidArgument(
            f"the LoD of '{handle.name}' ends at {level[-1]}, and the input has {rows} rows"
        )
    return np.asarray(level, np.int64)


def _named(handles: dict[str, Tensor], name: str, what: str) -> Tensor:
    found = handles.get(name)
    if found is None:
        raise UnknownHandle(f"there is no {what} {name!r}. There are: {', '.join(handles)}")
    return found


def create_predictor(config: Config) -> Predictor:
    """A predictor for the model and settings of `config`."""
    return Predictor(config)


class PredictorPool:
    """`size` predictors that share one model, one per thread."""

    def __init__(self, config: Config, size: int = 1):
        if size < 1:
            raise InvalidArgument(f"a pool holds at least one predictor. Received: size {size}")
        first = create_predictor(config)
        self._predictors = [first, *(first.clone() for _ in range(size - 1))]

    def retrieve(self, idx: int) -> Predictor:
        """The predictor numbered `idx`."""
        if not 0 <= idx < len(self._predictors):
            raise InvalidArgument(
                f"this pool holds predictors 0 to {len(self._predictors) - 1}. Received: {idx}"
            )
        return self._predictors[idx]
