"""Calls of layers that are more than a call of `forward`: outermost ones, and those with hooks."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from bireme.core import rollback
from bireme.core.errors import InvalidArgument
from bireme.core.trace import state

if TYPE_CHECKING:
    from bireme.nn.layer.layer import Layer


def call_outermost(layer: Layer, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call that is not part of another layer's: unless gradients are still to be computed from
    what was recorded, a step begins with it."""
    trace = state.trace
    if not trace.nodes:
        trace.begin_step()
    start = len(trace.undo)
    try:
        state.trace.in_layer = True
        if layer._forward_pre_hooks or layer._forward_post_hooks:
            return call_with_hooks(layer, inputs, kwargs)
        return layer.forward(*inputs, **kwargs)
    except BaseException:
        if state.trace is trace:
            rollback.abandon_step(trace, start)
        raise
    finally:
        state.trace.in_layer = False


def call_with_hooks(layer: Layer, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Pre hooks, forward, post hooks."""
    called: set[int] = set()
    outputs = None
    try:
        for hook, with_kwargs, _ in list(layer._forward_pre_hooks.values()):
            inputs, kwargs = _before(layer, hook, with_kwargs, inputs, kwargs)
        outputs = layer.forward(*inputs, **kwargs)
        for key, (hook, with_kwargs, _) in list(layer._forward_post_hooks.items()):
            called.add(key)
            result = _after(layer, hook, with_kwargs, inputs, kwargs, outputs)
            if result is not None:
                outputs = result
    except Exception:
        for key, (hook, with_kwargs, always) in list(layer._forward_post_hooks.items()):
            if not always or key in called:
                continue
            try:
                result = _after(layer, hook, with_kwargs, inputs, kwargs, outputs)
                if result is not None:
                    outputs = result
            except Exception as e:
                warnings.warn(
                    f"a forward hook with always_call=True raised while another error was being "
                    f"raised: {e}",
                    stacklevel=2,
                )
        raise
    return outputs


def _before(
    layer: Layer, hook: Any, with_kwargs: bool, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not with_kwargs:
        result = hook(layer, inputs)
        if result is not None:
            inputs = result if isinstance(result, tuple) else (result,)
        return inputs, kwargs
    result = hook(layer, inputs, kwargs)
    if result is None:
        return inputs, kwargs
    if not (isinstance(result, tuple) and len(result) == 2):
        raise InvalidArgument(
            "a forward pre-hook with kwargs must return None or (new_args, new_kwargs). "
            f"Received: {result!r}"
        )
    return result


def _after(
    layer: Layer,
    hook: Any,
    with_kwargs: bool,
    inputs: tuple[Any, ...],
    kwargs: dict[str, Any],
    outputs: Any,
) -> Any:
    if with_kwargs:
        return hook(layer, inputs, kwargs, outputs)
    return hook(layer, inputs, outputs)
