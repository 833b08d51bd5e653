"""Inference models: a program pruned to its outputs, with its parameters.

The files are those of jit.save (`path.json` and `path.safetensors`), so either function reads the
other's files. Readers of foreign files register themselves in `READERS`.
"""

from __future__ import annotations

import io as bytes_io
import os
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme import passes
from bireme.capture import tree
from bireme.capture.graph_io import GraphFileError
from bireme.convert.paddle.model import (
    PaddleModel,
    read_as_layer,
    read_buffers,
    read_without_weights,
)
from bireme.convert.paddle.params import read_combined
from bireme.convert.paddle.program import ModelFileError, Var
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Parameter, Tensor, constant
from bireme.io import atomic, safetensors_file
from bireme.io.foreign import Zip, read_whole
from bireme.jit import artifact as artifacts
from bireme.jit.interpret import run_graph
from bireme.static.copying import copy_program
from bireme.static.executor import Executor, as_program, make_plan
from bireme.static.host_calls import Cut
from bireme.static.program import Program, fitting
from bireme.static.recorder import ProgramTrace, declare_data, recording
from bireme.static.scope import Scope, global_scope

if TYPE_CHECKING:
    from bireme.nn.layer.layer import Layer


# reader(path_prefix, model_filename, params_filename) gives a Layer with `input_specs` (its
# InputSpecs, with names), or None if the files are not its own. Asked in order, ours last.
READERS: list[Callable[[str, str | None, str | None], Any]] = [read_as_layer]

_NAME, _ENDINGS = "program", (".json", ".safetensors")
_ZIP = b"PK"  # how bytes of serialize_program begin
_SAVING = {"clip_extra", "legacy_format", "program", "readable", "skip_prune_program", "trainable"}


def normalize_program(
    program: Program,
    feed_vars: Tensor | Sequence[Tensor],
    fetch_vars: Tensor | Sequence[Tensor],
    **kwargs: Any,
) -> Program:
    """A copy for inference from `feed_vars` to `fetch_vars`.

    A result may be fed, too: what computes it is left out, and its name is its own or, without
    one, `feed_name_0` (or 1, 2 …, by its place in `feed_vars`). With `skip_prune_program=True`
    ops that the results do not need stay in it.
    """
    _check_options("normalize_program", kwargs, {"skip_prune_program"})
    if not isinstance(program, Program):
        raise TypeMismatch(
            f"[normalize_program] takes a Program. Received: {type(program).__name__}"
        )
    feeds, fetches = _variables(feed_vars, "feed_vars"), _variables(fetch_vars, "fetch_vars")
    slots = [program.slot_of(v) for v in fetches]
    inputs = [_fed(program, v, i) for i, v in enumerate(feeds)]
    only = None if kwargs.get("skip_prune_program") else [*slots, *[s for s, _ in inputs]]
    made = copy_program(program, True, only, {s: name for s, name in inputs if s >= 0})
    made._fetches = [made.find_copy(v) for v in fetches]
    made._feeds = [name for _, name in inputs]
    needed = {
        v.name
        for v in make_plan(made, tuple(slots_of(made)), writing=False).inputs
        if not isinstance(v, Tensor) and v.kind == "data"
    }
    missing = sorted(needed - set(made._feeds))
    if missing:
        raise InvalidArgument(
            f"[normalize_program] the results need {missing}, which feed_vars do not list"
        )
    return made


def _fed(program: Program, what: Tensor, place: int) -> tuple[int, str]:
    """Where a program for inference is fed, and the name of that input. For a declared input
    that is its beginning, whatever the program writes into it later."""
    var = program._trace.vars.get(what._name or "")
    if var is not None and var.kind == "data":
        return program.slot_of(Tensor(var.leaf, None)), var.name
    name = what._name or f"feed_name_{place}"
    while name in program._trace.vars and name != what._name:
        name += "_"
    return program.slot_of(what), name


