"""Reads Caffe's nets: `.prototxt` for the layers, `.caffemodel` for the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bireme.convert.caffe.schema import NET, V1_TYPES
from bireme.convert.errors import ModelFileError
from bireme.convert.program import Graph, Input, Node, Program
from bireme.convert.prototext import parse
from bireme.convert.wire import decode, without_ignored
from bireme.io.foreign import possible_shape

MAX_LAYERS = 100_000

# What a layer's blobs are called; kinds that are not named have weight and bias.
_BLOBS = {
    "BatchNorm": ("mean", "variance", "count", "weight", "bias"),
    "Bias": ("bias",),
}
_WEIGHTED = {
    *("Convolution", "ConvolutionDepthwise", "DepthwiseConvolution", "Deconvolution", "Embed"),
    *("InnerProduct", "BatchNorm", "Normalize", "PReLU", "Parameter"),
}
_NOT_TRAINED = {("BatchNorm", "mean"), ("BatchNorm", "variance")}

# V0's kinds: V2's name, the message of its settings, and V0's names for them.
_V0 = {
    "conv": (
        "Convolution",
        "convolution_param",
        {"num_output": "num_output", "biasterm": "bias_term", "group": "group"},
        {"pad": "pad", "kernelsize": "kernel_size", "stride": "stride"},
    ),
    "innerproduct": (
        "InnerProduct",
        "inner_product_param",
        {"num_output": "num_output", "biasterm": "bias_term"},
        {},
    ),
    "pool": (
        "Pooling",
        "pooling_param",
        {"pool": "pool", "kernelsize": "kernel_size", "stride": "stride", "pad": "pad"},
        {},
    ),
    "lrn": (
        "LRN",
        "lrn_param",
        {"local_size": "local_size", "alpha": "alpha", "beta": "beta", "k": "k"},
        {},
    ),
    "concat": ("Concat", "concat_param", {"concat_dim": "axis"}, {}),
    "padding": ("Padding", "padding_param", {"pad": "pad"}, {}),
    "relu": ("ReLU", "", {}, {}),
    "dropout": ("Dropout", "", {}, {}),
    "softmax": ("Softmax", "", {}, {}),
    "flatten": ("Flatten", "", {}, {}),
    "sigmoid": ("Sigmoid", "", {}, {}),
    "tanh": ("TanH", "", {}, {}),
    "split": ("Split", "", {}, {}),
    "bnll": ("BNLL", "", {}, {}),
}


@dataclass(slots=True)
class Described:
    """A layer in V2's words, whichever version wrote it."""

    name: str
    type: str
    bottoms: list[str]
    tops: list[str]
    settings: dict[str, Any]  # messages by their field's name
    shared: list[str]  # names of parameters, for those that are shared
    blobs: list[np.ndarray] = field(default_factory=list)


def read_text(text: str) -> dict[str, Any]:
    """A net in text form."""
    return parse(NET, text)


_BINARY = without_ignored(NET)


def read_binary(data: bytes | memoryview) -> dict[str, Any]:
    """A net in binary form."""
    return decode(_BINARY, memoryview(data), "the net")


def program_of(net: Mapping[str, Any], trained: Mapping[str, Any] | None) -> Program:
    """The program of a net whose weights are in `trained` (in `net` itself if None)."""
    layers = [d for d in _described(net) if d is not None]
    if trained is not None:
        blobs = {d.name: d.blobs for d in _described(trained, every=True) if d.blobs}
        for layer in layers:
            layer.blobs = blobs.get(layer.name, [])
    _check_weights(layers, trained is not None)
    inputs = _inputs(net, layers)
    layers = [d for d in layers if d.type != "Input"]
    maker = _Maker()
    nodes = [maker.node(d) for d in layers]
    made = [i.name for i in inputs] + [t for d in layers for t in d.tops]
    outputs = _outputs(layers, [i.name for i in inputs])
    if not nodes or not made:
        raise ModelFileError("[convert] the net has no layers")
    graph = Graph(tuple([i.name for i in inputs]), tuple(nodes), outputs)
    return Program(
        "Caffe",
        graph,
        tuple(inputs),
        outputs,
        maker.weights,
        frozenset(maker.trained),
        maker.labels,
    )


def _check_weights(layers: list[Described], given: bool) -> None:
    """Every layer that multiplies by weights of its own has some."""
    bare = [d.name for d in layers if not d.blobs and _takes_weights(d)]
    if bare:
        told = "has none of them" if given else "is needed"
        raise ModelFileError(
            f"[convert] {len(bare)} layers have no weights: {', '.join(bare[:5])[:300]}; the "
            f".caffemodel {told}"
        )


