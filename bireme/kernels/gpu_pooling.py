"""The gradient of max pooling on GPUs: every pixel reads the few windows that cover it.

The plain rule writes each window's gradient to the pixel it came from, tap by tap, through padded
copies of the whole image. Here one pass stores which tap won each window, and one pass over the
pixels gathers; both read neighbours only.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.host import jax_door, thresholds
from bireme.ops import pooling
from bireme.ops.pooling_windows import is_even, lowest


def _accepts(call: Call) -> bool:
    forward: Call = call.attrs["forward"]
    x = forward.types[0]
    return (
        isinstance(x, Aval)
        and x.is_static
        and x.size > 0
        and forward.outs[0].size > 0
        and x.dtype.is_floating
        and all(is_even(plan) for plan in forward.attrs["plans"])
        and math.prod(plan[0] for plan in forward.attrs["plans"]) <= thresholds.GPU_POOLING_TAPS
    )


@kernel("max_pool_grad", name="gathered_max_pool", platform="gpu", accepts=_accepts)
def _max_pool_grad(call: Call, grad: Any, x: Any) -> Any:
    jax = jax_door.jax()
    jnp, lax = jax.numpy, jax.lax
    forward: Call = call.attrs["forward"]
    axes, plans, pads = (forward.attrs[name] for name in ("axes", "plans", "pads"))
    image = pooling._padded(jnp, x, axes, pads, lowest(x.dtype))
    winner = _winners(jnp, image, axes, plans)
    total = jnp.zeros(image.shape, grad.dtype)
    cover = [range(math.ceil(taps / step)) for taps, step, _ in plans]
    for back in itertools.product(*cover):
        near, won = grad, winner
        number: Any = 0
        inside: Any = True
        for axis, (taps, step, _), a in zip(axes, plans, back, strict=True):
            near = _spread(jnp, near, axis, step, a, image.shape[axis], 0)
            won = _spread(jnp, won, axis, step, a, image.shape[axis], -1)
            tap = lax.broadcasted_iota(jnp.int32, image.shape, axis) % step + a * step
            inside = inside & (tap < taps)
            number = number * taps + tap
        total = total + jnp.where(inside & (won == number), near, 0)
    return (pooling._crop(total, axes, pads, [x.shape[a] for a in axes]),)


def _winners(jnp: Any, image: Any, axes: Any, plans: Any) -> Any:
    """For every window the number of the first of its largest elements."""
    best = winner = None
    for number, tap in enumerate(itertools.product(*[range(taps) for taps, _, _ in plans])):
        where: list[Any] = [slice(None)] * image.ndim
        for axis, (_, step, count), i in zip(axes, plans, tap, strict=True):
            where[axis] = slice(i, i + (count - 1) * step + 1, step)
        part = image[tuple(where)]
        if best is None:
            best, winner = part, jnp.zeros(part.shape, jnp.int32)
        else:
            better = part > best
            winner = jnp.where(better, number, winner)
            best = jnp.where(better, part, best)
    return winner


def _spread(jnp: Any, x: Any, axis: int, step: int, back: int, length: int, fill: int) -> Any:
    """result[i] = x[i // step - back] along `axis`, `fill` outside."""
    rows = math.ceil(length / step)
    keep = min(x.shape[axis], rows - back)
    x = x[(slice(None),) * axis + (slice(0, keep),)]
    pads = [(0, 0)] * x.ndim
    pads[axis] = (back, rows - back - keep)
    x = jnp.pad(x, pads, constant_values=fill)
    x = jnp.repeat(x, step, axis=axis) if step > 1 else x
    return x[(slice(None),) * axis + (slice(0, length),)]