def slots_of(program: Program) -> list[int]:
    """Where the results of a normalised program are."""
    return [program.slot_of(v) for v in program._fetches]


def _variables(given: Any, what: str) -> list[Tensor]:
    listed = [given] if isinstance(given, Tensor) else list(given)
    for v in listed:
        if not isinstance(v, Tensor):
            raise TypeMismatch(
                f"{what} must be a variable or a list of them. Received: {type(v).__name__}"
            )
    return listed


def _check_options(function: str, given: dict[str, Any], known: set[str]) -> None:
    unknown = sorted(set(given) - known)
    if unknown:
        raise InvalidArgument(f"[{function}] does not know the option {unknown[0]!r}: {known}")
    if given.get("legacy_format"):
        raise InvalidArgument(
            f"[{function}] writes one format, which is not Paddle's: leave out legacy_format=True"
        )


def _artifact(program: Program, scope: Scope) -> artifacts.Artifact:
    """A normalised program with the contents of its state."""
    feeds = tuple([program.slot_of(name) for name in program._feeds])
    plan = make_plan(program, tuple(slots_of(program)), writing=False, feeds=feeds)
    if isinstance(plan.op, Cut):
        raise InvalidArgument(
            "the program calls functions that read their tensors (such as nonzero), or has sizes "
            "that are fed; a saved model holds neither. Save a part without them"
        )
    made = artifacts.Artifact()
    names = []
    for i, v in enumerate(plan.inputs[len(feeds) :]):
        if isinstance(v, Tensor):
            name = f"captured_{i}"
            made.state[name] = np.asarray(v._array())
        elif v.kind == "state":
            name = v.name
            made.state[name] = np.asarray(scope.tensor(name)._array())
            if isinstance(v.tensor, Parameter):
                made.trainable[name] = v.tensor.trainable
        else:
            raise InvalidArgument(
                f"[save_inference_model] the results need {v.name!r}, which is neither fed nor "
                "state of the program"
            )
        plan.op.graph.names[-1 - plan.op.given[len(feeds) + i]] = name
        names.append(name)
    graph = passes.run(plan.op.graph)
    structure = (list, *[tree.LEAF] * plan.fetched)
    types = [graph.inputs[i] for i in range(len(feeds))]
    made.programs["eval"] = artifacts.SavedProgram(
        graph, list(program._feeds), types, names, structure, plan.fetched, []
    )
    return made


def save_inference_model(
    path_prefix: str,
    feed_vars: Tensor | Sequence[Tensor],
    fetch_vars: Tensor | Sequence[Tensor],
    executor: Executor,
    **kwargs: Any,
) -> None:
    """Write what computes `fetch_vars` from `feed_vars`, with the parameters of the scope.

    `program=` names another program than the variables' own default; `trainable=False` writes
    parameters that are not trained again. There is one format, which is readable.
    """
    _check_options("save_inference_model", kwargs, _SAVING)
    program = as_program(kwargs.get("program"))
    skip = bool(kwargs.get("skip_prune_program", False))
    normal = normalize_program(program, feed_vars, fetch_vars, skip_prune_program=skip)
    folder = os.path.dirname(os.fspath(path_prefix))
    if folder:
        os.makedirs(folder, exist_ok=True)
    made = _artifact(normal, global_scope())
    if not kwargs.get("trainable", True):
        made.trainable = dict.fromkeys(made.trainable, False)
    artifacts.write(made, os.fspath(path_prefix))


