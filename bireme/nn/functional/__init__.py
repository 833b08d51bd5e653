"""paddle.nn.functional: the stateless functions behind the layers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from bireme import ops as _ops
from bireme.core.errors import InvalidArgument

# Keywords that Paddle takes besides a function's own.
_INPUT = {"input": "x"}
_OTHER_NAMES: dict[str, dict[str, str]] = {
    "adaptive_avg_pool1d": _INPUT,
    "adaptive_avg_pool2d": _INPUT,
    "adaptive_avg_pool3d": _INPUT,
    "adaptive_max_pool1d": {**_INPUT, "return_indices": "return_mask"},
    "adaptive_max_pool2d": {**_INPUT, "return_indices": "return_mask"},
    "adaptive_max_pool3d": {**_INPUT, "return_indices": "return_mask"},
    "conv1d": _INPUT,
    "conv2d": _INPUT,
    "conv3d": _INPUT,
    "cosine_similarity": {"dim": "axis"},
    "cross_entropy": {"target": "label"},
    "dropout": _INPUT,
    "embedding": _INPUT,
    "fold": {
        **_INPUT,
        "output_size": "output_sizes",
        "kernel_size": "kernel_sizes",
        "stride": "strides",
        "padding": "paddings",
        "dilation": "dilations",
    },
    "glu": {**_INPUT, "dim": "axis"},
    "hardshrink": {**_INPUT, "lambd": "threshold"},
    "interpolate": _INPUT,
    "layer_norm": {**_INPUT, "eps": "epsilon"},
    "log_sigmoid": _INPUT,
    "logsigmoid": _INPUT,
    "normalize": {**_INPUT, "dim": "axis", "eps": "epsilon"},
    "one_hot": _INPUT,
    "pad": _INPUT,
    "pairwise_distance": {"x1": "x", "x2": "y", "eps": "epsilon"},
    "silu": _INPUT,
    "softshrink": {**_INPUT, "lambd": "threshold"},
}


def _taking(function: Callable[..., Any], others: dict[str, str]) -> Callable[..., Any]:
    """`function` under its own and other keywords; positional calls pass straight through."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            for other, own in others.items():
                if other in kwargs:
                    if own in kwargs:
                        raise InvalidArgument(
                            f"[{function.__name__}] {own!r} and {other!r} are the same argument; "
                            "give one of them. Received: both"
                        )
                    kwargs[own] = kwargs.pop(other)
        return function(*args, **kwargs)

    return call


def _functions() -> dict[str, Callable[..., Any]]:
    found = _ops.public(_ops.FUNCTIONAL)
    for name, others in _OTHER_NAMES.items():
        found[name] = _taking(found[name], others)
    return found


globals().update(_functions())

from bireme.nn.functional import flash_attention  # noqa: E402 (a namespace of its own)

__all__ = [*sorted(_functions()), "flash_attention"]
