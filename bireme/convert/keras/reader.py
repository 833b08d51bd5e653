"""Reads Keras' files into a Program: a configuration in JSON, and weights in HDF5."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.keras.hdf5 import SIGNATURE, File, Node
from bireme.convert.program import Graph, Input, Program
from bireme.convert.program import Node as Op
from bireme.io.foreign import Zip

_MAX_LAYERS = 100_000
_MAX_DEPTH = 32
_MODELS = ("Sequential", "Functional", "Model")
_RULES = "bireme.convert.keras"

# The weights of a layer in Keras' order: (name, the setting without which there is none).
_PAIR = (("kernel", ""), ("bias", "use_bias"))
_NORM = (("gamma", "scale"), ("beta", "center"))
WEIGHTS: dict[str, tuple[tuple[str, str], ...]] = {
    **dict.fromkeys(
        (
            "Dense",
            "Conv1D",
            "Conv2D",
            "Conv3D",
            "Conv1DTranspose",
            "Conv2DTranspose",
            "DepthwiseConv1D",
            "DepthwiseConv2D",
        ),
        _PAIR,
    ),
    "SeparableConv1D": (("depthwise", ""), ("pointwise", ""), ("bias", "use_bias")),
    "SeparableConv2D": (("depthwise", ""), ("pointwise", ""), ("bias", "use_bias")),
    "BatchNormalization": (*_NORM, ("moving_mean", ""), ("moving_variance", "")),
    "LayerNormalization": _NORM,
    "GroupNormalization": _NORM,
    "Normalization": (("mean", ""), ("variance", ""), ("count", "")),
    "Embedding": (("embeddings", ""),),
    "PReLU": (("alpha", ""),),
    "LayerScale": (("gamma", ""),),
    "RMSNormalization": (("scale", ""),),
    "Attention": (("scale", "use_scale"), ("concat_score_weight", "is_concat")),
    "AdditiveAttention": (("scale", "use_scale"),),
}
_CELL = (("kernel", ""), ("recurrent_kernel", ""), ("bias", "use_bias"))
_RECURRENT = dict.fromkeys(("LSTM", "GRU", "SimpleRNN"), _CELL)
# Where the weights of a layer that is made of layers lie.
_PARTS = {
    **dict.fromkeys(_RECURRENT, ("cell",)),
    "Bidirectional": ("forward_layer/cell", "backward_layer/cell"),
    "MultiHeadAttention": ("query_dense", "key_dense", "value_dense", "output_dense"),
}


def _wanted(kind: str, config: Mapping[str, Any]) -> list[str]:
    """The names of the weights that a layer has."""

    def of(table: Sequence[tuple[str, str]], settings: Mapping[str, Any]) -> list[str]:
        return [name for name, flag in table if not flag or settings.get(flag, True)]

    if kind in _RECURRENT:
        return of(_CELL, config)
    if kind == "MultiHeadAttention":
        return [
            f"{part.removesuffix('_dense')}_{name}"
            for part in _PARTS[kind]
            for name in of(_PAIR, config)
        ]
    if kind == "Bidirectional":
        forward = config["layer"]
        sides = {"forward": forward, "backward": config.get("backward_layer") or forward}
        return [f"{s}_{name}" for s, inner in sides.items() for name in of(_CELL, inner["config"])]
    if kind == "Attention":
        mode = config.get("score_mode", "dot") == "concat"
        config = {"use_scale": config.get("use_scale", False), "is_concat": mode}
    return of(WEIGHTS.get(kind, ()), config)


_BUFFERS = {"moving_mean", "moving_variance", "mean", "variance", "count"}


def read(data: bytes, name: str) -> Program:
    """The program of a file's contents."""
    if data[:8] == SIGNATURE:
        return _from_hdf5(File(data))
    archive = Zip(io.BytesIO(data), "convert", name)
    config = _json(archive.read("config.json"))
    version = str(_json(archive.read("metadata.json")).get("keras_version", "3"))
    weights = File(archive.read("model.weights.h5")).root
    return _Model(version).program(config, weights)


def _json(data: bytes | str) -> dict[str, Any]:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ModelFileError("[convert] the configuration is no JSON object")
    return found


