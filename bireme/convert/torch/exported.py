"""Reads `.pt2`: a zip file of a JSON graph and of raw weights, as `torch.export.save` writes it.

From PyTorch 2.8 on the graph is in `models/` and each weight is a file of its own; before, the
state is a checkpoint of `torch.save` inside. Sizes, names and nesting are checked before anything
is made.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
from typing import Any

import numpy as np

from bireme.convert.torch.program import (
    DTypeName,
    Graph,
    Input,
    Node,
    Program,
    Ref,
    Subgraph,
    TorchFileError,
    memory_of,
)
from bireme.core import dtype as dt
from bireme.io import torch_file
from bireme.io.foreign import open_zip, possible_shape, reading

_MAJOR = (5, 8)  # schema versions that were tried: PyTorch 2.6 to 2.13
_MAX_DEPTH = 16  # graphs inside graphs
_DTYPES = (
    None,
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    None,
    "complex64",
    "complex128",
    "bool",
    "bfloat16",
)
_LITERALS = (
    "as_int",
    "as_ints",
    "as_string",
    "as_strings",
    "as_bool",
    "as_bools",
)
_LAYOUTS = ("as_memory_format", "as_layout", "as_device")  # these change no number
_SYMBOL = re.compile(r"Symbol\('(\w+)'[^()]*\)")


def read(path: str | os.PathLike[str]) -> Program:
    """The program in a file."""
    name = os.fspath(path)
    with reading("convert", name), open_zip(path, "convert") as archive:
        names = archive.names()
        models = [n for n in names if re.fullmatch(r"(.*/)?models/[^/]+\.json", n)]
        older = [n for n in names if n.rpartition("/")[2] == "serialized_exported_program.json"]
        if len(models) == 1:
            root = models[0].rpartition("models/")[0]
            data = _json(archive.read(models[0]), name)
            state = _weights(archive, f"{root}data/weights/", "weights", name)
            constants = _weights(archive, f"{root}data/constants/", "constants", name)
        elif len(older) == 1:
            root = older[0].removesuffix("serialized_exported_program.json")
            data = _json(archive.read(older[0]), name)
            state = _checkpoint(archive, f"{root}serialized_state_dict.pt", name)
            constants = _checkpoint(archive, f"{root}serialized_constants.pt", name)
        else:
            raise TorchFileError(
                f"[convert] {name!r} holds {len(models)} exported models; one is expected. Write "
                "it with torch.export.save(torch.export.export(model, inputs), path)"
            )
        return _program(data, state, constants, name)


def _json(data: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise TorchFileError(f"[convert] the graph in {name!r} is no JSON: {e!s:.200}") from None
    if not isinstance(found, dict):
        raise TorchFileError(f"[convert] the graph in {name!r} is not an object")
    major = found.get("schema_version", {}).get("major")
    if type(major) is not int or not _MAJOR[0] <= major <= _MAJOR[1]:
        raise TorchFileError(
            f"[convert] {name!r} has schema version {major!r}; versions {_MAJOR[0]} to {_MAJOR[1]} "
            "(PyTorch 2.6 to 2.13) are read. Export the model again with one of those"
        )
    return found


# --- weights --------------------------------------------------------------------------------


def _weights(archive: Any, folder: str, kind: str, name: str) -> dict[str, np.ndarray]:
    """Tensors that are files of their own, listed by a table."""
    listed = f"{folder}model_{kind}_config.json"
    if listed not in archive.names():
        return {}
    config = json.loads(archive.read(listed))["config"]
    files: dict[str, bytes] = {}  # shared by several names
    found = {}
    for key, entry in config.items():
        if entry.get("use_pickle"):
            raise TorchFileError(
                f"[convert] {key!r:.100} in {name!r} is a pickled Python object, not a tensor"
            )
        file = entry["path_name"]
        if file not in files:
            files[file] = archive.read(f"{folder}{file}")
        found[key] = _tensor(files[file], entry["tensor_meta"], key, name)
    return found


def _tensor(data: bytes, meta: dict[str, Any], key: str, name: str) -> np.ndarray:
    dtype = dt.as_dtype(_dtype(meta["dtype"])).numpy
    shape = tuple([_whole(s) for s in meta["sizes"]])
    strides = [_whole(s) for s in meta["strides"]]
    offset = _whole(meta["storage_offset"])
    if not possible_shape(shape) or len(strides) != len(shape):
        raise TorchFileError(f"[convert] {key!r:.100} in {name!r} has an impossible shape")
    if math.prod(shape) == 0:
        return np.zeros(shape, dtype)
    flat = np.frombuffer(data[: len(data) // dtype.itemsize * dtype.itemsize], dtype)
    last = sum([(n - 1) * s for n, s in zip(shape, strides, strict=True)])
    if offset + last >= flat.size and last < flat.size:
        offset = 0  # the file holds the tensor's own part of the storage
    if min(strides, default=0) < 0 or offset < 0 or offset + last >= flat.size:
        raise TorchFileError(f"[convert] {key!r:.100} in {name!r} reaches over the end of its file")
    if math.prod(shape) > 4 * flat.size + 65536:
        raise TorchFileError(f"[convert] {key!r:.100} in {name!r} repeats its contents too often")
    steps = [s * dtype.itemsize for s in strides]
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, steps, writeable=False)


def _checkpoint(archive: Any, file: str, name: str) -> dict[str, np.ndarray]:
    """Tensors of a checkpoint inside the file; an empty one may be left out."""
    if file not in archive.names():
        return {}
    data = archive.read(file)
    if not data:
        return {}
    found = torch_file.read_opened(io.BytesIO(data), f"{file} in {name}", "convert")
    if not isinstance(found, dict):
        raise TorchFileError(f"[convert] {file} in {name!r} is no state dict")
    return {k: v for k, v in found.items() if isinstance(v, np.ndarray)}


# --- the graph ------------------------------------------------------------------------------


def _program(
    data: dict[str, Any], state: dict[str, Any], constants: dict[str, Any], name: str
) -> Program:
    module = data["graph_module"]
    signature = module["signature"]
    types = module["graph"]["tensor_values"]
    bound: dict[str, str] = {}
    trained, hidden, inputs = set(), set(), []
    labels = _labels(module)
    for spec in signature["input_specs"]:
        (kind, entry), *_ = spec.items()
        if kind == "user_input":
            label = labels[len(inputs)] if len(inputs) < len(labels) else None
            inputs.append(_input(entry["arg"], types, label, len(inputs)))
            continue
        if kind == "constant_input":
            label = entry.get("name") or f"constant{len(inputs)}"
            inputs.append(Input(label, label, None, "int64"))
            continue
        key = next((entry[k] for k in entry if k.endswith("_name")), None)
        if kind not in ("parameter", "buffer", "tensor_constant") or not isinstance(key, str):
            raise TorchFileError(f"[convert] {name!r} takes an input of the kind {kind!r:.40}")
        bound[entry["arg"]["name"]] = key
        if kind == "parameter":
            trained.add(key)
        elif kind == "tensor_constant" or not entry.get("persistent", True):
            hidden.add(key)
    weights = {**constants, **state}
    missing = sorted(set(bound.values()) - set(weights))
    if missing:
        raise TorchFileError(f"[convert] {name!r} lacks the weights {', '.join(missing[:5])}")
    graph = _graph(module["graph"], 0)
    results = []
    for spec, value in zip(signature["output_specs"], graph.outputs, strict=True):
        (kind, _), *_ = spec.items()
        if kind == "user_output":
            results.append(value)
        elif kind not in ("buffer_mutation", "user_input_mutation", "token"):
            raise TorchFileError(f"[convert] {name!r} has an output of the kind {kind!r:.40}")
        elif kind != "token":
            raise TorchFileError(
                f"[convert] {name!r} writes to its state ({kind}): it was exported in training "
                "mode. Call model.eval() before torch.export.export"
            )
    ranges = {
        symbol: (r.get("min_val") or 0, r.get("max_val"))
        for symbol, r in (data.get("range_constraints") or {}).items()
    }
    # Tied weights have several names, of which the graph takes one.
    taken = {memory_of(weights[key]) for key in bound.values()}
    used = {k: w for k, w in weights.items() if k in bound.values() or memory_of(w) in taken}
    return Program(
        graph,
        tuple(inputs),
        tuple(results),
        used,
        frozenset(trained),
        frozenset(hidden),
        bound,
        _structure(module),
        ranges,
    )


def _call_signature(module: dict[str, Any]) -> dict[str, Any]:
    for entry in module.get("module_call_graph") or ():
        if entry.get("fqn") == "" and entry.get("signature"):
            return entry["signature"]
    return {}


def _labels(module: dict[str, Any]) -> list[str]:
    """The names of the arguments, where each is one tensor."""
    names = _call_signature(module).get("forward_arg_names") or []
    return [str(n) for n in names]


def _structure(module: dict[str, Any]) -> Any:
    """How the results nest: PyTorch's tree as (kind, keys, children)."""
    text = _call_signature(module).get("out_spec")
    if not isinstance(text, str):
        return None
    try:
        _, tree = json.loads(text)
        return _tree(tree, 0)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _tree(node: dict[str, Any], depth: int) -> Any:
    if depth > 64:
        raise ValueError("too deep")
    kind = node["type"]
    if kind is None:
        return None
    context = node.get("context")
    keys = json.loads(context) if isinstance(context, str) and context[:1] in "[{" else None
    return kind, keys, [_tree(c, depth + 1) for c in node["children_spec"]]


