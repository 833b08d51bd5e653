"""Attention on the CPU by a native kernel: scores exist only as small tiles in the cache.

The gradient needs each row's logarithm of the sum of exponentials. Within one program the forward
kernel leaves it there, otherwise it is computed again. Half precision is computed in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core import jax_door, random
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.lowering import leave, left
from bireme.core.op import Call
from bireme.kernels import native

# With fewer queries (a step of decoding) most of the time would go into packing the keys.
_FEWEST_QUERIES = 16
_KINDS = (dt.float32, dt.bfloat16, dt.float16)


def _accepts(call: Call) -> bool:
    query, key, value = call.types[:3]
    if not (isinstance(query, Aval) and isinstance(key, Aval) and isinstance(value, Aval)):
        return False
    return (
        (call.casts[0] or query.dtype) in _KINDS
        and query.is_static
        and key.is_static
        and value.is_static
        and min(query.size, key.size, value.size) > 0
        and query.shape[1] >= _FEWEST_QUERIES
        # The draws' positions are 32 bits wide.
        and query.shape[0] * query.shape[1] * query.shape[2] * key.shape[1] < 2**32
    )


def _operands(call: Call, flat: Any) -> tuple[Any, ...]:
    """What both handlers take: query, key, value, mask, the two factors, the dropout's key."""
    jnp = jax_door.jnp()
    query, key, value, mask, scale, threshold, keep_scale, seed, offset = flat
    arrays = [x.astype(np.float32) for x in (query, key, value)]
    if mask is None or call.attrs["causal"]:
        mask = jnp.zeros((0,), np.float32)
    else:
        if mask.dtype == np.bool_:
            mask = jnp.where(mask, np.float32(0), np.float32(-np.inf))
        mask = mask.astype(np.float32).reshape((1,) * (4 - mask.ndim) + mask.shape)
        mask = jnp.broadcast_to(mask, (*mask.shape[:3], key.shape[1]))
    factors = [jnp.reshape(jnp.asarray(scale), (1,)).astype(np.float32)]
    if threshold is None:
        factors.append(jnp.ones((1,), np.float32))
        words = jnp.zeros((4,), np.uint32)
    else:
        factors.append(jnp.reshape(jnp.asarray(keep_scale), (1,)).astype(np.float32))
        limit = jnp.reshape(jnp.asarray(threshold), (1,)).astype(np.uint32)
        words = jnp.concatenate([*random._key(jnp, seed, offset, 0), limit])
    return (*arrays, mask, jnp.concatenate(factors), words)


def _settings(call: Call) -> dict[str, Any]:
    return {"causal": np.bool_(call.attrs["causal"]), "drops": np.bool_(call.types[5] is not None)}


def _forward(call: Call, operands: tuple[Any, ...]) -> tuple[Any, Any]:
    jax = jax_door.jax()
    query, value = operands[0], operands[2]
    batch, length, heads, _ = query.shape
    shapes = (
        jax.ShapeDtypeStruct((batch, length, heads, value.shape[3]), np.float32),
        jax.ShapeDtypeStruct((batch, heads, length), np.float32),
    )
    return jax.ffi.ffi_call("bireme_attention_forward", shapes)(*operands, **_settings(call))


@kernel(
    "attention",
    name="native_attention",
    platform="cpu",
    accepts=_accepts,
    ready=native.available,
)
def _attention(call: Call, *flat: Any) -> Any:
    out, sums = _forward(call, _operands(call, flat))
    out = out.astype(flat[0].dtype)
    # By the result: it stands for these inputs, this mask and this key of the dropout.
    leave(call, (out,), sums)
    return out


@kernel(
    "attention_grad",
    name="native_attention",
    platform="cpu",
    accepts=lambda call: (
        call.types[0] is not None
        and _accepts(call.attrs["forward"])
        and max(call.attrs["needs"]) < 3
    ),
    ready=native.available,
)
def _attention_grad(call: Call, grad: Any, *saved: Any) -> Any:
    jax = jax_door.jax()
    forward: Call = call.attrs["forward"]
    by_place = dict(zip(forward.saved_at, saved, strict=True))
    out = by_place[-1]
    flat = forward.cast(jax.numpy, [by_place.get(i) for i in range(len(forward.types))])
    operands = _operands(forward, flat)
    sums = left(forward, (out,))
    if sums is None:
        _, sums = _forward(forward, operands)
    shapes = tuple(jax.ShapeDtypeStruct(x.shape, np.float32) for x in operands[:3])
    wide = (out.astype(np.float32), sums, grad.astype(np.float32))
    run = jax.ffi.ffi_call("bireme_attention_backward", shapes)
    found = run(*operands, *wide, **_settings(forward))
    return tuple(
        found[i].astype(forward.types[i].dtype.numpy)  # type: ignore[union-attr]
        for i in call.attrs["needs"]
    )
