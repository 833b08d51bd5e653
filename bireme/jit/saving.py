"""jit.save and jit.load."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bireme.core.errors import CaptureError, InvalidArgument, TypeMismatch
from bireme.jit import artifact as artifacts
from bireme.jit.ports import Port
from bireme.jit.static_function import StaticFunction, capture_with_specs, tree_specs

if TYPE_CHECKING:
    from bireme.convert.paddle.model import PaddleModel
    from bireme.jit.translated_layer import TranslatedLayer
    from bireme.nn.layer.layer import Layer


def save(
    layer: Layer | Callable[..., Any],
    path: str,
    input_spec: Sequence[Any] | None = None,
    **configs: Any,
) -> None:
    """Write a layer or function as `path.json` (its graphs) and `path.safetensors` (weights).

    `input_spec` describes the inputs; sizes given as None stay open. A Layer is captured in
    eval mode and, where possible, in training mode too, so that it can be trained further. Its
    other methods under `to_static(input_spec=...)` are saved with it.

    Among `configs`, `output_spec` keeps the results at these positions only, and `with_hook=True`
    saves what the hooks of the layer do too.
    """
    path = _checked_path(path)
    artifacts.write(captured(layer, input_spec, **configs), path)


def captured(
    layer: Layer | Callable[..., Any], input_spec: Sequence[Any] | None = None, **configs: Any
) -> artifacts.Artifact:
    """The artifact that `save` writes."""
    chosen, with_hook = _options(configs)
    target, owner, specs = resolve(layer, input_spec)
    if with_hook and owner is not None:
        target = _called(owner, target)
    made = artifacts.Artifact()
    if owner is None:
        made.add("eval", capture_with_specs(target, specs), chosen)
    else:
        _add(made, "", owner, target, specs, chosen)
        for name, method in _other_methods(owner).items():
            _add(made, f":{name}", owner, method._function, method.known_specs() or [], None)
    return made


def _add(
    made: artifacts.Artifact, suffix: str, owner: Any, target: Any, specs: Any, chosen: Any
) -> None:
    """Capture a method in eval mode and, where that works, in training mode."""
    with in_mode(owner, training=False):
        made.add("eval" + suffix, capture_with_specs(target, specs, layer=owner), chosen)
    try:
        with in_mode(owner, training=True):
            made.add("train" + suffix, capture_with_specs(target, specs, layer=owner), chosen)
    except CaptureError:
        made.programs.pop("train" + suffix, None)


def _other_methods(layer: Any) -> dict[str, StaticFunction]:
    """The methods under `to_static`, except forward, whose inputs are known."""
    from bireme.nn.layer.layer import Layer

    if not isinstance(layer, Layer):
        return {}
    names = {n for c in type(layer).__mro__ for n, v in vars(c).items() if _is_static(v)}
    names |= {n for n, v in vars(layer).items() if _is_static(v)}
    found = {n: getattr(layer, n) for n in sorted(names - {"forward"})}
    return {n: f for n, f in found.items() if f.known_specs() is not None}


def _is_static(thing: Any) -> bool:
    return isinstance(thing, StaticFunction)


# Paddle's options about its own files, which change nothing in ours.
_ABOUT_FILES = ("clip_extra", "combine_params", "skip_prune_program")
# Those that would change something, and why they are not taken.
_REFUSED = {
    "input_names_after_prune": "every input of the function stays one of the model",
    "separate_parameters": "all weights are in one safetensors file",
    "skip_forward": "a saved model is the forward of its layer",
}


def _options(configs: dict[str, Any]) -> tuple[list[int] | None, bool]:
    """(positions of the results to keep, whether hooks are saved) among Paddle's options."""
    for name, why in _REFUSED.items():
        if configs.pop(name, None):
            raise InvalidArgument(f"[jit.save] {name} is not taken: {why}")
    for name in _ABOUT_FILES:
        configs.pop(name, None)
    chosen, with_hook = configs.pop("output_spec", None), configs.pop("with_hook", False)
    if configs:
        known = ", ".join(("output_spec", "with_hook", *_ABOUT_FILES))
        raise InvalidArgument(f"[jit.save] takes {known}. Received: {sorted(configs)}")
    if isinstance(chosen, list | tuple):
        chosen = [c.position if isinstance(c, Port) else c for c in chosen]
    if chosen is not None and (
        not isinstance(chosen, list | tuple) or not all(type(i) is int for i in chosen)
    ):
        raise InvalidArgument(
            "[jit.save] output_spec is a list of positions among the results, such as [0, 2], or "
            "of a function's outputs, such as net.forward.outputs[:1]. "
            f"Received: {chosen!r:.200}"
        )
    return None if chosen is None else list(chosen), bool(with_hook)


def _called(layer: Any, forward: Any) -> Any:
    """The layer as it is called: its forward, between its hooks."""

    @functools.wraps(forward)
    def call(*inputs: Any, **named: Any) -> Any:
        return layer(*inputs, **named)

    return call


def load(path: str, **configs: Any) -> TranslatedLayer | PaddleModel:
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


def resolve(
    layer: Layer | Callable[..., Any], input_spec: Sequence[Any] | None
) -> tuple[Any, Any, list[Any]]:
    """(function, the layer it belongs to or None, specs) of the function to capture."""
    from bireme.nn.layer.layer import Layer

    parallel = sys.modules.get("bireme.distributed.parallel")
    if isinstance(layer, Layer) and parallel and isinstance(layer, parallel.DataParallel):
        layer = layer._layers
    function = layer.forward if isinstance(layer, Layer) else layer
    owner = layer if isinstance(layer, Layer) else getattr(layer, "_layer", None)
    if not callable(function):
        raise TypeMismatch(f"a Layer or a function was expected. Received: {type(layer).__name__}")
    if input_spec is None and isinstance(function, StaticFunction):
        input_spec = function.known_specs()
    if input_spec is None:
        raise InvalidArgument(
            "the inputs are not known: give input_spec=[InputSpec([None, 3, 224, 224]), ...] here "
            "or to to_static, or call the function under to_static first"
        )
    plain = function._function if isinstance(function, StaticFunction) else function
    if not tree_specs(list(input_spec)) and input_spec:
        raise InvalidArgument(
            f"input_spec must hold InputSpec or Tensor. Received: {list(input_spec)!r:.200}"
        )
    return plain, owner, list(input_spec)


@contextmanager
def in_mode(layer: Layer, training: bool) -> Iterator[None]:
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
