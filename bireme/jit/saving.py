"""jit.save and jit.load."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bireme.core.errors import CaptureError, InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.jit import artifact as artifacts
from bireme.jit.ports import Port
from bireme.jit.static_function import StaticFunction, capture_with_specs, tree_specs
from bireme.static.input_spec import InputSpec

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
    saves what the hooks of the layer do too. Inputs that the results do not need may be left out:
    `input_names_after_prune` names the others, or `input_spec` lists fewer than were declared.
    Where the inputs are known from examples only, the size of their batch stays open if it can.
    """
    path = _checked_path(path)
    artifacts.write(captured(layer, input_spec, **configs), path)


def captured(
    layer: Layer | Callable[..., Any], input_spec: Sequence[Any] | None = None, **configs: Any
) -> artifacts.Artifact:
    """The artifact that `save` writes."""
    chosen, with_hook, kept = _options(configs)
    input_spec, kept = _declared(layer, input_spec, kept)
    target, owner, specs = resolve(layer, input_spec)
    opened = _opened(specs, all_of_them=_known_from_calls(layer, input_spec))
    if with_hook and owner is not None:
        target = _called(owner, target)
    made = artifacts.Artifact()
    if owner is None:
        made.add("eval", _captured_open(target, specs, opened, None), chosen, kept)
    else:
        _add(made, "", owner, target, specs, opened, chosen, kept)
        for name, method in _other_methods(owner).items():
            known = method.known_specs() or []
            opened = _opened(known, all_of_them=_known_from_calls(method, None))
            _add(made, f":{name}", owner, method._function, known, opened)
    return made


def _add(
    made: artifacts.Artifact,
    suffix: str,
    owner: Any,
    target: Any,
    specs: Any,
    opened: Any,
    chosen: list[int] | None = None,
    kept: list[str] | None = None,
) -> None:
    """Capture a method in eval mode and, where that works, in training mode."""
    with in_mode(owner, training=False):
        made.add("eval" + suffix, _captured_open(target, specs, opened, owner), chosen, kept)
    try:
        with in_mode(owner, training=True):
            made.add("train" + suffix, _captured_open(target, specs, opened, owner), chosen, kept)
    except CaptureError:
        made.programs.pop("train" + suffix, None)


def _captured_open(target: Any, specs: Any, opened: Any, owner: Any) -> Any:
    """The function with the size of its batch open, or as its examples are if it needs that."""
    if opened is not None:
        with contextlib.suppress(Exception):  # whatever refuses an open size has its examples
            return capture_with_specs(target, opened, layer=owner)
    return capture_with_specs(target, specs, layer=owner)


def _declared(
    layer: Any, given: Sequence[Any] | None, kept: list[str] | None
) -> tuple[Sequence[Any] | None, list[str] | None]:
    """(what to capture with, the names of the inputs to keep): a function under
    `to_static(input_spec=...)` may be saved with some of its inputs."""
    function = getattr(layer, "forward", layer)
    declared = function._input_spec if isinstance(function, StaticFunction) else None
    if declared is None or given is None:
        return given, kept
    some, whole = tree_specs(list(given)), function.inputs  # those have names
    if len(some) >= len(whole):
        return given, kept
    names = {s.name for s in whole}
    for spec in some:
        if spec.name not in names:
            raise InvalidArgument(
                "[jit.save] an input_spec of some of the declared inputs must name them: "
                f"{sorted(map(str, names))}. Received: {spec}"
            )
    return declared, kept or [str(s.name) for s in some]


def _known_from_calls(layer: Any, given: Any) -> bool:
    function = getattr(layer, "forward", layer)
    return given is None and isinstance(function, StaticFunction) and function._input_spec is None


def _opened(specs: list[Any], all_of_them: bool) -> list[Any] | None:
    """The specs with an open first size where an example has that of the first example; None if
    there are no examples."""
    sizes: list[int] = []

    def visit(spec: Any) -> Any:
        if isinstance(spec, list | tuple):
            return type(spec)([visit(s) for s in spec])
        if isinstance(spec, dict):
            return {k: visit(s) for k, s in spec.items()}
        if isinstance(spec, Tensor):
            spec = InputSpec(spec.shape, spec.dtype, spec._name)
        elif not (all_of_them and isinstance(spec, InputSpec)):
            return spec
        batch: Any = spec.shape[0] if spec.shape else None
        if isinstance(batch, int) and batch > 0:
            sizes.append(batch)
            if batch == sizes[0]:
                return InputSpec([None, *spec.shape[1:]], spec.dtype, spec.name)
        return spec

    made = visit(list(specs))
    return made if sizes else None


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
    "separate_parameters": "all weights are in one safetensors file",
    "skip_forward": "a saved model is the forward of its layer",
}


def _options(configs: dict[str, Any]) -> tuple[list[int] | None, bool, list[str] | None]:
    """(positions of the results to keep, whether hooks are saved, names of the inputs to keep)
    among Paddle's options."""
    for name, why in _REFUSED.items():
        if configs.pop(name, None):
            raise InvalidArgument(f"[jit.save] {name} is not taken: {why}")
    for name in _ABOUT_FILES:
        configs.pop(name, None)
    chosen, with_hook = configs.pop("output_spec", None), configs.pop("with_hook", False)
    kept = configs.pop("input_names_after_prune", None)
    if kept is not None and not all(isinstance(name, str) for name in kept):
        raise InvalidArgument(
            f"[jit.save] input_names_after_prune is a list of names. Received: {kept!r:.200}"
        )
    if configs:
        known = ", ".join(("output_spec", "with_hook", "input_names_after_prune", *_ABOUT_FILES))
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
    return (
        None if chosen is None else list(chosen), bool(with_hook), list(kept) if kept else None,
    )  # fmt: skip


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
