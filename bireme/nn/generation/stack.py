"""A stack of decoder layers as one op, for a kernel that takes a token through all of them.

It is never called by a model: the pass `stack_layers` finds the layers in a step's graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bireme.core.aval import Aval, aval
from bireme.core.errors import ShapeMismatch
from bireme.core.op import OPS, op

# What a layer has, in this order.
NAMES = ("norm1", "q", "k", "v", "mix", "norm2", "gate", "up", "down", "keys", "values")
EACH = len(NAMES)


def _check(
    x: Aval,
    cos: Aval,
    sin: Aval,
    place: Aval,
    arrays: list[Aval],
    layers: int,
    head: bool,
    epsilon: float,
) -> None:
    if layers < 1 or len(arrays) != layers * EACH + 2 * head or x.ndim != 3:
        raise ShapeMismatch(
            f"a stack takes x [batch, rows, width], {EACH} arrays of each layer, and with a head "
            "a norm and an output layer"
        )
    size = arrays[9].shape[3]
    if any(t.shape[-1] != size for t in (cos, sin)):
        raise ShapeMismatch("cosines and sines must be of a head's size")


def _infer(
    x: Aval,
    cos: Aval,
    sin: Aval,
    place: Aval,
    arrays: list[Aval],
    layers: int,
    head: bool,
    epsilon: float,
) -> tuple[Aval, ...]:
    caches = [arrays[n * EACH + i] for n in range(layers) for i in (9, 10)]
    out = aval((*x.shape[:-1], arrays[-1].shape[1]), x.dtype) if head else x
    return (out, *caches)


def _normed(xp: Any, x: Any, scale: Any, epsilon: float) -> Any:
    body: Any = OPS["rms_norm"].body
    return body(xp, x, scale, 1, epsilon)


def _turned(xp: Any, x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    return x * cos + xp.concatenate([-x[..., half:], x[..., :half]], -1) * sin


def _layer(
    xp: Any, x: Any, cos: Any, sin: Any, place: Any, arrays: Sequence[Any], epsilon: float
) -> tuple[Any, Any, Any]:
    attend: Any = OPS["cache_attend"].body
    silu: Any = OPS["silu"].body
    norm1, q, k, v, mix, norm2, gate, up, down, keys, values = arrays
    batch, rows = x.shape[:2]
    h = _normed(xp, x, norm1, epsilon)

    def heads(weight: Any) -> Any:
        return xp.reshape(xp.matmul(h, weight), (batch, rows, -1, keys.shape[3]))

    query, key = _turned(xp, heads(q), cos, sin), _turned(xp, heads(k), cos, sin)
    y, keys, values = attend(xp, query, key, heads(v), keys, values, place)
    x = x + xp.matmul(xp.reshape(y, (batch, rows, -1)), mix)
    h = _normed(xp, x, norm2, epsilon)
    opened = silu(xp, xp.matmul(h, gate))
    return x + xp.matmul(opened * xp.matmul(h, up), down), keys, values


@op(
    name="decoder_stack",
    inputs=("x", "cos", "sin", "place", "*arrays"),
    infer=_infer,
    check=_check,
    differentiable=False,
)
def decoder_stack(xp, x, cos, sin, place, arrays, layers=1, head=False, epsilon=1e-5):
    """x [batch, rows, width] through `layers` decoder layers (`NAMES` says what `arrays` are), and
    with a `head` through a norm and an output layer: two arrays more.

    Queries and keys are turned by `cos` and `sin`, halves and not pairs; `place` and the caches
    are those of `cache_attend`. Returns the result, and keys and values of each layer.
    """
    caches = []
    for n in range(layers):
        x, keys, values = _layer(xp, x, cos, sin, place, arrays[n * EACH : (n + 1) * EACH], epsilon)
        caches += [keys, values]
    if head:
        x = xp.matmul(_normed(xp, x, arrays[-2], epsilon), arrays[-1])
    return (x, *caches)
