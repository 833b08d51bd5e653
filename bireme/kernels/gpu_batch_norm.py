"""Batch norm on GPUs: a channel's mean and variance from one pass over the data.

Two passes read the data twice, and reading is their whole cost. One pass needs values near zero to
keep its digits, so every channel is first shifted by one of its own values.
"""

from __future__ import annotations

from typing import Any

from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.graph import Node
from bireme.core.kernels import fusion, kernel
from bireme.core.op import Call
from bireme.host import jax_door
from bireme.host.arrays import Array, Namespace
from bireme.kernels.fusing import Fuser, fused_op
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


def _types(
    x: Aval,
    weight: Array | None,
    bias: Array | None,
    mean: Aval | None,
    variance: Any,
    momentum: Any,
    axis: int,
    epsilon: float,
    outs: tuple[Aval, ...],
) -> tuple[Aval, ...]:
    shape = tuple([n if i == axis else 1 for i, n in enumerate(x.shape)])
    return *outs, *[aval(shape, dt.float64 if x.dtype is dt.float64 else dt.float32)] * 2


@fused_op(
    "batch_norm_and_statistics",
    ("x", "weight", "bias", "running_mean", "running_var", "momentum"),
    _types,
)
def batch_norm_and_statistics(
    xp: Namespace,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    momentum: Any,
    axis: int,
    epsilon: float,
    outs: tuple[Aval, ...],
) -> tuple[Any, ...]:
    """`batch_norm_train`, and the mean and variance of each channel."""
    found = _moments(wide(xp, x), axis)
    rest = (weight, bias, running_mean, running_var, momentum, axis, epsilon)
    return *norm.batch_normed(xp, x, *found, *rest), *found


@fused_op(
    "batch_norm_gradient",
    ("grad", "x", "weight", "mean", "variance"),
    lambda grad, x, weight, mean, variance, axis, epsilon, types, needs: types,
)
def batch_norm_gradient(
    xp: Namespace,
    grad: Array,
    x: Array,
    weight: Array | None,
    mean: Array,
    variance: Array,
    axis: int,
    epsilon: float,
    types: tuple[Aval, ...],
    needs: tuple[int, ...],
) -> tuple[Any, ...]:
    """The gradients of those of x, weight and bias that are in `needs`."""
    factor = norm._rsqrt(xp, variance + epsilon)
    found = norm._batch_pull(
        xp,
        wide(xp, grad),
        (wide(xp, x) - mean) * factor,
        factor,
        weight,
        axis,
        [i in needs for i in range(3)],
    )
    return tuple([found[i].astype(t.dtype.numpy) for i, t in zip(needs, types, strict=True)])


def _fuse(f: Fuser, node: Node) -> list[int]:
    call, args = f.without_casts(node)
    *outs, mean, variance = f.emit(
        batch_norm_and_statistics, args, call.casts[5], **call.attrs, outs=call.outs
    )
    f.kept[node.call, args[0]] = mean, variance
    return outs


@kernel("batch_norm_train", name=_NAME, platform="gpu", accepts=_accepts, fuse=_fuse)
def _batch_norm(call: Call, x: Any, *rest: Any) -> Any:
    jnp = jax_door.jnp()
    found = _moments(wide(jnp, x), call.attrs["axis"])
    return norm.batch_normed(jnp, x, *found, *rest, **call.attrs)


def _accepts_grad(call: Call) -> bool:
    return call.types[0] is not None and _accepts(call.attrs["forward"])


@fusion("batch_norm_train_grad", name=_NAME, platform="gpu", accepts=_accepts_grad)
def _batch_norm_grad(f: Fuser, node: Node) -> list[int]:
    forward: Call = node.call.attrs["forward"]
    grad, (x, weight) = node.args[0], node.args[len(forward.outs) :]
    found = f.kept.get((forward, x))
    if found is None:
        return f.copy(node)
    return f.emit(
        batch_norm_gradient,
        [grad, x, weight, *found],
        **forward.attrs,
        types=node.call.outs,
        needs=node.call.attrs["needs"],
    )
