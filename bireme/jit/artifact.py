"""Saved models: the graphs as JSON beside the weights as safetensors."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

import bireme
from bireme import passes
from bireme.capture import tree
from bireme.capture.capture import Captured
from bireme.capture.graph_io import (
    GraphFileError,
    decode_graph,
    decode_type,
    encode_graph,
    encode_type,
    input_names,
)
from bireme.capture.rewrite import GraphBuilder
from bireme.core.aval import Aval, aval_of
from bireme.core.errors import InvalidArgument
from bireme.core.graph import Graph
from bireme.core.tensor import Parameter, Tensor
from bireme.io import atomic, safetensors_file

FORMAT = "bireme.graph"
VERSION = 1
MAX_JSON = 1 << 30  # bytes


@dataclass
class SavedProgram:
    """One captured mode of a model: its graph takes `arguments`, then the tensors in `state`."""

    graph: Graph
    arguments: list[str]
    types: list[Aval]
    state: list[str]
    structure: Any
    n_results: int
    writes: list[tuple[str, int]]


@dataclass
class Artifact:
    """All that a saved model holds."""

    programs: dict[str, SavedProgram] = field(default_factory=dict)
    state: dict[str, np.ndarray] = field(default_factory=dict)
    trainable: dict[str, bool] = field(default_factory=dict)  # parameters; others are buffers

    def add(
        self,
        mode: str,
        captured: Captured,
        chosen: list[int] | None = None,
        kept: list[str] | None = None,
    ) -> None:
        """Add a captured graph, and the tensors that it uses. With `chosen`, its result is the list
        of the tensors at these positions among its results, or the only one; with `kept` it has
        only the inputs of these names."""
        graph = captured.graph
        n = len(captured.tracked)
        results, structure = graph.outputs[:n], captured.structure
        if chosen is not None:
            if not all(-n <= i < n for i in chosen):
                raise GraphFileError(
                    f"output_spec names positions among {n} results. Received: {chosen}"
                )
            results = [results[i] for i in chosen]
            structure = tree.LEAF if len(chosen) == 1 else (list, *[tree.LEAF] * len(chosen))
        keep = results + graph.outputs[n : n + len(captured.writes)]
        trimmed = graph.copy(outputs=keep)
        n_arguments = len(captured.op.given) - len(captured.outer)
        names = [
            self._own(t, name) for t, name in zip(captured.outer, captured.outer_names, strict=True)
        ]
        given = captured.op.given
        for i, name in zip(given[n_arguments:], names, strict=True):
            trimmed.names[-1 - i] = name
        by_id = {id(t): name for t, name in zip(captured.outer, names, strict=True)}
        writes = []
        for w in captured.writes:
            if not isinstance(w.target, Tensor):
                raise GraphFileError(
                    "a function that changes its argument in place cannot be saved; let it work "
                    "on x.clone() instead"
                )
            name = by_id.get(id(w.target)) or self._own(w.target, None)
            writes.append((name, w.output - n + len(results)))
        graph = passes.run(trimmed)
        arguments = [graph.names[-1 - i] for i in range(n_arguments)]
        if kept is not None:
            graph, arguments = _with_inputs(graph, arguments, kept)
        self.programs[mode] = SavedProgram(
            graph,
            arguments,
            graph.inputs[: len(arguments)],
            names,
            structure,
            len(results),
            writes,
        )

    def _own(self, tensor: Tensor, name: str | None) -> str:
        if name is None:
            name = f"captured_{len(self.state)}"
        if name not in self.state:
            self.state[name] = np.asarray(tensor._array())
            if isinstance(tensor, Parameter):
                self.trainable[name] = not tensor.stop_gradient
        return name


def _with_inputs(graph: Graph, names: list[str], kept: list[str]) -> tuple[Graph, list[str]]:
    """The graph with those of its arguments only that are named in `kept`, and their names."""
    unknown = [name for name in kept if name not in names]
    if unknown:
        raise InvalidArgument(f"there is no input {unknown[0]!r}; the inputs are {names}")
    nodes = graph.needed()
    used = {*graph.outputs, *[a for node in nodes for a in node.args if isinstance(a, int)]}
    dropped = {-1 - i: name for i, name in enumerate(names) if name not in kept}
    for ref, name in dropped.items():
        if ref in used:
            raise InvalidArgument(
                f"the results need the input {name!r}, which is not among those to keep. "
                f"Received: {kept}; choose results without it with output_spec"
            )
    builder = GraphBuilder(graph)
    for i in range(len(graph.inputs)):
        if -1 - i not in dropped:
            builder.copy_input(-1 - i)
    for node in nodes:
        builder.copy(node)
    return builder.finish(graph.outputs), [name for name in names if name in kept]


def write(artifact: Artifact, path: str, beside: Mapping[str, bytes] | None = None) -> None:
    """Write `path.json` and `path.safetensors`, and the files `beside` them by ending; they take
    the places of older ones together."""
    arrays = dict(artifact.state)
    for mode, program in artifact.programs.items():
        names = input_names(program.graph)
        for i, array in program.graph.constants.items():
            arrays[f"constants/{mode}/{names[i]}"] = np.asarray(array)
    for name, array in arrays.items():
        if not safetensors_file.can_store(array):
            raise GraphFileError(f"{name!r} has dtype {array.dtype}, which safetensors cannot hold")
    identity = secrets.token_hex(16)
    weights = f"{path}.safetensors"
    document = {
        "format": FORMAT,
        "version": VERSION,
        "writer": f"bireme {bireme.__version__}",
        "weights": {"file": os.path.basename(weights), "id": identity},
        "state": {
            name: {
                "type": encode_type(aval_of(array)),
                **({"trainable": artifact.trainable[name]} if name in artifact.trainable else {}),
            }
            for name, array in artifact.state.items()
        },
        "programs": {
            mode: {
                "arguments": [
                    {"name": n, "type": encode_type(t)}
                    for n, t in zip(p.arguments, p.types, strict=True)
                ],
                "state": p.state,
                "result": _encode_structure(p.structure),
                "results": p.n_results,
                "writes": [{"state": name, "output": o} for name, o in p.writes],
                "graph": encode_graph(p.graph),
            }
            for mode, p in artifact.programs.items()
        },
    }
    text = _readable(document)
    with atomic.Save() as save:
        with save.file(weights) as file:
            safetensors_file.write(arrays, {"id": identity}, file)
        for ending, content in (beside or {}).items():
            with save.file(path + ending) as file:
                file.write(content)
        with save.file(f"{path}.json") as file:
            file.write(text.encode())


def _readable(value: Any, indent: str = "") -> str:
    """JSON with what fits into a line on one line."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(line) + len(indent) <= 120 or not isinstance(value, dict | list):
        return line
    deeper = indent + "  "
    if isinstance(value, dict):
        if "op" in value:  # a node stays on one line, however long
            return line
        items = [
            f"{json.dumps(k, ensure_ascii=False)}: {_readable(v, deeper)}" for k, v in value.items()
        ]
        opening, closing = "{", "}"
    else:
        items = [_readable(v, deeper) for v in value]
        opening, closing = "[", "]"
    inner = ",\n".join(deeper + item for item in items)
    return f"{opening}\n{inner}\n{indent}{closing}"


