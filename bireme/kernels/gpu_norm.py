"""Layer norm on GPUs: rows' statistics are written once and read by the gradient.

Left alone, the compiler computes them again in each of the gradient's kernels, and keeps a
float32 copy of the whole activation for the sums over rows.
"""

from __future__ import annotations

from typing import Any

from bireme.core import jax_door
from bireme.core.aval import Aval
from bireme.core.kernels import kernel, leave, left
from bireme.core.op import Call
from bireme.ops import norm
from bireme.ops.nn_support import wide


def _accepts(call: Call) -> bool:
    x = call.types[0]
    return isinstance(x, Aval) and x.is_static and x.size > 0


@kernel("layer_norm", name="kept_statistics", platform="gpu", accepts=_accepts)
def _layer_norm(call: Call, x: Any, weight: Any, bias: Any) -> Any:
    jax = jax_door.jax()
    jnp = jax.numpy
    rows = wide(jnp, norm._flat(jnp, x, call.attrs["dims"]))
    mean, variance = norm._moments(jnp, rows, (1,))
    factor = norm._rsqrt(jnp, variance + call.attrs["epsilon"])
    mean, factor = jax.lax.optimization_barrier((mean, factor))
    leave(call, (x,), (mean, factor))
    out = (rows - mean) * factor
    if weight is not None:
        out = out * jnp.reshape(wide(jnp, weight), (-1,))
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
    dims, needs = forward.attrs["dims"], call.attrs["needs"]
    rows = wide(jnp, norm._flat(jnp, x, dims))
    unit = (rows - mean) * factor
    pull = wide(jnp, norm._flat(jnp, grad, dims))
    by_input: dict[int, Any] = {}
    if 1 in needs:
        by_input[1] = jnp.sum(pull * unit, axis=0)
    if 2 in needs:
        by_input[2] = jnp.sum(pull, axis=0)
    if weight is not None:
        pull = pull * jnp.reshape(wide(jnp, weight), (-1,))
    if 0 in needs:
        by_input[0] = norm._pull(jnp, pull, unit, factor, (1,))
    return tuple(
        jnp.reshape(by_input[i], forward.types[i].shape).astype(forward.types[i].dtype.numpy)  # type: ignore[union-attr]
        for i in needs
    )
