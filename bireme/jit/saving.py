"""jit.save and jit.load."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bireme.core.errors import CaptureError, InvalidArgument
from bireme.jit import artifact as artifacts
from bireme.jit.static_function import StaticFunction, capture_with_specs, tree_specs


def save(layer: Any, path: str, input_spec: Sequence[Any] | None = None) -> None:
    """Write a layer or function as `path.json` (its graphs) and `path.safetensors` (weights).

    `input_spec` describes the inputs; sizes given as None stay open. A Layer is captured in
    eval mode and, where possible, in training mode too, so that it can be trained further.
    """
    path = _checked_path(path)
    target, owner, specs = resolve(layer, input_spec)
    made = artifacts.Artifact()
    if owner is None:
        made.add("eval", capture_with_specs(target, specs))
    else:
        with in_mode(owner, training=False):
            made.add("eval", capture_with_specs(target, specs, layer=owner))
        try:
            with in_mode(owner, training=True):
                made.add("train", capture_with_specs(target, specs, layer=owner))
        except CaptureError:
            made.programs.pop("train", None)
    artifacts.write(made, path)


def load(path: str, **configs: Any) -> Any:
    """A model that `save` wrote, as a Layer in eval mode. Its source code is not needed.

    Paddle's own files (`.pdmodel`, `__model__`, PIR's `.json`) load too; `model_filename` and
    `params_filename` name them where they lie in a folder under other names.
    """
    from bireme.convert.paddle.model import read_as_layer
    from bireme.jit.translated_layer import from_artifact

    names = configs.pop("model_filename", None), configs.pop("params_filename", None)
    if configs:
        raise InvalidArgument(
            f"[jit.load] takes model_filename and params_filename. Received: {sorted(configs)}"
        )
    foreign = (
        read_as_layer(os.fspath(path), *names) if isinstance(path, str | os.PathLike) else None
    )
    if foreign is not None:
        return foreign
    return from_artifact(artifacts.read(_checked_path(path)))


def resolve(layer: Any, input_spec: Sequence[Any] | None) -> tuple[Any, Any, list[Any]]:
    """(function, the layer it belongs to or None, specs) of what is to be captured."""
    from bireme.nn.layer.layer import Layer

    function = layer.forward if isinstance(layer, Layer) else layer
    owner = layer if isinstance(layer, Layer) else getattr(layer, "_layer", None)
    if not callable(function):
        raise InvalidArgument(
            f"a Layer or a function was expected. Received: {type(layer).__name__}"
        )
    if input_spec is None and isinstance(function, StaticFunction):
        input_spec = function._input_spec
    if input_spec is None:
        raise InvalidArgument(
            "the inputs are not known: give input_spec=[InputSpec([None, 3, 224, 224]), ...] here "
            "or to to_static"
        )
    plain = function._function if isinstance(function, StaticFunction) else function
    if not tree_specs(list(input_spec)) and input_spec:
        raise InvalidArgument(
            f"input_spec must hold InputSpec or Tensor. Received: {list(input_spec)!r:.200}"
        )
    return plain, owner, list(input_spec)


@contextmanager
def in_mode(layer: Any, training: bool) -> Iterator[None]:
    """The layer in eval or training mode, then every sublayer as it was."""
    before = [(inner, inner.training) for inner in layer.sublayers(include_self=True)]
    if layer.training != training:
        layer.train(training)
    try:
        yield
    finally:
        for inner, was in before:
            inner.training = was


def _checked_path(path: Any) -> str:
    if not isinstance(path, str | os.PathLike):
        raise InvalidArgument(f"a path was expected. Received: {type(path).__name__}")
    text = os.fspath(path)
    for ending in (".json", ".safetensors"):
        text = text.removesuffix(ending)
    if not os.path.basename(text):
        raise InvalidArgument(
            f"the path must end in a name for the model, such as 'out/model'. Received: {path!r}"
        )
    return text