def load_inference_model(path_prefix: str | None, executor: Executor, **kwargs: Any) -> list[Any]:
    """[program, names of its inputs, its results]. Parameters go to the global scope.

    Reads what `save_inference_model` or `jit.save` wrote, and what registered readers know. With
    `path_prefix=None` the two names are the contents: bytes of `serialize_program` and
    `serialize_persistables`, or of Paddle's files.
    """
    _check_options("load_inference_model", kwargs, {"model_filename", "params_filename"})
    names = kwargs.get("model_filename"), kwargs.get("params_filename")
    if path_prefix is None:
        program = _from_memory(*names)
        return [program, list(program._feeds), list(program._fetches)]
    path = os.fspath(path_prefix)
    for reader in READERS:
        layer = reader(path, *names)
        if layer is not None:
            program = program_of_layer(layer, layer.input_specs, global_scope())
            return [program, list(program._feeds), list(program._fetches)]
    program = _from_artifact(artifacts.read(path), global_scope())
    return [program, list(program._feeds), list(program._fetches)]


def _from_memory(program: Any, params: Any) -> Program:
    if not isinstance(program, bytes) or not isinstance(params, bytes):
        raise InvalidArgument(
            "[load_inference_model] without a path, model_filename and params_filename are the "
            f"bytes of the two files. Received: {type(program).__name__}, "
            f"{type(params).__name__}"
        )
    if program.startswith(_ZIP):
        made = deserialize_program(program)
        deserialize_persistables(made, params, None)
        return made
    layer = read_buffers(program, params)
    return program_of_layer(layer, layer.input_specs, global_scope())


def _from_artifact(artifact: artifacts.Artifact, scope: Scope | None) -> Program:
    entry = artifact.programs["eval"]
    made = Program()
    inputs: list[Tensor] = []
    with recording(made._trace):
        for name, t in zip(entry.arguments, entry.types, strict=True):
            inputs.append(declare_data(made._trace, name, map(_size, t.shape), t.dtype))
        for name in entry.state:
            array = artifact.state[name]
            inputs.append(_declare_state(made._trace, name, array, artifact.trainable.get(name)))
            if scope is not None:
                scope.put(name, constant(array))
        outs = run_graph(entry.graph, inputs)
    made._feeds = list(entry.arguments)
    made._fetches = outs[: entry.n_results]
    return made


def _size(dim: Any) -> Any:
    return dim if type(dim) is int else str(dim)


def _declare_state(
    into: ProgramTrace, name: str, array: np.ndarray, trainable: bool | None
) -> Tensor:
    value = into.placeholder(constant(array)._value.aval)
    made: Tensor = Tensor(value, None)
    if trainable is not None:
        made = Parameter(value, trainable, name)
    made._name, made.persistable = name, True
    return into.declare(name, "state", made).tensor


def program_of_layer(
    layer: Layer, specs: Sequence[Any], scope: Scope | None, method: str = "forward"
) -> Program:
    """A program that calls `layer` (or another of its methods) on inputs of these specs; its
    parameters go to `scope`."""
    made = Program()
    with recording(made._trace):
        named = [*layer.named_parameters(), *layer.named_buffers()]
        if isinstance(layer, PaddleModel):
            named = layer.named_weights()
        for name, tensor in named:
            made._trace.leaf(tensor._value)
            made._trace.declare(name, "state", tensor)
            if scope is not None:
                scope.put(name, constant(np.asarray(tensor._value.buf)))
        inputs = [
            declare_data(made._trace, s.name or f"x{i}", s.shape, s.dtype)
            for i, s in enumerate(specs)
        ]
        called = layer if method == "forward" else getattr(layer, method)
        outs, _ = tree.flatten(called(*inputs))
    made._feeds = [t.name for t in inputs]
    made._fetches = outs
    return made


# --- as bytes -------------------------------------------------------------------------------


def serialize_program(
    feed_vars: Tensor | Sequence[Tensor], fetch_vars: Tensor | Sequence[Tensor], **kwargs: Any
) -> bytes:
    """The program that computes `fetch_vars`, without parameters, as bytes."""
    _check_options("serialize_program", kwargs, {"legacy_format", "program"})
    program = normalize_program(as_program(kwargs.get("program")), feed_vars, fetch_vars)
    buffer = bytes_io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        artifacts.write(_artifact(program, _Blank(program)), os.path.join(folder, _NAME))
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for ending in _ENDINGS:
                archive.write(os.path.join(folder, _NAME + ending), _NAME + ending)
    return buffer.getvalue()


