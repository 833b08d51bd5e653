"""Attention on NVIDIA GPUs by cuDNN's fused kernels: the score matrix is never written.

The gradient needs what the forward kernel knows about each row's softmax: within one program the
forward leaves it there, otherwise it is computed again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from bireme.core import dtype as dt
from bireme.core import jax_door
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.lowering import leave, left
from bireme.core.op import Call
from bireme.kernels.nvidia import available

_WIDEST = 128  # per head, forward and backward


def _kind(call: Call) -> dt.DType | None:
    """The type that the op computes in."""
    first = call.types[0]
    return call.casts[0] or (first.dtype if isinstance(first, Aval) else None)


def _accepts(call: Call) -> bool:
    query, key, value, mask = call.types[:4]
    if not (isinstance(query, Aval) and isinstance(key, Aval) and isinstance(value, Aval)):
        return False
    plain = mask is None and call.types[5] is None  # no mask, no dropout
    widths = {query.shape[3], key.shape[3], value.shape[3]}
    return (
        plain
        and _kind(call) in (dt.bfloat16, dt.float16)
        and query.is_static
        and key.is_static
        and query.size > 0
        and key.size > 0
        and len(widths) == 1
        and query.shape[3] % 8 == 0
        and query.shape[3] <= _WIDEST
        and (not call.attrs["causal"] or query.shape[1] == key.shape[1])
    )


def _function(call: Call, scale: Any) -> Callable[..., Any]:
    jax = jax_door.jax()
    width = call.types[0].shape[3]  # type: ignore[union-attr]

    def attend(query: Any, key: Any, value: Any) -> Any:
        # The kernel's own scale is a constant. The usual one leaves a factor of exactly 1.
        factor = (scale * math.sqrt(width)).astype(query.dtype)
        return jax.nn.dot_product_attention(
            query * factor, key, value, is_causal=call.attrs["causal"], implementation="cudnn"
        )

    return attend


@kernel("attention", name="cudnn_attention", platform="gpu", accepts=_accepts, ready=available)
def _attention(call: Call, query: Any, key: Any, value: Any, mask: Any, scale: Any, *drop: Any):
    inputs = (query, key, value)
    out, pull = jax_door.jax().vjp(_function(call, scale), *inputs)
    leave(call, inputs, pull)
    return out


@kernel(
    "attention_grad",
    name="cudnn_attention",
    platform="gpu",
    accepts=lambda call: _accepts(call.attrs["forward"]) and max(call.attrs["needs"]) < 3,
    ready=available,
)
def _attention_grad(call: Call, grad: Any, *saved: Any) -> Any:
    jax = jax_door.jax()
    forward: Call = call.attrs["forward"]
    by_place = dict(zip(forward.saved_at, saved, strict=True))
    flat = forward.cast(jax.numpy, [by_place.get(i) for i in range(len(forward.types))])
    pull = left(forward, flat[:3])
    if pull is None:
        _, pull = jax.vjp(_function(forward, flat[4]), *flat[:3])
    found = pull(grad.astype(flat[0].dtype))
    return tuple(
        found[i].astype(forward.types[i].dtype.numpy)  # type: ignore[union-attr]
        for i in call.attrs["needs"]
    )
