"""Calling a layer that has hooks. Layers without any never come here."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from bireme.core.errors import InvalidArgument

if TYPE_CHECKING:
    from bireme.nn.layer.layer import Layer


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