def read(path: str) -> Artifact:
    """The model saved at `path` (without ending), with everything checked."""
    where, weights = f"{path}.json", f"{path}.safetensors"
    files = atomic.together(lambda opened: (opened.open(where), opened.open(weights)))
    with ExitStack() as stack:
        graph, arrays = [None if f is None else stack.enter_context(f) for f in files]
        document = _read_json(graph, where)
        if document.get("format") != FORMAT:
            raise GraphFileError(f"{where} is not a saved Bireme model")
        version = document.get("version")
        if type(version) is not int or not 1 <= version <= VERSION:
            raise GraphFileError(
                f"{where} has format version {version!r}; this Bireme reads up to {VERSION}. "
                f"It was written by {document.get('writer')!r}"
            )
        try:
            return _decode(document, path, arrays)
        except GraphFileError as e:
            raise GraphFileError(f"{where}: {e}") from None
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as e:
            raise GraphFileError(f"{where} is damaged: {type(e).__name__}: {e}") from None


def _read_json(file: IO[bytes] | None, path: str) -> dict[str, Any]:
    if file is None:
        raise GraphFileError(f"there is no file {path}; give the path that jit.save was given")
    if os.fstat(file.fileno()).st_size > MAX_JSON:
        raise GraphFileError(f"{path} is larger than {MAX_JSON} bytes")
    try:
        document = json.loads(file.read().decode())
    except (ValueError, RecursionError) as e:
        raise GraphFileError(f"{path} is not readable JSON: {e}") from None
    if not isinstance(document, dict):
        raise GraphFileError(f"{path} is not a saved Bireme model")
    return document


def _decode(document: dict[str, Any], path: str, weights: IO[bytes] | None) -> Artifact:
    arrays = _read_weights(document["weights"], path, weights)
    artifact = Artifact()
    for name, entry in document["state"].items():
        t = decode_type(entry["type"])
        array = arrays.get(name)
        if array is None:
            raise GraphFileError(f"the weights do not contain {name!r}")
        if aval_of(array) is not t:
            raise GraphFileError(
                f"{name!r} should be {t}, but the weights hold {array.dtype}{list(array.shape)}"
            )
        artifact.state[name] = array
        if "trainable" in entry:
            artifact.trainable[name] = entry["trainable"] is True
    for mode, entry in document["programs"].items():
        artifact.programs[mode] = _decode_program(mode, entry, artifact, arrays)
    if "eval" not in artifact.programs:
        raise GraphFileError("the file has no 'eval' program")
    return artifact


