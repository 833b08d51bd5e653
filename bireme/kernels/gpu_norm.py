"""Layer and root-mean-square norm on GPUs: rows' statistics are written once and read again.

Left alone, the compiler computes them again in each of the gradient's kernels, and keeps a
float32 copy of the whole activation for the sums over rows.
"""

from __future__ import annotations

from typing import Any

from bireme.core import jax_door
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.lowering import leave, left
from bireme.core.op import Call
from bireme.ops import norm
from bireme.ops.nn_support import wide


def _accepts(call: Call) -> bool:
    x = call.types[0]
    return isinstance(x, Aval) and x.is_static and x.size > 0


def _rows(call: Call, x: Any) -> Any:
    jnp = jax_door.jnp()
    return wide(jnp, norm._flat(jnp, x, call.attrs["dims"]))


def _scaled(unit: Any, weight: Any) -> Any:
    jnp = jax_door.jnp()
    return unit if weight is None else unit * jnp.reshape(wide(jnp, weight), (-1,))


def _fitted(call: Call, by_input: dict[int, Any]) -> tuple[Any, ...]:
    """The gradients that are wanted, in their inputs' shapes and types."""
    jnp = jax_door.jnp()
    results = []
    for i in call.attrs["needs"]:
        t: Any = call.attrs["forward"].types[i]
        results.append(jnp.reshape(by_input[i], t.shape).astype(t.dtype.numpy))
    return tuple(results)


@kernel("layer_norm", name="kept_statistics", platform="gpu", accepts=_accepts)
def _layer_norm(call: Call, x: Any, weight: Any, bias: Any) -> Any:
    jax = jax_door.jax()
    jnp = jax.numpy
    rows = _rows(call, x)
    mean, variance = norm._moments(jnp, rows, (1,))
    factor = norm._rsqrt(jnp, variance + call.attrs["epsilon"])
    mean, factor = jax.lax.optimization_barrier((mean, factor))
    leave(call, (x,), (mean, factor))
    out = _scaled((rows - mean) * factor, weight)
    if bias is not None:
        out = out + jnp.reshape(wide(jnp, bias), (-1,))
    return jnp.reshape(out.astype(x.dtype), x.shape)


@kernel(
    "layer_norm_grad",
    name="kept_statistics",
    platform="gpu",
    accepts=lambda call: _accepts(call.attrs["forward"]),
)
def _layer_norm_grad(call: Call, grad: Any, x: Any, weight: Any) -> Any:
    jnp = jax_door.jnp()
    forward: Call = call.attrs["forward"]
    found = left(forward, (x,))
    if found is None:
        return call.op.lower(jnp, call, [grad, x, weight])
    mean, factor = found
    unit = (_rows(forward, x) - mean) * factor
    pull = _rows(forward, grad)
    scaled = _scaled(pull, weight)
    by_input = {
        0: norm._pull(jnp, scaled, unit, factor, (1,)),
        1: jnp.sum(pull * unit, axis=0),
        2: jnp.sum(pull, axis=0),
    }
    return _fitted(call, by_input)


@kernel("rms_norm", name="kept_statistics", platform="gpu", accepts=_accepts)
def _rms_norm(call: Call, x: Any, weight: Any) -> Any:
    jax = jax_door.jax()
    jnp = jax.numpy
    rows = _rows(call, x)
    square = jnp.mean(rows * rows, axis=1, keepdims=True)
    factor = jax.lax.optimization_barrier(norm._rsqrt(jnp, square + call.attrs["epsilon"]))
    leave(call, (x,), factor)
    return jnp.reshape(_scaled(rows * factor, weight).astype(x.dtype), x.shape)


@kernel(
    "rms_norm_grad",
    name="kept_statistics",
    platform="gpu",
    accepts=lambda call: _accepts(call.attrs["forward"]),
)
def _rms_norm_grad(call: Call, grad: Any, x: Any, weight: Any) -> Any:
    jnp = jax_door.jnp()
    forward: Call = call.attrs["forward"]
    factor = left(forward, (x,))
    if factor is None:
        return call.op.lower(jnp, call, [grad, x, weight])
    unit = _rows(forward, x) * factor
    pull = _rows(forward, grad)
    scaled = _scaled(pull, weight)
    slope = jnp.mean(scaled * unit, axis=1, keepdims=True)
    return _fitted(call, {0: factor * (scaled - unit * slope), 1: jnp.sum(pull * unit, axis=0)})
