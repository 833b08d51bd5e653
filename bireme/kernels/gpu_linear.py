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
from bireme.core.graph import Node
from bireme.core.kernels import fusion
from bireme.core.op import Call
from bireme.host import thresholds
from bireme.host.arrays import Array, Namespace
from bireme.kernels.fusing import Fuser, Widened, fused_op

_NAME = "joined_gradients"
_UNIT = 8  # columns that are read at once


@dataclass(frozen=True)
class Layer:
    """What one layer gives: its results' gradient, its weight [width, columns] in half precision,
    and what its weight's gradient is so far. They are ordered by that."""

    grad: int
    weight: int
    by_weight: int


def _joined_types(rows: Aval, grads: list[Aval], weights: list[Aval]) -> tuple[Aval, ...]:
    return rows, *weights


@fused_op("joined_gradients", ("rows", "*grads", "*weights"), _joined_types)
def joined_gradients(
    xp: Namespace, rows: Array, grads: list[Array], weights: list[Array]
) -> tuple[Any, ...]:
    """The gradients of linear layers that read `rows`: at that array, and at each weight."""
    columns = [w.shape[1] for w in weights]
    flat = [g.reshape(-1, n) for g, n in zip(grads, columns, strict=True)]
    joined = xp.concatenate(flat, 1)
    out = xp.matmul(joined, xp.concatenate(weights, 1).T).reshape(rows.shape)
    by_weights = xp.matmul(rows.reshape(-1, rows.shape[-1]).T, joined)
    ends = itertools.accumulate(columns)
    return out, *[by_weights[:, end - n : end] for end, n in zip(ends, columns, strict=True)]


@dataclass(frozen=True)
class LinearGradient:
    """The gradient at `x`, which all of `layers` read."""

    x: int
    rows: int  # x as the products read it
    layers: tuple[Layer, ...]

    widened = True  # in `plus` nothing is rounded that is not rounded anyway (see gpu_sums)

    def columns(self, f: Fuser) -> int:
        return sum(f.shape(layer.weight)[1] for layer in self.layers)

    def plus(self, f: Fuser, other: int) -> int | None:
        """The sum with the gradient of more layers, if one product is the cheaper way."""
        found = f.fact(other, LinearGradient)
        if found is None or found.x != self.x:
            return None
        if (
            min(self.columns(f), found.columns(f)) * thresholds.GPU_JOINED_SHARE
            > f.shape(self.rows)[-1]
        ):
            return None
        # Gradients come in the reverse order of layers; in theirs, the joined weights are those
        # that the forward product has, if the compiler joins it.
        layers = sorted((*self.layers, *found.layers), key=lambda layer: -layer.by_weight)
        grads, weights = [layer.grad for layer in layers], [layer.weight for layer in layers]
        out, *by_weights = f.emit(joined_gradients, [self.rows, grads, weights])
        for layer, by_weight in zip(layers, by_weights, strict=True):
            f.replace(layer.by_weight, f.cast(by_weight, f.type_of(layer.by_weight).dtype))
        f.facts[out] = LinearGradient(self.x, self.rows, tuple(layers))
        return out


def _accepts(call: Call) -> bool:
    forward: Call = call.attrs["forward"]
    x, weight = forward.types[:2]
    if not (isinstance(x, Aval) and isinstance(weight, Aval) and x.is_static):
        return False
    return (
        (forward.casts[1] or weight.dtype) in (dt.bfloat16, dt.float16)
        and call.attrs["needs"][:2] == (0, 1)
        and x.size >= thresholds.GPU_JOINED
        and weight.shape[1] <= weight.shape[0]
        and weight.shape[1] % _UNIT == 0
    )


@fusion("linear_grad", name=_NAME, platform="gpu", accepts=_accepts)
def _linear_grad(f: Fuser, node: Node) -> list[int]:
    forward: Call = node.call.attrs["forward"]
    results = f.copy(node)
    saved = f.saved(node)
    x, weight, grad = saved[0], saved[1], node.args[0]
    rows, narrow = f.cast(x, forward.casts[0]), f.cast(weight, forward.casts[1])
    widened = f.fact(results[0], Widened)
    at_x = widened.narrow if widened else results[0]
    layer = Layer(grad, narrow, results[1])  # type: ignore[arg-type]
    f.facts[at_x] = LinearGradient(x, rows, (layer,))
    return results