def _decode_program(
    mode: str, entry: dict[str, Any], artifact: Artifact, arrays: dict[str, np.ndarray]
) -> SavedProgram:
    def constants(name: str) -> np.ndarray:
        array = arrays.get(f"constants/{mode}/{name}")
        if array is None:
            raise GraphFileError(f"the weights do not contain the constant {name!r}")
        return array

    graph = decode_graph(entry["graph"], constants)
    arguments = [a["name"] for a in entry["arguments"]]
    named = all(isinstance(name, str) for name in arguments)
    if not named or len(set(arguments)) != len(arguments):
        raise GraphFileError(f"the arguments' names are {arguments!r:.200}")
    types = [decode_type(a["type"]) for a in entry["arguments"]]
    state = list(entry["state"])
    given = [i for i in range(len(graph.inputs)) if i not in graph.constants]
    expected = types + [_state_type(artifact, name) for name in state]
    if [graph.inputs[i] for i in given] != expected:
        raise GraphFileError("the graph's inputs are not its arguments and state")
    writes = [(w["state"], w["output"]) for w in entry["writes"]]
    n_results = entry["results"]
    for name, output in writes:
        if type(output) is not int or not 0 <= output < len(graph.outputs):
            raise GraphFileError(f"there is no output {output!r}")
        if graph.type_of(graph.outputs[output]) is not _state_type(artifact, name):
            raise GraphFileError(f"an output of another type is written to {name!r}")
    structure = _decode_structure(entry["result"])
    if type(n_results) is not int or n_results + len(writes) != len(graph.outputs):
        raise GraphFileError("the number of results does not fit the graph's outputs")
    if _leaves(structure) != n_results:
        raise GraphFileError("the results' structure does not fit their number")
    return SavedProgram(graph, arguments, types, state, structure, n_results, writes)


def _state_type(artifact: Artifact, name: str) -> Aval:
    if name not in artifact.state:
        raise GraphFileError(f"the graph uses {name!r}, which is not among the state")
    return aval_of(artifact.state[name])


def _read_weights(
    entry: dict[str, Any], path: str, beside: IO[bytes] | None
) -> dict[str, np.ndarray]:
    name = entry["file"]
    if not isinstance(name, str) or os.path.basename(name) != name or name in ("", ".", ".."):
        raise GraphFileError(f"the weights must lie beside the graph. Received: {name!r:.100}")
    file_path = os.path.join(os.path.dirname(path), name)
    with ExitStack() as stack:
        if file_path != f"{path}.safetensors":  # the graph's file has been renamed
            if not os.path.exists(file_path):
                raise GraphFileError(f"the weights {file_path} are missing")
            beside = stack.enter_context(atomic.opened(file_path))
        if beside is None:
            raise GraphFileError(f"the weights {file_path} are missing")
        size = os.fstat(beside.fileno()).st_size
        arrays, metadata = safetensors_file.read(beside, size, file_path)
    if metadata.get("id") != entry.get("id"):
        raise GraphFileError(
            f"{file_path} belongs to another save than the graph {path}.json beside it; one of "
            "them was replaced without the other"
        )
    return arrays


def _encode_structure(structure: Any) -> Any:
    if structure is tree.LEAF:
        return "*"
    if isinstance(structure, tree.Static):
        value = structure.value
        if value is not None and not isinstance(value, bool | int | float | str):
            raise GraphFileError(f"a result of type {type(value).__name__} cannot be saved")
        return {"value": value}
    kind = structure[0]
    if issubclass(kind, dict):
        if not all(isinstance(k, str) for k in structure[1]):
            raise GraphFileError("a dict among the results must have str keys to be saved")
        values = map(_encode_structure, structure[2:])
        return {"dict": dict(zip(structure[1], values, strict=True))}
    return {"list" if kind is list else "tuple": [_encode_structure(s) for s in structure[1:]]}


def _leaves(structure: Any) -> int:
    """How many tensors a structure of results holds."""
    if structure is tree.LEAF or isinstance(structure, tree.Static):
        return int(structure is tree.LEAF)
    parts = structure[2:] if structure[0] is dict else structure[1:]
    return sum(map(_leaves, parts))


def _decode_structure(data: Any) -> Any:
    if data == "*":
        return tree.LEAF
    ((kind, value),) = data.items()
    if kind == "value":
        if value is not None and not isinstance(value, bool | int | float | str):
            raise GraphFileError("a plain result was expected")
        return tree.Static(value)
    if kind == "dict":
        return (dict, tuple(value), *[_decode_structure(v) for v in value.values()])
    if kind not in ("list", "tuple"):
        raise GraphFileError(f"unknown structure {kind!r:.60}")
    return (list if kind == "list" else tuple, *[_decode_structure(v) for v in value])
