"""Gradients on GPUs of linear layers that read one array, such as queries, keys and values.

Each layer has a gradient at that array, of its whole size, and they are added. Layers with few
columns then spend more on memory traffic than on arithmetic. Concatenated, their gradients and
weights are the operands of one product, whose sum over columns is that sum.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.lowering import Widened, annotate, annotation_of, substitute
from bireme.core.op import Call
from bireme.host import jax_door

_NAME = "joined_gradients"
_UNIT = 8  # columns that are read at once
_LARGE = 1 << 22  # elements of what is read, from which on it pays
_FEW = 4  # the array has at least so many times the columns of the smaller layers

_order = itertools.count()


@dataclass(frozen=True)
class Layer:
    """What one layer gives: its results' gradient [rows, columns], its weight [width, columns], and
    what its weight's gradient is so far."""

    order: int
    grad: Any
    weight: Any
    by_weight: Any


@dataclass(frozen=True)
class LinearGradient:
    """The gradient at `x`, which all of `layers` read."""

    x: Any
    rows: Any  # x as the products read it, [rows, width]
    layers: tuple[Layer, ...]

    widened = True  # in `plus` nothing is rounded that is not rounded anyway (see gpu_sums)

    @property
    def columns(self) -> int:
        return sum(layer.grad.shape[1] for layer in self.layers)

    def plus(self, other: Any) -> Any:
        """The sum with the gradient of more layers, if one product is the cheaper way."""
        found = annotation_of(other)
        if not isinstance(found, LinearGradient) or found.x is not self.x:
            return None
        if min(self.columns, found.columns) * _FEW > self.rows.shape[1]:
            return None
        jnp = jax_door.jnp()
        # Gradients come in the reverse order of layers; in theirs, the joined weights are those
        # that the forward product has, if the compiler joins it.
        layers = sorted((*self.layers, *found.layers), key=lambda layer: -layer.order)
        grads = jnp.concatenate([layer.grad for layer in layers], 1)
        weights = jnp.concatenate([layer.weight for layer in layers], 1)
        out = jnp.matmul(grads, weights.T).reshape(other.shape)
        by_weights = jnp.matmul(self.rows.T, grads)
        start = 0
        for layer in layers:
            stop = start + layer.grad.shape[1]
            substitute(layer.by_weight, by_weights[:, start:stop].astype(layer.by_weight.dtype))
            start = stop
        annotate(out, LinearGradient(self.x, self.rows, tuple(layers)))
        return out


def _accepts(call: Call) -> bool:
    forward: Call = call.attrs["forward"]
    x, weight = forward.types[:2]
    if not (isinstance(x, Aval) and isinstance(weight, Aval) and x.is_static):
        return False
    return (
        (forward.casts[1] or weight.dtype) in (dt.bfloat16, dt.float16)
        and call.attrs["needs"][:2] == (0, 1)
        and x.size >= _LARGE
        and weight.shape[1] <= weight.shape[0]
        and weight.shape[1] % _UNIT == 0
    )


@kernel("linear_grad", name=_NAME, platform="gpu", accepts=_accepts)
def _linear_grad(call: Call, grad: Any, x: Any, weight: Any) -> Any:
    jnp = jax_door.jnp()
    forward: Call = call.attrs["forward"]
    results = call.op.lower(jnp, call, [grad, x, weight])
    rows, narrow_weight = forward.cast(jnp, [x, weight, *[None] * (len(forward.types) - 2)])[:2]
    width, columns = weight.shape
    layer = Layer(next(_order), grad.reshape(-1, columns), narrow_weight, results[1])
    found = annotation_of(results[0])
    at_x = found.narrow if isinstance(found, Widened) else results[0]
    annotate(at_x, LinearGradient(x, rows.reshape(-1, width), (layer,)))
    return results
