"""Attention on the CPU by a native kernel: scores exist only as small tiles in the cache.

The gradient needs each row's logarithm of the sum of exponentials. Within one program it is a
residual of the forward kernel, otherwise it is computed again. Half precision is computed in
float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.lowering import keep_residual, residual_of
from bireme.core.op import Call
from bireme.host import thresholds
from bireme.kernels import native
from bireme.kernels.native.calling import Result, ffi_call, in_dtype, namespace
from bireme.ops import random_bits

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
        and query.shape[1] >= thresholds.CPU_ATTENTION_QUERIES
        # The draws' positions are 32 bits wide.
        and query.shape[0] * query.shape[1] * query.shape[2] * key.shape[1] < 2**32
    )


def _operands(call: Call, flat: Any) -> tuple[Any, ...]:
    """What both handlers take: query, key, value, mask, the two factors, the dropout's key."""
    xp = namespace(flat[0])
    query, key, value, mask, scale, threshold, keep_scale, seed, offset = flat
    arrays = [in_dtype(x, np.float32) for x in (query, key, value)]
    if mask is None or call.attrs["causal"]:
        mask = xp.zeros((0,), np.float32)
    else:
        if mask.dtype == np.bool_:
            mask = xp.where(mask, np.float32(0), np.float32(-np.inf))
        mask = mask.astype(np.float32).reshape((1,) * (4 - mask.ndim) + mask.shape)
        mask = xp.broadcast_to(mask, (*mask.shape[:3], key.shape[1]))
    factors = [xp.reshape(xp.asarray(scale), (1,)).astype(np.float32)]
    if threshold is None:
        factors.append(xp.ones((1,), np.float32))
        words = xp.zeros((4,), np.uint32)
    else:
        factors.append(xp.reshape(xp.asarray(keep_scale), (1,)).astype(np.float32))
        limit = xp.reshape(xp.asarray(threshold), (1,)).astype(np.uint32)
        words = xp.concatenate([*random_bits.key_words(xp, seed, offset, 0), limit])
    return (*arrays, mask, xp.concatenate(factors), words)


def _settings(call: Call) -> dict[str, Any]:
    return {"causal": np.bool_(call.attrs["causal"]), "drops": np.bool_(call.types[5] is not None)}


def _forward(call: Call, operands: tuple[Any, ...]) -> tuple[Any, Any]:
    query, value = operands[0], operands[2]
    batch, length, heads, _ = query.shape
    shapes = (
        Result((batch, length, heads, value.shape[3])),
        Result((batch, heads, length)),
    )
    return ffi_call("bireme_attention_forward", shapes)(*operands, **_settings(call))


@kernel(
    "attention",
    name="native_attention",
    platform="cpu",
    accepts=_accepts,
    ready=native.available,
    direct=native.arrived,
)
def _attention(call: Call, *flat: Any) -> Any:
    out, sums = _forward(call, _operands(call, flat))
    out = in_dtype(out, flat[0].dtype)
    # By the result: it stands for these inputs, this mask and this key of the dropout.
    keep_residual(call, (out,), sums)
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
    direct=native.arrived,
)
def _attention_grad(call: Call, grad: Any, *saved: Any) -> Any:
    forward: Call = call.attrs["forward"]
    by_place = dict(zip(forward.saved_at, saved, strict=True))
    out = by_place[-1]
    flat = forward.cast(namespace(grad), [by_place.get(i) for i in range(len(forward.types))])
    operands = _operands(forward, flat)
    sums = residual_of(forward, (out,))
    if sums is None:
        _, sums = _forward(forward, operands)
    shapes = tuple(Result(x.shape) for x in operands[:3])
    wide = (in_dtype(out, np.float32), sums, in_dtype(grad, np.float32))
    run = ffi_call("bireme_attention_backward", shapes)
    found = run(*operands, *wide, **_settings(forward))
    return tuple(
        in_dtype(found[i], forward.types[i].dtype.numpy)  # type: ignore[union-attr]
        for i in call.attrs["needs"]
    )
