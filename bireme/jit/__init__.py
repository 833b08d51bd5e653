"""Capturing functions and layers as graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.jit.convert import ignore_module, set_code_level, set_verbosity
from bireme.jit.saving import load, save
from bireme.jit.static_function import CaptureWarning, StaticFunction, enable_to_static

if TYPE_CHECKING:
    from bireme.jit.translated_layer import TranslatedLayer


def to_static(
    function: Any = None,
    input_spec: Sequence[Any] | None = None,
    build_strategy: object = None,
    backend: str | None = "CINN",
    *,
    full_graph: bool = False,
    property: bool = False,
) -> Any:
    """Run a function or layer as one captured graph per signature.

    Control flow that depends on tensors becomes part of the graph, in the function itself and in
    the user's functions and layers that it calls. With `input_spec`, sizes given as None stay
    open: one graph serves them all. A function that cannot be captured runs eagerly, with a
    warning that says why; `full_graph=True` raises instead. `build_strategy` and `backend`
    choose among Paddle's compilers; here there is one. `property=True` marks a method that answers
    with a plain value, which needs no graph: it stays as it is.
    """
    _check_compiler(build_strategy, backend)

    def decorate(target: Any) -> Any:
        from bireme.nn.layer.layer import Layer

        if isinstance(target, StaticFunction):
            if input_spec is None:
                return target
            return StaticFunction(target._function, target._layer, input_spec, full_graph)
        if isinstance(target, Layer):
            forward = target.forward
            if isinstance(forward, StaticFunction) and input_spec is None:
                return target
            inner = forward._function if isinstance(forward, StaticFunction) else forward
            target.forward = StaticFunction(inner, target, input_spec, full_graph)
            return target
        if not callable(target):
            raise InvalidArgument(
                f"to_static takes a function or a Layer. Received: {type(target).__name__}"
            )
        if property or getattr(target, "_not_to_static", False):
            return target
        owner = getattr(target, "__self__", None)
        layer = owner if isinstance(owner, Layer) else None
        return StaticFunction(target, layer, input_spec, full_graph)

    return decorate if function is None else decorate(function)


def _check_compiler(build_strategy: Any, backend: Any) -> None:
    if backend is not None and str(backend).upper() != "CINN":
        raise InvalidArgument(f"[to_static] the backend is 'CINN' or None. Received: {backend!r}")
    if build_strategy is not None:
        from bireme.static.compiled import BuildStrategy

        if not isinstance(build_strategy, BuildStrategy):
            raise TypeMismatch(
                "[to_static] build_strategy must be a static.BuildStrategy. Received: "
                f"{type(build_strategy).__name__}"
            )


def not_to_static(func: Callable[..., Any] | None = None) -> Any:
    """Mark a function so that `to_static` leaves it as it is."""

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        function._not_to_static = True  # pyright: ignore[reportFunctionMemberAccess]
        return function

    return mark if func is None else mark(func)


def __getattr__(name: str) -> Any:
    if name == "TranslatedLayer":  # needs nn, which most users of jit have loaded anyway
        from bireme.jit.translated_layer import TranslatedLayer

        return TranslatedLayer
    raise AttributeError(f"module 'bireme.jit' has no attribute {name!r}")


__all__ = [
    "CaptureWarning",
    "StaticFunction",
    "TranslatedLayer",
    "enable_to_static",
    "ignore_module",
    "load",
    "not_to_static",
    "save",
    "set_code_level",
    "set_verbosity",
    "to_static",
]