class _Blank(Scope):
    """A scope of zeros, for writing a program whose parameters are written elsewhere."""

    def __init__(self, program: Program):
        super().__init__()
        for name, var in program._trace.vars.items():
            if var.kind == "state":
                t = var.leaf.aval
                self.put(name, constant(np.zeros(t.shape, t.dtype.numpy)))


def serialize_persistables(
    feed_vars: Tensor | Sequence[Tensor],
    fetch_vars: Tensor | Sequence[Tensor],
    executor: Executor,
    **kwargs: Any,
) -> bytes:
    """The parameters that `fetch_vars` need, as bytes (a safetensors file)."""
    _check_options("serialize_persistables", kwargs, {"program"})
    program = normalize_program(as_program(kwargs.get("program")), feed_vars, fetch_vars)
    made = _artifact(program, global_scope())
    arrays = {k: v for k, v in made.state.items() if not k.startswith("captured_")}
    buffer = bytes_io.BytesIO()
    safetensors_file.write(arrays, {}, buffer)
    return buffer.getvalue()


def deserialize_program(data: bytes) -> Program:
    """The program that `serialize_program` wrote, ours or Paddle's."""
    if not isinstance(data, bytes | bytearray):
        raise TypeMismatch(f"[deserialize_program] takes bytes. Received: {type(data).__name__}")
    data = bytes(data)
    if not data.startswith(_ZIP):
        try:
            layer = read_without_weights(data)
        except ModelFileError as e:
            raise GraphFileError(
                f"[deserialize_program] these bytes hold no program: {e}"
            ) from None
        return program_of_layer(layer, layer.input_specs, None)
    archive = Zip(bytes_io.BytesIO(data), "deserialize_program", "the bytes")
    with tempfile.TemporaryDirectory() as folder:
        for ending in _ENDINGS:
            with open(os.path.join(folder, _NAME + ending), "wb") as file:
                file.write(archive.read(_NAME + ending))
        return _from_artifact(artifacts.read(os.path.join(folder, _NAME)), None)


def deserialize_persistables(program: Program, data: bytes, executor: Executor | None) -> None:
    """Put parameters that `serialize_persistables` wrote, ours or Paddle's, into the global scope.

    Paddle writes no names: its bytes are the program's persistable variables in order of theirs.
    """
    if not isinstance(data, bytes | bytearray):
        raise TypeMismatch(
            f"[deserialize_persistables] takes bytes. Received: {type(data).__name__}"
        )
    declared = {n: v for n, v in as_program(program)._trace.vars.items() if v.kind == "state"}
    if data[8:9] == b"{":  # after the length of a safetensors header
        arrays, _ = safetensors_file.read(
            bytes_io.BytesIO(data), len(data), "[deserialize_persistables]"
        )
    else:
        stored = [
            Var(n, v.leaf.aval.shape, v.leaf.aval.dtype.name, persistable=True)
            for n, v in declared.items()
        ]
        arrays = read_combined(memoryview(data), stored, "[deserialize_persistables]")
    found = {}
    for name, array in arrays.items():
        var = declared.get(name)
        if var is None:
            raise InvalidArgument(
                f"[deserialize_persistables] the program has no variable {name!r}"
            )
        found[name] = fitting(name, var.leaf.aval, array)
    for name, array in found.items():
        global_scope().put(name, constant(array))


def save_to_file(path: str, content: bytes) -> None:
    """Write bytes; the file appears only when it is complete."""
    if not isinstance(content, bytes | bytearray):
        raise TypeMismatch(f"[save_to_file] takes bytes. Received: {type(content).__name__}")
    with atomic.replacing(path) as file:
        file.write(content)


def load_from_file(path: str) -> bytes:
    """The bytes of a file."""
    return read_whole(path, "load_from_file")