def _from_hdf5(file: File) -> Program:
    config = file.root.texts("model_config")
    if not config:
        raise ModelFileError(
            "[convert] this HDF5 file holds weights without a model: save the whole model with "
            "model.save"
        )
    versions = file.root.texts("keras_version") or ["2"]
    group = file.root.children().get("model_weights")
    if group is None:
        raise ModelFileError("[convert] the file holds no weights")
    return _Model(versions[0]).program(_json(config[0]), group, old=True)


def snake_case(name: str) -> str:
    """A class's name as Keras writes it into a path."""
    made = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", re.sub(r"\W+", "", name))
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", made).lower()


class _Model:
    """What is collected while the layers are read."""

    def __init__(self, version: str):
        self._version = version
        self._weights: dict[str, np.ndarray] = {}
        self._trained: set[str] = set()
        self._labels: dict[str, str] = {}
        self._nodes: list[tuple[Op, tuple[str, ...]]] = []
        self._inputs: dict[str, Input] = {}
        self._count = 0

    def program(self, config: Mapping[str, Any], weights: Node, old: bool = False) -> Program:
        inputs, outputs = self._model(config, weights, "", None, old, 0)
        nodes = _sorted(self._nodes, set(inputs))
        declared = tuple([self._inputs[i] for i in inputs])
        labels = [o.split(":")[0] for o in outputs]
        graph = Graph(tuple(inputs), tuple(nodes), tuple(outputs))
        return Program(
            "Keras",
            graph,
            declared,
            tuple(labels),
            self._weights,
            frozenset(self._trained),
            self._labels,
        )

    # --- models -----------------------------------------------------------------------------

    def _model(
        self,
        entry: Mapping[str, Any],
        weights: Node | None,
        prefix: str,
        given: Sequence[str] | None,
        old: bool,
        depth: int,
    ) -> tuple[list[str], list[str]]:
        """(inputs, outputs) of a model; a model inside of another one is `given` its inputs."""
        if depth > _MAX_DEPTH:
            raise ModelFileError(f"[convert] models are nested more than {_MAX_DEPTH} deep")
        kind = _class(entry)
        if kind not in _MODELS:
            raise UnsupportedModel(
                f"[convert] {kind!r:.80} is a class of the program's own; only Sequential and "
                "Functional models say what they compute"
            )
        config = entry["config"]
        layers = config["layers"] if isinstance(config, dict) else config
        self._count += len(layers)
        if self._count > _MAX_LAYERS:
            raise ModelFileError(f"[convert] the model has more than {_MAX_LAYERS} layers")
        stored = _Stored(weights, layers, old)
        if kind == "Sequential":
            return self._sequential(config, layers, stored, prefix, given, old, depth)
        inputs = [_address(a, prefix) for a in _addresses(config["input_layers"])]
        renamed = dict(zip(inputs, given, strict=True)) if given is not None else {}
        for layer in layers:
            held = stored.of(layer)
            calls = layer.get("inbound_nodes") or []
            name = str(layer.get("name") or layer["config"]["name"])
            if _class(layer) == "InputLayer":
                if given is None:
                    self._declare(layer, f"{prefix}{name}:0:0")
                continue
            for i, call in enumerate(calls):
                tensors, extra, named = _call(call, prefix)
                tensors = [renamed.get(t, t) for t in tensors]
                if named:
                    layer = {**layer, "config": {**layer["config"], "named": named}}
                self._layer(layer, f"{prefix}{name}", i, tensors, extra, held, old, depth)
        outputs = [_address(a, prefix) for a in _addresses(config["output_layers"])]
        return inputs, [renamed.get(o, o) for o in outputs]

    def _sequential(
        self,
        config: Any,
        layers: Any,
        stored: _Stored,
        prefix: str,
        given: Sequence[str] | None,
        old: bool,
        depth: int,
    ) -> tuple[list[str], list[str]]:
        now = list(given or [])
        first = now
        for i, layer in enumerate(layers):
            held = stored.of(layer)
            name = f"{prefix}{layer['config'].get('name') or f'layer{i}'}"
            if _class(layer) == "InputLayer":
                if given is None:
                    self._declare(layer, f"{name}:0:0")
                    now = first = [f"{name}:0:0"]
                continue
            if not now:
                shape = layer["config"].get("batch_input_shape") or (
                    config.get("build_input_shape") if isinstance(config, dict) else None
                )
                label = f"{name}_input"
                now = first = [f"{label}:0:0"]
                described = {"batch_shape": shape, "name": label}
                self._declare({"config": described}, now[0])
            now = self._layer(layer, name, 0, now, [], held, old, depth)
        return list(first), now

    def _declare(self, layer: Mapping[str, Any], name: str) -> None:
        config = layer["config"]
        shape = config.get("batch_shape") or config.get("batch_input_shape")
        if not isinstance(shape, list):
            raise UnsupportedModel(f"[convert] the input {name!r:.80} has no shape in the file")
        label = str(config.get("name") or name)
        # A batch that Keras declares is one of many.
        sizes = tuple([None if i == 0 or d is None else int(d) for i, d in enumerate(shape)])
        dtype = config.get("dtype") or "float32"
        dtype = dtype if isinstance(dtype, str) else str(dtype["config"]["name"])
        self._inputs[name] = Input(name, label, sizes, dtype)

    # --- layers -----------------------------------------------------------------------------

    def _layer(
        self,
        layer: Mapping[str, Any],
        name: str,
        index: int,
        tensors: Sequence[str],
        extra: list[Any],
        held: Any,
        old: bool,
        depth: int,
    ) -> list[str]:
        kind, config = _class(layer), layer["config"]
        if kind in _MODELS:
            if old:
                raise UnsupportedModel(
                    f"[convert] the model {name!r:.80} is inside another one in an HDF5 file: "
                    "save it as .keras"
                )
            inner = f"{name}[{index}]/"
            _, outputs = self._model(layer, held, inner, tensors, old, depth + 1)
            aliases = [f"{name}:{index}:{i}" for i in range(len(outputs))]
            for alias, output in zip(aliases, outputs, strict=True):
                self._nodes.append((Op("alias", (output,), (alias,), {}, name), (output,)))
            return aliases
        policy = config.get("dtype")
        policy = policy.get("config", {}).get("name") if isinstance(policy, dict) else policy
        attrs = {
            **config,
            "tensors": len(tensors),
            "extra": extra,
            "version": self._version,
            "policy": policy,
        }
        weights, names = self._held(kind, config, name, held)
        attrs["weights"] = names
        output = f"{name}:{index}:0"
        node = Op(kind, (*tensors, *weights), (output,), attrs, f"the layer {name!r:.80}")
        self._nodes.append((node, tuple(tensors)))
        return [output]

    def _held(
        self, kind: str, config: Mapping[str, Any], name: str, held: Any
    ) -> tuple[list[str], list[str]]:
        arrays: Any = held() if callable(held) else []
        wanted = _wanted(kind, config)
        if len(arrays) != len(wanted):
            if kind not in WEIGHTS and kind not in _PARTS:
                wanted = [f"weight{i}" for i in range(len(arrays))]
            elif not (kind == "Normalization" and config.get("mean") is not None):
                raise ModelFileError(
                    f"[convert] the layer {name!r:.80} ({kind:.40}) has {len(arrays)} weights, "
                    f"not {len(wanted)}"
                )
        made = []
        for weight, array in zip(wanted, arrays, strict=False):
            inside = f"{name}/{weight}"
            if inside not in self._weights:
                self._weights[inside] = array.astype(array.dtype.newbyteorder("="))
                self._labels[inside] = f"{name.replace('.', '_')}.{weight}"
                if weight not in _BUFFERS and array.dtype.kind == "f":
                    self._trained.add(inside)
            made.append(inside)
        return made, wanted[: len(made)]


