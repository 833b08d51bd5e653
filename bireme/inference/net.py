"""A loaded model: its graph, with weights as constants and passes applied."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bireme import passes
from bireme.capture import symbols, tree
from bireme.convert import load
from bireme.convert.paddle import PaddleModel, find_files, read_model
from bireme.convert.paddle.model import LOD_SUFFIX, read_buffers
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval, aval_of
from bireme.core.cache import BoundedCache
from bireme.core.errors import InvalidArgument
from bireme.core.graph import Graph
from bireme.inference.config import ENGINE_PASSES, Config
from bireme.inference.converted import ConvertedModel
from bireme.inference.kinds import PrecisionType
from bireme.io.atomic import replacing
from bireme.jit import artifact as artifacts
from bireme.passes.low_precision import WIDE, low_precision

MAX_GRAPHS = 64  # of a model that is captured once per size


@dataclass(slots=True, eq=False)
class Prepared:
    """A graph whose inputs are the arguments, then constants."""

    graph: Graph
    types: list[Aval]  # of the arguments; symbolic where a size is open

    @property
    def weights(self) -> list[np.ndarray]:
        return [np.asarray(self.graph.constants[i]) for i in range(len(self.types), self.count)]

    @property
    def count(self) -> int:
        return len(self.graph.inputs)


class Net:
    """A loaded model, shared by its predictors."""

    def __init__(self, config: Config):
        self._options = config
        self._lock = threading.Lock()
        self._graphs: BoundedCache[tuple[Aval, ...], Prepared] = BoundedCache(MAX_GRAPHS)
        self.report = passes.Report()
        self._source: PaddleModel | ConvertedModel | artifacts.Artifact = _load(config)
        source = self._source
        if not isinstance(source, artifacts.Artifact):
            self.inputs = source.input_names
            self.types = source.input_types
            self.outputs = source.output_names
        else:
            program = source.programs["eval"]
            self.inputs = program.arguments
            self.types = program.types
            self.outputs = _result_names(program)
        self._own_types = self.types
        if config._low_io:
            low = dt.as_dtype(config._precision_name())
            self.types = [aval(t.shape, low) if t.dtype is dt.float32 else t for t in self.types]

    @property
    def given(self) -> list[str]:
        """The inputs that a user sets; offsets of sequences come with their input."""
        return [n for n in self.inputs if not n.endswith(LOD_SUFFIX)]

    def output_lod(self, index: int) -> str | None:
        """The input whose sequences this result has."""
        source = self._source
        offsets = source.output_lod[index] if isinstance(source, PaddleModel) else None
        return None if offsets is None else offsets.removesuffix(LOD_SUFFIX)

    def prepared(self, types: Sequence[Aval]) -> Prepared:
        """The graph that takes inputs of these types."""
        with self._lock:
            for declared, known in self._graphs.items():
                if _fits(known.types, types):
                    return self._graphs.get(declared) or known
            made = self._prepare(types)
            return self._graphs.add(tuple(made.types), made)

    def forget(self) -> None:
        with self._lock:
            self._graphs.clear()

    def _prepare(self, types: Sequence[Aval]) -> Prepared:
        source = self._source
        if self._options._low_io:  # the model itself is in float32 until its passes have run
            own = self._own_types
            types = [aval(t.shape, o.dtype) for t, o in zip(types, own, strict=True)]
        if not isinstance(source, artifacts.Artifact):
            captured = source.capture(types)
            graph, count = captured.graph, len(captured.op.given) - len(captured.outer)
            weights = [np.asarray(t._array()) for t in captured.outer]
            outputs = graph.outputs[: len(captured.tracked)]
            if captured.generators:
                raise InvalidArgument("a model that draws random numbers cannot be served")
        else:
            program = source.programs["eval"]
            symbols.solve(program.types, list(types), program.arguments)
            graph, count = program.graph, len(program.arguments)
            weights = [source.state[name] for name in program.state]
            outputs = graph.outputs[: program.n_results]
            if graph.keys:
                raise InvalidArgument("a model that draws random numbers cannot be served")
        given = [i for i in range(len(graph.inputs)) if i not in graph.constants]
        constants = dict(graph.constants)
        constants.update(zip(given[count:], weights, strict=True))
        return self._optimized(graph.copy(outputs=outputs, constants=constants), given[:count])

    def _optimized(self, graph: Graph, arguments: list[int]) -> Prepared:
        options = self._options
        chosen = ["dead_code"]
        if options.ir_optim():
            chosen = [n for n in options.pass_builder().all_passes() if n not in ENGINE_PASSES]
        self.report.rows.clear()  # of the graph that was made last
        with passes.reporting(self.report):
            for number, name in enumerate(chosen):
                graph = passes.run(graph, [name])
                if options._debug:
                    _show(graph, options, f"{number}_{name}")
            if options._precision is not PrecisionType.Float32:
                kind = options._precision_name()
                if options._wide_ops or options._low_ops or options._low_io:
                    keep = (WIDE | options._wide_ops) - options._low_ops
                    graph = low_precision(graph, kind, keep, not options._low_io)
                else:
                    graph = passes.run(graph, [kind])
                graph = passes.run(graph, ["fold_constants", "dead_code"])
        graph = _arguments_first(graph)
        made = Prepared(graph, [graph.inputs[i] for i in range(len(arguments))])
        if options._save_optimized:
            folder = options._cache_dir or "."
            os.makedirs(folder, exist_ok=True)
            save_prepared(made, self, os.path.join(folder, "_optimized"))
        return made


def _arguments_first(graph: Graph) -> Graph:
    """The same graph with its constants after the other inputs."""
    order = sorted(range(len(graph.inputs)), key=lambda i: i in graph.constants)
    if order == list(range(len(order))):
        return graph
    moved = {-1 - old: -1 - new for new, old in enumerate(order)}

    def ref(r: Any) -> Any:
        return moved.get(r, r) if isinstance(r, int) else r

    return graph.copy(
        inputs=[graph.inputs[i] for i in order],
        nodes=[replace(n, args=tuple([ref(a) for a in n.args])) for n in graph.nodes],
        outputs=[ref(o) for o in graph.outputs],
        names={moved.get(r, r): name for r, name in graph.names.items()},
        constants={-1 - moved[-1 - i]: a for i, a in graph.constants.items()},
    )


def _fits(declared: list[Aval], types: Sequence[Aval]) -> bool:
    try:
        symbols.solve(declared, list(types))
    except InvalidArgument:
        return False
    return True


def _load(config: Config) -> PaddleModel | ConvertedModel | artifacts.Artifact:
    if config._buffers is not None:
        return read_buffers(*config._buffers)
    if config._use_optimized and config._cache_dir:
        saved = os.path.join(config._cache_dir, "_optimized")
        if os.path.exists(saved + ".json"):
            return artifacts.read(saved)
    path = config.prog_file() or config.model_dir()
    if not path:
        raise InvalidArgument("the config names no model: Config('model_dir')")
    files = find_files(path, config.params_file() or None)
    if files is not None:
        return read_model(files)
    stem = path.removesuffix(".json")
    if os.path.exists(f"{stem}.json"):
        return artifacts.read(stem)
    if os.path.isfile(path):
        return ConvertedModel(load(path))
    raise InvalidArgument(
        f"there is no model at {path!r}: neither Paddle's files (inference.json, .pdmodel, "
        "__model__), nor what jit.save writes, nor a file of another framework"
    )


def _result_names(program: artifacts.SavedProgram) -> list[str]:
    structure = program.structure
    if isinstance(structure, tuple) and structure and structure[0] is dict:
        keys = structure[1]
        if len(keys) == program.n_results and all(s is tree.LEAF for s in structure[2:]):
            return list(keys)
    return [f"output_{i}" for i in range(program.n_results)]


def _show(graph: Graph, options: Config, name: str) -> None:
    with replacing(os.path.join(options._cache_dir or ".", f"{name}.txt")) as file:
        file.write(str(graph).encode())


def save_prepared(made: Prepared, net: Net, path: str) -> None:
    """Write a graph as `jit.save` writes a layer."""
    graph, count = made.graph, len(made.types)
    state = {f"weight_{i}": np.asarray(graph.constants[i]) for i in range(count, made.count)}
    named = dict(graph.names)
    named.update({-1 - i: n for i, n in enumerate(net.inputs)})
    named.update({-1 - i: f"weight_{i}" for i in range(count, made.count)})
    plain = graph.copy(names=named, constants={})
    structure: Any = (dict, tuple(net.outputs), *[tree.LEAF] * len(net.outputs))
    program = artifacts.SavedProgram(
        plain, list(net.inputs), made.types, list(state), structure, len(net.outputs), []
    )
    made_of = artifacts.Artifact({"eval": program}, state, {})
    for name, array in state.items():
        if aval_of(array) is not plain.inputs[-1 - next(r for r, n in named.items() if n == name)]:
            raise InvalidArgument(f"{name} does not fit the graph")
    artifacts.write(made_of, path)