def _input(argument: dict[str, Any], types: dict[str, Any], label: str | None, at: int) -> Any:
    (kind, value), *_ = argument.items()
    if kind == "as_none":
        return None
    if kind in ("as_int", "as_float", "as_bool", "as_string"):
        return None  # a number that the export has fixed
    if kind != "as_tensor":
        named = value.get("as_name") if isinstance(value, dict) else None
        if kind != "as_sym_int" or not isinstance(named, str):
            raise TorchFileError(f"[convert] the model takes an input of the kind {kind!r:.40}")
        return Input(named, label or named, None, "int64")
    name = value["name"]
    meta = types[name]
    shape = tuple([_size(s) for s in meta["sizes"]])
    return Input(name, label or name or f"x{at}", shape, _dtype(meta["dtype"]))


def _size(size: dict[str, Any]) -> int | str:
    if "as_int" in size:
        return _whole(size)
    text = size["as_expr"]["expr_str"]
    return _SYMBOL.sub(r"\1", text)


def _whole(size: dict[str, Any]) -> int:
    value = size.get("as_int")
    if type(value) is not int:
        raise TorchFileError("[convert] a size of a weight is not a number")
    return value


def _dtype(code: Any) -> str:
    found = _DTYPES[code] if type(code) is int and 0 <= code < len(_DTYPES) else None
    if found is None:
        raise TorchFileError(f"[convert] there is no dtype with the number {code!r:.20}")
    return found


