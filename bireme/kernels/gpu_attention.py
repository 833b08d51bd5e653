"""Attention on NVIDIA GPUs by cuDNN's fused kernels: the score matrix is never written.

The gradient needs statistics of each row's softmax: within one program they are residuals of the
forward kernel, otherwise they are computed again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.lowering import keep_residual, residual_of
from bireme.core.op import Call
from bireme.host import jax_door
from bireme.host.arrays import Array
from bireme.kernels.nvidia import available

_WIDEST = 128  # per head, forward and backward


def _kind(call: Call) -> dt.DType | None:
    """The type that the op computes in."""
    first = call.types[0]
    return call.casts[0] or (first.dtype if isinstance(first, Aval) else None)


def fits_cudnn(call: Call) -> bool:
    """Whether cuDNN has a kernel for the call, apart from its sizes being closed."""
    query, key, value, mask = call.types[:4]
    if not (isinstance(query, Aval) and isinstance(key, Aval) and isinstance(value, Aval)):
        return False
    plain = mask is None and call.types[5] is None  # no mask, no dropout
    width = query.shape[3]
    return (
        plain
        and _kind(call) in (dt.bfloat16, dt.float16)
        and type(width) is int
        and {key.shape[3], value.shape[3]} == {width}
        and width % 8 == 0
        and width <= _WIDEST
        and (not call.attrs["causal"] or query.shape[1] == key.shape[1])
    )


def _accepts(call: Call) -> bool:
    query, key = call.types[:2]
    if not (isinstance(query, Aval) and isinstance(key, Aval) and fits_cudnn(call)):
        return False
    return query.is_static and key.is_static and query.size > 0 and key.size > 0


def _function(
    call: Call, scale: Any, implementation: str = "cudnn"
) -> Callable[[Any, Any, Any], Any]:
    """Attention by the kernel, which takes even lengths only in training: others are padded."""
    jax, jnp = jax_door.jax(), jax_door.jnp()
    width = call.types[0].shape[3]  # type: ignore[union-attr]
    causal = call.attrs["causal"]

    def attend(query: Array, key: Array, value: Array) -> Any:
        # The kernel's own scale is a constant. The usual one leaves a factor of exactly 1.
        factor = (scale * math.sqrt(width)).astype(query.dtype)
        batch, rows, length = query.shape[0], query.shape[1], key.shape[1]
        lengths = {}
        if not causal and (rows % 2 or length % 2):
            # A causal mask hides the padding; here the kernel is told where it begins.
            lengths = {
                "query_seq_lengths": jnp.full((batch,), rows, np.int32),
                "key_value_seq_lengths": jnp.full((batch,), length, np.int32),
            }
        found = jax.nn.dot_product_attention(
            *map(_to_even_length, (query * factor, key, value)),
            is_causal=causal,
            implementation=implementation,
            **lengths,
        )
        return found[:, :rows]

    return attend


def _to_even_length(x: Any) -> Any:
    return jax_door.jnp().pad(x, ((0, 0), (0, 1), (0, 0), (0, 0))) if x.shape[1] % 2 else x


@kernel("attention", name="cudnn_attention", platform="gpu", accepts=_accepts, ready=available)
def _attention(call: Call, query: Any, key: Any, value: Any, mask: Any, scale: Any, *drop: Any):
    inputs = (query, key, value)
    out, pull = jax_door.jax().vjp(_function(call, scale), *inputs)
    keep_residual(call, inputs, pull)
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
    pull = residual_of(forward, flat[:3])
    if pull is None:
        _, pull = jax.vjp(_function(forward, flat[4]), *flat[:3])
    found = pull(grad.astype(flat[0].dtype))
    return tuple(
        found[i].astype(forward.types[i].dtype.numpy)  # type: ignore[union-attr]
        for i in call.attrs["needs"]
    )