class _Stored:
    """The weights of a model's layers, where Keras puts them."""

    def __init__(self, group: Node | None, layers: Sequence[Any], old: bool):
        self._old = old
        groups = group.children() if group is not None else {}
        self._groups = groups if old or "layers" not in groups else groups["layers"].children()
        self._used: dict[str, int] = {}

    def of(self, layer: Mapping[str, Any]) -> Any:
        """How to get the arrays of a layer, or the group of a model inside."""
        kind = _class(layer)
        if self._old:
            found = self._groups.get(str(layer["config"].get("name")))
            return None if found is None else lambda: _listed(found)
        path = snake_case(kind)
        number = self._used.get(path, -1) + 1
        self._used[path] = number
        found = self._groups.get(f"{path}_{number}" if number else path)
        if found is None or kind in _MODELS:
            return found
        return lambda: _numbered(found, _PARTS.get(kind, ()))


def _numbered(group: Node, parts: Sequence[str] = ()) -> list[np.ndarray]:
    """The arrays 0, 1, … in the group `vars`, of a layer or of the parts that it is made of."""
    if parts:
        made = []
        for part in parts:
            at = group
            for step in part.split("/"):
                at = at.children()[step]
            made += _numbered(at)
        return made
    members = group.children()
    arrays = members.pop("vars").children() if "vars" in members else {}
    if any(m.is_group and m.children() for m in members.values()):
        raise UnsupportedModel("a layer that is made of layers has no reader")
    return [arrays[str(i)].array() for i in range(len(arrays))]


