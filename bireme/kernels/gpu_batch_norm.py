"""Batch norm on GPUs: a channel's mean and variance from one pass over the data.

Two passes read the data twice, and reading is their whole cost. One pass needs values near zero to
keep its digits, so every channel is first shifted by one of its own values.
"""

from __future__ import annotations

from typing import Any

from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.lowering import keep_residual, residual_of
from bireme.core.op import Call
from bireme.host import jax_door
from bireme.ops import norm
from bireme.ops.nn_support import wide

_NAME = "one_pass_statistics"


def _accepts(forward: Call) -> bool:
    x = forward.types[0]
    return isinstance(x, Aval) and x.is_static and x.size > 0 and x.dtype.is_floating


def _moments(x: Any, axis: int) -> tuple[Any, Any]:
    """(mean, variance) of each channel."""
    jnp, lax = jax_door.jnp(), jax_door.jax().lax
    axes = norm._others(x.ndim, axis)
    # A value from the middle: at the border, padding makes unusual ones.
    middle = [
        slice(None) if i == axis else slice(n // 2, n // 2 + 1) for i, n in enumerate(x.shape)
    ]
    shift = lax.stop_gradient(x[tuple(middle)])
    moved = x - shift
    mean = jnp.mean(moved, axis=axes, keepdims=True)
    square = jnp.mean(moved * moved, axis=axes, keepdims=True)
    return shift + mean, jnp.maximum(square - mean * mean, 0)


@kernel("batch_norm_train", name=_NAME, platform="gpu", accepts=_accepts)
def _batch_norm(
    call: Call, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: Any
) -> Any:
    jnp = jax_door.jnp()
    found = _moments(wide(jnp, x), call.attrs["axis"])
    keep_residual(call, (x,), found)
    return norm.batch_normed(
        jnp, x, *found, weight, bias, running_mean, running_var, momentum, **call.attrs
    )


def _accepts_grad(call: Call) -> bool:
    return call.types[0] is not None and _accepts(call.attrs["forward"])


@kernel("batch_norm_train_grad", name=_NAME, platform="gpu", accepts=_accepts_grad)
def _batch_norm_grad(call: Call, *arrays: Any) -> Any:
    jnp = jax_door.jnp()
    forward: Call = call.attrs["forward"]
    grad, (x, weight) = arrays[0], arrays[len(forward.outs) :]
    found = residual_of(forward, (x,))
    if found is None:
        return call.op.lower(jnp, call, list(arrays))
    mean, variance = found
    factor = norm._rsqrt(jnp, variance + forward.attrs["epsilon"])
    needs: tuple[int, ...] = call.attrs["needs"]
    results = norm._batch_pull(
        jnp, wide(jnp, grad), (wide(jnp, x) - mean) * factor, factor, weight,
        forward.attrs["axis"], [i in needs for i in range(3)],
    )  # fmt: skip
    types: Any = forward.types
    return tuple(results[i].astype(types[i].dtype.numpy) for i in needs)