def _graph(data: dict[str, Any], depth: int) -> Graph:
    if depth > _MAX_DEPTH:
        raise TorchFileError(f"[convert] graphs are nested more than {_MAX_DEPTH} deep")
    inputs = [_argument(i, depth) for i in data["inputs"]]
    return Graph(
        tuple([i.name if isinstance(i, Ref) else "" for i in inputs]),
        tuple([_node(n, depth) for n in data["nodes"]]),
        tuple([_argument(o, depth) for o in data["outputs"]]),
    )


def _node(data: dict[str, Any], depth: int) -> Node:
    named, positional = {}, []
    for entry in data["inputs"]:
        value = _argument(entry["arg"], depth)
        # Functions of Python (`_operator.mul`) have no names for their arguments.
        if entry.get("name"):
            named[entry["name"]] = value
        else:
            positional.append(value)
    results = tuple([_result(o) for o in data["outputs"]])
    trace = str((data.get("metadata") or {}).get("stack_trace") or "").strip()
    return Node(data["target"], named, tuple(positional), results, _line(trace))


def _line(trace: str) -> str:
    """The innermost line of the user's own in a stack trace."""
    files = [line.strip() for line in trace.splitlines() if line.strip().startswith("File ")]
    own = [f for f in files if "site-packages" not in f]
    return (own or files or [""])[-1]


def _result(data: dict[str, Any]) -> str | tuple[str, ...] | None:
    (kind, value), *_ = data.items()
    if kind == "as_none":
        return None
    if kind == "as_tensors":
        return tuple([v["name"] for v in value])
    if kind in ("as_sym_int", "as_sym_bool", "as_sym_float"):
        return value.get("as_name")
    return value["name"]


def _argument(data: dict[str, Any], depth: int) -> Any:
    (kind, value), *_ = data.items()
    if kind == "as_float":
        return float(value)  # infinity is a string
    if kind == "as_floats":
        return [float(v) for v in value]
    if kind in _LITERALS:
        return value
    if kind in ("as_tensor", "as_custom_obj"):
        return Ref(value["name"])
    if kind == "as_tensors":
        return [Ref(v["name"]) for v in value]
    if kind == "as_optional_tensors":
        return [Ref(v["as_tensor"]["name"]) if "as_tensor" in v else None for v in value]
    if kind == "as_optional_tensor":
        return Ref(value["as_tensor"]["name"]) if "as_tensor" in value else None
    if kind in ("as_sym_int", "as_sym_bool", "as_sym_float"):
        return _symbolic(value)
    if kind in ("as_sym_ints", "as_sym_bools", "as_sym_floats"):
        return [_symbolic(v) for v in value]
    if kind == "as_scalar_type":
        return DTypeName(_dtype(value))
    if kind == "as_none" or kind in _LAYOUTS:
        return None
    if kind == "as_complex":
        return complex(value["real"], value["imag"])
    if kind == "as_graph":
        return Subgraph(_graph(value["graph"], depth + 1))
    raise TorchFileError(f"[convert] there is no reader for arguments of the kind {kind!r:.40}")


def _symbolic(value: dict[str, Any]) -> Any:
    return Ref(value["as_name"]) if "as_name" in value else next(iter(value.values()))
