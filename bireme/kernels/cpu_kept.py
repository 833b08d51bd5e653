"""Layer norm and dropout on the CPU whose results XLA materializes.

XLA fuses a cheap producer into each of its consumers, through reshapes too, so along the residual
connections of a transformer every fusion recomputed all earlier layers, dropout's draws included:
work that grows with the square of the depth. It does not duplicate a division of two whole arrays,
so the last step here is one. (An optimization barrier is removed before fusion, and a division by a
row's number becomes a product.)
"""

from __future__ import annotations

from typing import Any

from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.host import jax_door
from bireme.ops import norm
from bireme.ops.dropout import kept
from bireme.ops.nn_support import wide


def _accepts(call: Call) -> bool:
    x = call.types[0]
    return isinstance(x, Aval) and x.is_static and x.size > 0


def _divided(numerator: Any, deviation: Any, centred: Any) -> Any:
    """numerator / deviation. What is added is zero; an infinite input has no norm anyway."""
    return numerator / (deviation + 0.0 * centred)


def _statistics(call: Call, x: Any) -> tuple[Any, Any]:
    """The rows' distances from their mean, and their deviations."""
    jnp = jax_door.jnp()
    rows = wide(jnp, norm._flat(jnp, x, call.attrs["dims"]))
    mean, variance = norm._moments(jnp, rows, (1,))
    return rows - mean, jnp.sqrt(variance + call.attrs["epsilon"])


@kernel("layer_norm", name="kept_layer_norm", platform="cpu", accepts=_accepts)
def _layer_norm(call: Call, x: Any, weight: Any, bias: Any) -> Any:
    jnp = jax_door.jnp()
    centred, deviation = _statistics(call, x)
    out = centred
    if weight is not None:
        out = out * jnp.reshape(wide(jnp, weight), (-1,))
    if bias is not None:
        out = out + jnp.reshape(wide(jnp, bias), (-1,)) * deviation
    return jnp.reshape(_divided(out, deviation, centred).astype(x.dtype), x.shape)


@kernel(
    "layer_norm_grad",
    name="kept_layer_norm",
    platform="cpu",
    accepts=lambda call: call.types[0] is not None and _accepts(call.attrs["forward"]),
)
def _layer_norm_grad(call: Call, grad: Any, *saved: Any) -> Any:
    jnp = jax_door.jnp()
    forward: Call = call.attrs["forward"]
    by_place = dict(zip(forward.saved_at, saved, strict=True))
    x, weight = forward.cast(jnp, [by_place.get(i) for i in range(len(forward.types))])[:2]
    centred, deviation = _statistics(forward, x)
    unit = centred / deviation
    grad = wide(jnp, norm._flat(jnp, grad, forward.attrs["dims"]))
    by_input = {1: jnp.sum(grad * unit, axis=0), 2: jnp.sum(grad, axis=0)}
    if weight is not None:
        grad = grad * jnp.reshape(wide(jnp, weight), (-1,))
    mean = jnp.mean(grad, axis=1, keepdims=True)
    slope = jnp.mean(grad * unit, axis=1, keepdims=True)
    by_input[0] = _divided(grad - mean - unit * slope, deviation, centred)
    types: Any = forward.types
    return tuple(
        jnp.reshape(by_input[i], types[i].shape).astype(types[i].dtype.numpy)
        for i in call.attrs["needs"]
    )


def _accepts_dropout(call: Call) -> bool:
    # In half precision the quotient would be off by more than the product.
    x = call.types[0]
    return (
        _accepts(call)
        and isinstance(x, Aval)
        and x.dtype is dt.float32
        and call.attrs["axis"] is None
    )


def _dropped(x: Any, threshold: Any, scale: Any, seed: Any, offset: Any) -> Any:
    jnp = jax_door.jnp()
    keep = kept(jnp, threshold, seed, offset, x.shape)
    return jnp.where(keep, x, 0.0) / jnp.where(keep, (1.0 / scale).astype(x.dtype), 1.0)


@kernel("dropout", name="kept_dropout", platform="cpu", accepts=_accepts_dropout)
def _dropout(call: Call, x: Any, threshold: Any, scale: Any, seed: Any, offset: Any) -> Any:
    return _dropped(x, threshold, scale, seed, offset)


@kernel(
    "dropout_grad",
    name="kept_dropout",
    platform="cpu",
    accepts=lambda call: call.types[0] is not None and _accepts_dropout(call.attrs["forward"]),
)
def _dropout_grad(call: Call, grad: Any, *saved: Any) -> Any:
    forward: Call = call.attrs["forward"]
    by_place = dict(zip(forward.saved_at, saved, strict=True))
    flat = forward.cast(jax_door.jnp(), [by_place.get(i) for i in range(len(forward.types))])
    return (_dropped(grad, *flat[1:]),)
