"""Decoding on GPUs: products of a few rows, with the ops around them.

While a program is lowered, the results of such products are annotated with their parts
(`annotation_of`). A kernel that reads one takes its parts instead; if all readers do, the array
itself is never computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.lowering import annotate, annotation_of
from bireme.core.op import Call
from bireme.host import jax_door
from bireme.kernels import nvidia, pallas_decode
from bireme.kernels.pallas_decode import Product, Rows

NAME = "decode"
_FEW = 4  # rows
_LARGE = 1 << 16  # elements of a weight from which on it pays


@dataclass(frozen=True)
class Normed:
    """rms_norm(x, weight), not computed yet."""

    x: Any
    weight: Any
    epsilon: float


def _half(t: Any) -> bool:
    return isinstance(t, Aval) and t.is_static and t.dtype in (dt.bfloat16, dt.float16)


def _few_rows(x: Any) -> bool:
    return _half(x) and x.ndim > 0 and 0 < x.size <= _FEW * x.shape[-1]


def _fits(call: Call, weights: tuple[Any, ...]) -> bool:
    x: Any = call.types[0]
    return (
        _few_rows(x)
        and not any(call.casts)
        and all(_half(w) and w.dtype is x.dtype and w.size >= _LARGE for w in weights)
        and pallas_decode.tile_for(x.shape[-1], [w.shape[1] for w in weights]) is not None
    )


def _rows(x: Any) -> Rows:
    """What is known about an array that is to be multiplied."""
    found = annotation_of(x)
    if isinstance(found, Rows):
        return found
    if isinstance(found, Product):
        return Rows(None, found)
    return Rows(x.reshape(-1, x.shape[-1]))


def _multiply(call: Call, x: Any, weights: list[Any]) -> list[Any]:
    norm = annotation_of(x)
    extra: dict[str, Any] = {}
    source = x
    if isinstance(norm, Normed):
        source, extra = norm.x, {"scale": norm.weight, "epsilon": norm.epsilon}
    tile = pallas_decode.tile_for(x.shape[-1], [w.shape[1] for w in weights])
    assert tile is not None  # noqa: S101 (`_fits` asked)
    products, array = pallas_decode.multiply(
        _rows(source), weights, tile, x.dtype, interpret=nvidia.interpreted(), **extra
    )
    if array is not None:
        annotate(source, Rows(array))
    outs = []
    for product, t in zip(products, call.outs, strict=True):
        out = product.value().reshape(t.shape)
        annotate(out, product)
        outs.append(out)
    return outs


@kernel("linear", name=NAME, platform="gpu", ready=lambda: nvidia.available(),
        accepts=lambda call: call.types[2] is None and _fits(call, call.types[1:2]))  # fmt: skip
def _linear(call: Call, x: Any, weight: Any, bias: Any) -> Any:
    return _multiply(call, x, [weight])[0]


@kernel("linears", name=NAME, platform="gpu", ready=lambda: nvidia.available(),
        accepts=lambda call: _fits(call, call.types[1:]))  # fmt: skip
def _linears(call: Call, x: Any, *weights: Any) -> Any:
    return tuple(_multiply(call, x, list(weights)))


@kernel("rms_norm", name=NAME, platform="gpu", ready=lambda: nvidia.available(),
        accepts=lambda call: _few_rows(call.types[0]) and isinstance(call.types[1], Aval)
        and call.attrs["dims"] == 1 and not any(call.casts))  # fmt: skip
def _rms_norm(call: Call, x: Any, weight: Any) -> Any:
    found = annotation_of(x)
    out = call.op.lower(jax_door.jnp(), call, [x, weight])
    if not isinstance(found, Product):  # a norm of a bare product is left to the compiler
        annotate(out, Normed(x, weight, call.attrs["epsilon"]))
    return out


@kernel("add", name=NAME, platform="gpu", ready=lambda: nvidia.available(),
        accepts=lambda call: len(call.types) == 2 and not any(call.casts)
        and call.types[0] is call.types[1] and _few_rows(call.types[0]))  # fmt: skip
def _add(call: Call, x: Any, y: Any) -> Any:
    out = call.op.lower(jax_door.jnp(), call, [x, y])
    for product, other in ((annotation_of(y), x), (annotation_of(x), y)):
        rest = _rows(other)
        if isinstance(product, Product) and rest.product is None:
            annotate(out, Rows(rest.array, product))
            break
    return out


def _attends(call: Call) -> bool:
    if any(call.attrs[name] for name in ("window", "cap", "slopes")):
        return False
    query, key, value, keys = call.types[:4]
    if not (_half(query) and _half(key) and _half(value) and _half(keys)) or any(call.casts):
        return False
    length, _, size = keys.shape[1:]  # type: ignore[union-attr]
    widths = {t.shape[3] for t in (query, key, value)}  # type: ignore[union-attr]
    types = {t.dtype for t in (query, key, value, keys)}  # type: ignore[union-attr]
    return (
        query.shape[1] == 1  # type: ignore[union-attr]
        and query.size > 0  # type: ignore[union-attr]
        and len(types) == len(widths) == 1
        and size >= 16
        and size & (size - 1) == 0
        and length % 16 == 0
    )


@kernel(
    "cache_attend", name=NAME, platform="gpu", ready=lambda: nvidia.available(), accepts=_attends
)
def _attend(
    call: Call, query: Any, key: Any, value: Any, keys: Any, values: Any, place: Any
) -> Any:
    jnp = jax_door.jnp()
    batch = query.shape[0]
    out, keys, values = pallas_decode.attend(
        query[:, 0], key[:, 0], value[:, 0], keys, values,
        jnp.broadcast_to(place, (batch,)), call.attrs["scale"] or 1 / math.sqrt(query.shape[3]),
        interpret=nvidia.interpreted(),
    )  # fmt: skip
    return out.reshape(call.outs[0].shape), keys, values