def _takes_weights(layer: Described) -> bool:
    if layer.type in ("Scale", "Bias"):  # with two bottoms the second takes their place
        return len(layer.bottoms) == 1
    return layer.type in _WEIGHTED


def _outputs(layers: list[Described], inputs: list[str]) -> tuple[str, ...]:
    """What no layer takes, in the order in which it is made."""
    free = dict.fromkeys(inputs)
    for layer in layers:
        for name in layer.bottoms:
            free.pop(name, None)
        free.update(dict.fromkeys(layer.tops))
    return tuple(free)


# --- layers ---------------------------------------------------------------------------------


def _described(net: Mapping[str, Any], every: bool = False) -> list[Described]:
    found = [*net.get("layers", []), *net.get("layer", [])]
    if len(found) > MAX_LAYERS:
        raise ModelFileError(f"[convert] the net has more than {MAX_LAYERS} layers")
    v2 = len(net.get("layers", []))
    made = []
    for i, layer in enumerate(found):
        if every or _is_for_testing(layer):
            made.append(_from_v2(layer) if i >= v2 else _from_v1(layer))
    return made


def _is_for_testing(layer: Mapping[str, Any]) -> bool:
    """Whether a layer is a part of the net that infers."""
    if layer.get("phase", "TEST") != "TEST":
        return False
    if layer.get("include"):
        return any(map(_meets, layer["include"]))
    return not any(map(_meets, layer.get("exclude", [])))


def _meets(rule: Mapping[str, Any]) -> bool:
    return (
        rule.get("phase", "TEST") == "TEST"
        and rule.get("min_level", 0) <= 0
        and rule.get("max_level", 0) >= 0
        and not rule.get("stage")
    )


def _messages(layer: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in layer.items() if k.endswith("_param")}


def _from_v2(layer: Mapping[str, Any]) -> Described:
    return Described(
        layer.get("name", ""),
        layer.get("type", ""),
        layer.get("bottom", []),
        layer.get("top", []),
        _messages(layer),
        [p.get("name", "") for p in layer.get("param", [])],
        [_array(b, layer) for b in layer.get("blobs", [])],
    )


def _from_v1(layer: Mapping[str, Any]) -> Described:
    old = layer.get("layer")
    if old is not None:
        return _from_v0(layer, old)
    kind = V1_TYPES.get(layer.get("type", "NONE"), "")
    return Described(
        layer.get("name", ""),
        kind,
        layer.get("bottom", []),
        layer.get("top", []),
        _messages(layer),
        layer.get("param", []),
        [_array(b, layer) for b in layer.get("blobs", [])],
    )


def _from_v0(outer: Mapping[str, Any], layer: Mapping[str, Any]) -> Described:
    kind = layer.get("type", "")
    name, field_name, single, several = _V0.get(kind, (kind, "", {}, {}))
    settings = {new: layer[old] for old, new in single.items() if old in layer}
    settings.update({new: [layer[old]] for old, new in several.items() if old in layer})
    return Described(
        layer.get("name", ""),
        name,
        outer.get("bottom", []),
        outer.get("top", []),
        {field_name: settings} if field_name else {},
        [],
        [_array(b, layer) for b in layer.get("blobs", [])],
    )


def _array(blob: Mapping[str, Any], layer: Mapping[str, Any]) -> np.ndarray:
    what = f"[convert] a weight of the layer {layer.get('name', '')!r:.80}"
    if "data" in blob:
        data = blob["data"]
    elif "double_data" in blob:
        data = blob["double_data"].astype(np.float32)
    elif "raw_data" in blob:
        kinds = {"DOUBLE": "<f8", "FLOAT": "<f4", "FLOAT16": "<f2"}
        kind = kinds.get(blob.get("raw_data_type", "DOUBLE"))
        raw = blob["raw_data"]
        if kind is None or len(raw) % np.dtype(kind).itemsize:
            raise ModelFileError(f"{what} is damaged, or of a type without a reader")
        data = np.frombuffer(raw, kind).astype(np.float32)
    else:
        data = np.zeros(0, np.float32)
    if "shape" in blob:
        shape = blob["shape"].get("dim", [])
    elif any(k in blob for k in ("num", "channels", "height", "width")):
        shape = [blob.get(k, 1) for k in ("num", "channels", "height", "width")]
    else:
        shape = [len(data)]
    if not possible_shape(shape) or math.prod(shape) != len(data):
        raise ModelFileError(f"{what} has {len(data)} numbers for the shape {shape!r:.100}")
    return np.ascontiguousarray(data, np.float32).reshape(shape)