def _listed(group: Node) -> list[np.ndarray]:
    """The arrays in the order of the attribute `weight_names`."""
    made = []
    for path in group.texts("weight_names") or []:
        at = group
        for part in path.split("/"):
            at = at.children()[part]
        made.append(at.array())
    return made


def _class(entry: Mapping[str, Any]) -> str:
    """A layer's class; one of the program's own never passes for one of Keras'."""
    kind = str(entry["class_name"]) if "class_name" in entry else "InputLayer"
    registered = str(entry.get("registered_name") or "")
    module = str(entry.get("module") or "keras")
    own = ">" in registered and not registered.startswith("Keras>")
    if own or module.split(".")[0] not in ("keras", "tf_keras", "tensorflow", "builtins"):
        return f"{registered or module}:{kind}"
    return kind


# --- calls ----------------------------------------------------------------------------------


def _addresses(value: Any) -> list[Any]:
    """Places of tensors: one [layer, call, number], or a list of those, however nested."""
    if isinstance(value, dict):
        return [a for v in value.values() for a in _addresses(v)]
    if isinstance(value, list) and len(value) == 3 and isinstance(value[0], str):
        return [value]
    return [a for v in value for a in _addresses(v)]


def _address(place: Sequence[Any], prefix: str) -> str:
    return f"{prefix}{place[0]}:{int(place[1])}:{int(place[2])}"


def _call(call: Any, prefix: str) -> tuple[list[str], list[Any], list[str]]:
    """(the tensors of a call, its other arguments, the names of those tensors that have one)."""
    if isinstance(call, dict):  # Keras 3
        tensors: list[str] = []
        extra: list[Any] = []
        _arguments(call.get("args", []), prefix, tensors, extra, 0)
        named: list[str] = []
        for name, value in call.get("kwargs", {}).items():
            before = len(tensors)
            _arguments([value], prefix, tensors, extra, 0)
            named += [str(name)] * (len(tensors) - before)
        only = len(tensors) == len(named) == 1 and named[0] in ("inputs", "x", "input")
        return tensors, extra, [] if only else named
    found = [c for c in call if isinstance(c, list)]
    named = [k for c in found if len(c) > 3 for k, v in c[3].items() if v not in (None, False)]
    if named or len(found) != len(call):
        raise UnsupportedModel(f"a call with the arguments {named!r:.100} has no rule")
    return [_address(c, prefix) for c in found], [], []


def _arguments(
    values: Sequence[Any], prefix: str, tensors: list[str], extra: list[Any], depth: int
) -> None:
    if depth > _MAX_DEPTH:
        raise ModelFileError("[convert] the arguments of a call are nested too deep")
    for value in values:
        if isinstance(value, dict) and value.get("class_name") == "__keras_tensor__":
            tensors.append(_address(value["config"]["keras_history"], prefix))
        elif isinstance(value, list):
            _arguments(value, prefix, tensors, extra, depth + 1)
        elif value is not None and value is not False:
            extra.append(value)


def _sorted(nodes: list[tuple[Op, tuple[str, ...]]], ready: set[str]) -> list[Op]:
    """The nodes in an order in which each finds its inputs made."""
    waiting: dict[str, list[int]] = {}
    missing = [0] * len(nodes)
    for i, (_, needs) in enumerate(nodes):
        for need in {n for n in needs if n not in ready}:
            waiting.setdefault(need, []).append(i)
            missing[i] += 1
    free = [i for i, count in enumerate(missing) if not count]
    made = []
    at = 0
    while at < len(free):
        op = nodes[free[at]][0]
        at += 1
        made.append(op)
        for name in op.outputs:
            for other in waiting.pop(name, []):
                missing[other] -= 1
                if not missing[other]:
                    free.append(other)
    if len(made) != len(nodes):
        lost = next(nodes[i][0].where for i, count in enumerate(missing) if count)
        raise ModelFileError(f"[convert] {lost} takes what no layer makes, or makes itself")
    return made
