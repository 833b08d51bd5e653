"""`bireme.lite.export`: any model that Bireme can read, as a file for Bireme Lite."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.errors import InvalidArgument

if TYPE_CHECKING:
    from bireme.core.graph import Graph
    from bireme.nn.layer.layer import Layer

ENDING = ".blm"


def export(
    model: str | PathLike[str] | Layer | Callable[..., Any],
    path: str | PathLike[str],
    input_spec: Sequence[Any] | None = None,
    weights: str = "float32",
) -> str:
    """Write a model as `path.blm`; returns the file's name.

    `model` is a layer (exported in eval mode), a function, or the path of what `jit.save`, Paddle,
    PyTorch (`.pt2`), ONNX, TFLite, Keras or Caffe saved. Sizes that `input_spec` leaves open (None)
    are given at run time. `weights` are stored as "float32", "float16" (half of the file) or "int8"
    (a quarter); the runtime computes in float32.
    """
    from bireme.io.atomic import replacing
    from bireme.lite.exporter import write_graph

    target = os.fspath(path)
    if not os.path.basename(target):
        raise InvalidArgument(f"path must be a file name. Received: {path!r}")
    target = target.removesuffix(ENDING) + ENDING
    if isinstance(model, str | os.PathLike):
        graph, inputs, outputs = _of_file(os.fspath(model), input_spec)
    else:
        graph, inputs, outputs = _of_function(model, input_spec)
    with replacing(target) as file:
        write_graph(graph, file, inputs, outputs, weights)
    return target


_Read = tuple["Graph", list[str], list[str]]


def _of_file(path: str, input_spec: Sequence[Any] | None) -> _Read:
    from bireme import convert
    from bireme.convert.paddle import find_files
    from bireme.inference.config import Config
    from bireme.inference.net import Net

    stem = path.removesuffix(".json")
    if find_files(path) is None and not os.path.exists(f"{stem}.json"):
        return _of_function(convert.load(path), input_spec)
    if input_spec is not None:
        raise InvalidArgument(
            f"{path!r} says itself what it takes: leave input_spec out, or load it with "
            "paddle.jit.load and export the layer"
        )
    net = Net(Config(stem))
    return net.prepared(net.types).graph, list(net.inputs), list(net.outputs)


def _of_function(model: Any, input_spec: Sequence[Any] | None) -> _Read:
    from bireme import passes
    from bireme.jit.saving import in_mode, resolve
    from bireme.jit.static_function import capture_with_specs

    if input_spec is None and hasattr(model, "input_specs"):
        declared: Any = model.input_specs
        input_spec = declared() if callable(declared) else declared  # type: ignore[assignment]
    function, owner, found = resolve(model, input_spec)
    if owner is None:
        captured = capture_with_specs(function, found)
    else:
        with in_mode(owner, training=False):
            captured = capture_with_specs(function, found, layer=owner)
    graph = captured.graph
    count = len(captured.op.given) - len(captured.outer)
    constants = dict(graph.constants)
    free = [i for i in range(len(graph.inputs)) if i not in constants]
    weights = [np.asarray(t._array()) for t in captured.outer]
    constants.update(zip(free[count:], weights, strict=True))
    outputs = graph.outputs[: len(captured.tracked)]
    graph = passes.run(graph.copy(outputs=outputs, constants=constants))
    given = [i for i in range(len(graph.inputs)) if i not in graph.constants]
    names = [graph.names.get(-1 - i, f"input_{n}") for n, i in enumerate(given)]
    results = list(getattr(model, "output_names", []))
    if len(results) != len(outputs):
        results = [f"output_{i}" for i in range(len(outputs))]
    return graph, names, results