# --- inputs ---------------------------------------------------------------------------------


def _inputs(net: Mapping[str, Any], layers: list[Described]) -> list[Input]:
    names = list(net.get("input", []))
    shapes: list[Any] = [s.get("dim", []) for s in net.get("input_shape", [])]
    flat = net.get("input_dim", [])
    if not shapes and flat:
        shapes = [flat[i : i + 4] for i in range(0, len(flat), 4)]
    shapes += [None] * (len(names) - len(shapes))
    for layer in layers:
        if layer.type == "Input":
            settings = layer.settings.get("input_param") or {}
            given = [s.get("dim", []) for s in settings.get("shape", [])]
            if len(given) == 1:
                given = given * len(layer.tops)
            names += layer.tops
            shapes += [*given, *[None] * (len(layer.tops) - len(given))][: len(layer.tops)]
        elif layer.type.endswith("Data") and not layer.bottoms:
            raise ModelFileError(
                f"[convert] this net reads its data itself (layer {layer.name!r:.80}, "
                f"{layer.type:.40}): it is a net for training. Give the net for inference, whose "
                "inputs are declared (usually called deploy.prototxt)"
            )
    if not names:
        raise ModelFileError("[convert] the net declares no input")
    shapes = [_opened(s, layers) for s in shapes[: len(names)]]
    return [
        Input(name, name, shape, "float32", free=True)
        for name, shape in zip(names, shapes, strict=True)
    ]


def _opened(shape: Any, layers: list[Described]) -> Any:
    """A declared shape with an open batch, unless some layer counts on the batch."""
    if shape is None:
        return None
    if not shape or not possible_shape(shape):
        raise ModelFileError(f"[convert] an input cannot have the shape {shape!r:.200}")
    fixed = any(_fixes_batch(layer) for layer in layers)
    return tuple(shape) if fixed else ("batch", *shape[1:])


def _fixes_batch(layer: Described) -> bool:
    if layer.type != "Reshape":
        return False
    settings = layer.settings.get("reshape_param") or {}
    sizes = (settings.get("shape") or {}).get("dim", [])
    return not settings.get("axis") and bool(sizes) and sizes[0] > 0


# --- nodes ----------------------------------------------------------------------------------


class _Maker:
    """Nodes and the weights that they take."""

    def __init__(self) -> None:
        self.weights: dict[str, np.ndarray] = {}
        self.trained: set[str] = set()
        self.labels: dict[str, str] = {}
        self._shared: dict[str, str] = {}

    def node(self, layer: Described) -> Node:
        attrs: dict[str, Any] = {"outputs": len(layer.tops), "bottoms": len(layer.bottoms)}
        for message in layer.settings.values():
            attrs.update(message or {})
        names = [] if layer.type == "Split" else self._blobs(layer)
        return Node(
            layer.type,
            (*layer.bottoms, *names),
            tuple(layer.tops),
            attrs,
            f"the layer {layer.name!r:.80}",
        )

    def _blobs(self, layer: Described) -> list[str]:
        kinds = _BLOBS.get(layer.type, ("weight", "bias"))
        arrays = layer.blobs
        if layer.type == "BatchNorm" and len(arrays) >= 3:
            # The statistics are sums; the third blob is what they are divided by.
            count = float(arrays[2].ravel()[0]) if arrays[2].size else 0.0
            scale = np.float32(0.0 if count == 0 else 1.0 / count)
            arrays = [arrays[0] * scale, arrays[1] * scale, *arrays[3:]]
            kinds = ("mean", "variance", "weight", "bias")
        names = []
        for i, array in enumerate(arrays):
            kind = kinds[i] if i < len(kinds) else f"blob{i}"
            owner = layer.shared[i] if i < len(layer.shared) else ""
            if owner in self._shared:
                names.append(self._shared[owner])
                continue
            # In the graph a slash and a number keep weights apart from values.
            name = f"{layer.name}/{len(self.weights)}/{kind}"
            self.weights[name] = array
            self.labels[name] = f"{layer.name.replace('.', '_')}.{kind}"
            if (layer.type, kind) not in _NOT_TRAINED:
                self.trained.add(name)
            if owner:
                self._shared[owner] = name
            names.append(name)
        return names
