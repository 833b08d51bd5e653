"""Attention of open lengths on NVIDIA GPUs, in programs for many sizes (capture/varying.py).

Rows behind the end are zeros, so that none of what they hold is taken. A causal mask hides them; of
other attention cuDNN is told where the rows end.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.host import jax_door
from bireme.host.arrays import Array
from bireme.kernels.gpu_attention import fits_cudnn
from bireme.kernels.nvidia import available


def _accepts(call: Call) -> bool:
    query, key = call.types[:2]
    if not (isinstance(query, Aval) and isinstance(key, Aval) and fits_cudnn(call)):
        return False
    heads = type(query.shape[2]) is int and type(key.shape[2]) is int
    return heads and not (query.is_static and key.is_static)


def attend(
    causal: bool,
    implementation: str,
    query: Array,
    key: Array,
    value: Array,
    scale: Array,
    rows: Array,
    length: Array,
) -> Array:
    """Attention of padded arrays, of which `rows` and `length` are taken."""
    jax, jnp = jax_door.jax(), jax_door.jnp()
    # The kernel's own scale is a constant. The usual one leaves a factor of exactly 1.
    factor = (scale * math.sqrt(query.shape[3])).astype(query.dtype)
    count, batch = query.shape[1], query.shape[0]
    lengths = {}
    if not causal:
        lengths = {
            "query_seq_lengths": jnp.full((batch,), rows, np.int32),
            "key_value_seq_lengths": jnp.full((batch,), length, np.int32),
        }
    found = jax.nn.dot_product_attention(
        _cleared(query * factor, rows),
        _cleared(key, length),
        _cleared(value, length),
        is_causal=causal,
        implementation=implementation,
        **lengths,
    )
    return found[:, :count]


def _cleared(x: Array, count: Array) -> Array:
    """`x` with zeros behind its first `count` rows, and an even number of rows in all."""
    jnp = jax_door.jnp()
    places = jnp.arange(x.shape[1], dtype=np.int32).reshape(1, -1, 1, 1)
    x = jnp.where(places < count, x, jnp.zeros((), x.dtype))
    return jnp.pad(x, ((0, 0), (0, x.shape[1] % 2), (0, 0), (0, 0)))


def pulled_back(
    causal: bool,
    implementation: str,
    grad: Array,
    query: Array,
    key: Array,
    value: Array,
    scale: Array,
    rows: Array,
    length: Array,
) -> tuple[Array, ...]:
    """The gradients of query, key and value."""
    function = functools.partial(
        attend, causal, implementation, scale=scale, rows=rows, length=length
    )
    _, pull = jax_door.jax().vjp(function, query, key, value)
    places = jax_door.jnp().arange(grad.shape[1], dtype=np.int32).reshape(1, -1, 1, 1)
    return pull(jax_door.jnp().where(places < rows, grad, 0).astype(query.dtype))


def _lengths(query: Array, key: Array) -> list[Array]:
    jnp = jax_door.jnp()
    return [jnp.asarray(x.shape[1]).astype(np.int32) for x in (query, key)]


@kernel("attention", name="cudnn_attention_open", platform="gpu", accepts=_accepts, ready=available)
def _attention(call: Call, query: Any, key: Any, value: Any, mask: Any, scale: Any, *drop: Any):
    function = functools.partial(attend, call.attrs["causal"], "cudnn")
    (out,) = jax_door.padded_call(
        lambda *arrays: [function(*arrays)],
        [((*query.shape[:3], value.shape[3]), query.dtype)],
        query,
        key,
        value,
        scale,
        *_lengths(query, key),
    )
    return out


@kernel(
    "attention_grad",
    name="cudnn_attention_open",
    platform="gpu",
    accepts=lambda call: _accepts(call.attrs["forward"]) and max(call.attrs["needs"]) < 3,
    ready=available,
)
def _attention_grad(call: Call, grad: Any, *saved: Any) -> Any:
    forward: Call = call.attrs["forward"]
    by_place = dict(zip(forward.saved_at, saved, strict=True))
    flat = forward.cast(jax_door.jnp(), [by_place.get(i) for i in range(len(forward.types))])
    query, key, value = flat[:3]
    found = jax_door.padded_call(
        functools.partial(pulled_back, forward.attrs["causal"], "cudnn"),
        [(x.shape, x.dtype) for x in (query, key, value)],
        grad,
        query,
        key,
        value,
        flat[4],
        *_lengths(query, key),
    )
    return tuple(
        found[i].astype(forward.types[i].dtype.numpy)  # type: ignore[union-attr]
        for i in call.attrs["needs"]
    )
