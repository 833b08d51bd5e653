"""TensorFlow's files: which of them make up a model, and what kind one is by its contents."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from bireme.convert.errors import ModelFileError
from bireme.convert.program import Program
from bireme.convert.prototext import parse
from bireme.convert.tensorflow.arrays import Message
from bireme.convert.tensorflow.bundle import Weights, open_weights
from bireme.convert.tensorflow.reader import Ends, Reader
from bireme.convert.tensorflow.schema import GRAPH, META_GRAPH, SAVED_MODEL
from bireme.convert.tensorflow.variables import Variables
from bireme.convert.wire import Schema, decode, without_ignored
from bireme.core.errors import InvalidArgument
from bireme.io.foreign import open_regular, read_whole

_HEAD = 1 << 16
_TEXT = re.compile(
    r"^\s*(?:node|meta_graphs|meta_info_def|library|versions)\s*:?\s*\{", re.MULTILINE
)
_MODELS = ("saved_model.pb", "saved_model.pbtxt")
_NOT_CALLED = "__saved_model_"  # how signatures begin that only prepare


def kind_of(path: str) -> str | None:
    """What a file or folder is: "SavedModel", "graph", "meta", "TFJS", or None."""
    if os.path.isdir(path):
        if any(os.path.isfile(os.path.join(path, m)) for m in _MODELS):
            return "SavedModel"
        listed = os.path.join(path, "model.json")
        return "TFJS" if os.path.isfile(listed) and kind_of(listed) == "TFJS" else None
    with open_regular(path, "convert") as file:
        head = file.read(_HEAD)
    if head.lstrip()[:1] == b"{":
        return "TFJS" if _is_tfjs(path) else None
    if b"\0" not in head and _TEXT.search(head.decode("utf-8", "replace")):
        text = head.decode("utf-8", "replace").lstrip()
        if text.startswith(("saved_model_schema_version", "meta_graphs")):
            return "SavedModel"
        return "meta" if text.startswith("meta_info_def") else "graph"
    return _binary_kind(memoryview(head))


def _binary_kind(head: memoryview) -> str | None:
    """By the shape of the first fields: what is inside them must look right, too."""
    first = _first_message(head)
    if first is None:
        return None
    number, inner = first
    if number == 1:  # a node's name and op; or a meta graph's description
        fields = _strings(inner)
        if {1, 2} <= set(fields) and re.fullmatch(r"[\w.>]+", fields[2]) and fields[1]:
            return "graph"
        return "meta" if set(fields) & {2, 4, 5, 6} and 1 not in fields else None
    if number == 2:
        nested = _first_message(inner)
        return "SavedModel" if nested is not None and nested[0] in (1, 2) else None
    return None


def _first_message(data: memoryview) -> tuple[int, memoryview] | None:
    """(number, contents) of the first field that has some; a schema's version may be before."""
    from bireme.convert.wire import varint

    at = 0
    try:
        for _ in range(2):
            tag, at = varint(data, at)
            if tag == 8 and data[at] == 1:  # saved_model_schema_version: 1
                at += 1
                continue
            if tag & 7 != 2 or tag >> 3 not in (1, 2):
                return None
            size, at = varint(data, at)
            return tag >> 3, data[at : at + size]
    except (ModelFileError, IndexError):
        pass
    return None


def _strings(data: memoryview) -> dict[int, str]:
    """The texts at the top of a message that may be cut off."""
    from bireme.convert.wire import varint

    made: dict[int, str] = {}
    at = 0
    try:
        while at < len(data):
            tag, at = varint(data, at)
            if tag & 7 != 2:
                break
            size, at = varint(data, at)
            made.setdefault(tag >> 3, str(data[at : at + min(size, 200)], "utf-8", "replace"))
            at += size
    except ModelFileError:
        pass
    return made


def read(
    path: str, signature: str | None, inputs: Sequence[str], outputs: Sequence[str]
) -> Program:
    """The program of a model."""
    kind = kind_of(path)
    if kind == "TFJS":
        from bireme.convert.tensorflow.tfjs import read_graph

        found = read_graph(path)
        reader = Reader(found.graph, Variables({}, None), found.arrays)
        return reader.program(_ends(reader, found.signatures, signature, inputs, outputs))
    if kind == "SavedModel":
        meta, weights = _saved_model(path)
    elif kind == "meta":
        meta, weights = _message(META_GRAPH, path), _checkpoint(path)
    elif kind == "graph":
        meta, weights = {"graph_def": _message(GRAPH, path)}, None
    else:
        raise ModelFileError(f"[convert] {path!r:.300} is no model of TensorFlow")
    reader = Reader(meta.get("graph_def", {}), Variables(meta, weights), {})
    pairs: Any = meta.get("signature_def", ())
    signatures = {str(p.get("key", "")): p.get("value", {}) for p in pairs}
    return reader.program(_ends(reader, signatures, signature, inputs, outputs))


def _ends(
    reader: Reader,
    signatures: Mapping[str, Message],
    wanted: str | None,
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> Ends:
    if inputs:
        return reader.named_ends(inputs, outputs)
    if outputs:
        return reader.default_ends(outputs)
    usable = [s for s in signatures if not s.startswith(_NOT_CALLED)]
    if wanted is None:
        if not usable:
            return reader.default_ends()
        if "serving_default" in usable:
            wanted = "serving_default"
        elif len(usable) == 1:
            wanted = usable[0]
    if wanted not in usable:
        names = ", ".join(sorted(usable)) or "none"
        if wanted is None:
            raise ModelFileError(f"[convert] give a signature, of which the model has {names:.500}")
        raise InvalidArgument(
            f"[convert] there is no signature {wanted!r}. The model has: {names:.500}"
        )
    return reader.signature_ends(signatures[wanted])


def _message(schema: Schema, path: str) -> dict[str, Any]:
    data = read_whole(path, "convert")
    head = data[:_HEAD]
    if b"\0" not in head and _TEXT.search(head.decode("utf-8", "replace")):
        return parse(schema, data.decode("utf-8", "replace"), "the graph")
    return decode(_BINARY[id(schema)], memoryview(data), "the graph")


_BINARY = {id(s): without_ignored(s) for s in (GRAPH, META_GRAPH, SAVED_MODEL)}


def _saved_model(path: str) -> tuple[Message, Weights | None]:
    if os.path.isdir(path):
        folder = path
        path = next(p for m in _MODELS if os.path.isfile(p := os.path.join(folder, m)))
    else:
        folder = os.path.dirname(path)
    metas = list(_message(SAVED_MODEL, path).get("meta_graphs") or ())
    if not metas:
        raise ModelFileError("[convert] the SavedModel holds no graph")
    serving = [m for m in metas if "serve" in m.get("meta_info_def", {}).get("tags", ())]
    prefix = os.path.join(folder, "variables", "variables")
    weights = open_weights(prefix) if os.path.isfile(prefix + ".index") else None
    return (serving or metas)[0], weights


def _checkpoint(path: str) -> Weights | None:
    prefix = path.removesuffix(".meta")
    there = os.path.isfile(prefix + ".index") or (prefix != path and os.path.isfile(prefix))
    return open_weights(prefix) if there else None


def _is_tfjs(path: str) -> bool:
    try:
        found = json.loads(read_whole(path, "convert"))
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "modelTopology" in found and "weightsManifest" in found
