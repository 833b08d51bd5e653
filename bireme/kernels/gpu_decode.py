"""Decoding on GPUs: products of a few rows, with the ops around them.

In a graph the results of such products are known by their parts. A rule that reads one takes its
parts instead; if all readers do, the value itself is never computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.graph import Node
from bireme.core.kernels import fusion, kernel
from bireme.core.op import Call
from bireme.host import jax_door, thresholds
from bireme.host.arrays import Array, Namespace
from bireme.kernels import nvidia, pallas_decode
from bireme.kernels.fusing import Fuser, fused_op, is_value
from bireme.kernels.pallas_decode import Product, Rows

NAME = "decode"


@dataclass(frozen=True)
class Parts:
    """A product in parts (see pallas_decode.Product)."""

    parts: int
    squares: int | None
    start: int
    width: int
    inner: int
    epsilon: float


@dataclass(frozen=True)
class RowsOf:
    """What is multiplied: a value, a product in parts, or their sum."""

    array: int | None
    product: Parts | None = None


@dataclass(frozen=True)
class Normed:
    """rms_norm(x, weight), not computed yet."""

    x: int
    weight: int
    epsilon: float


def _half(t: Any) -> bool:
    return isinstance(t, Aval) and t.is_static and t.dtype in (dt.bfloat16, dt.float16)


def _few_rows(x: Any) -> bool:
    return _half(x) and x.ndim > 0 and 0 < x.size <= thresholds.GPU_DECODE_ROWS * x.shape[-1]


def _fits(call: Call, weights: tuple[Any, ...]) -> bool:
    x: Any = call.types[0]
    return (
        _few_rows(x)
        and not any(call.casts)
        and all(
            _half(w) and w.dtype is x.dtype and w.size >= thresholds.GPU_DECODE_WEIGHT
            for w in weights
        )
        and pallas_decode.tile_for(x.shape[-1], [w.shape[1] for w in weights]) is not None
    )


def _tile(inner: int, widths: Sequence[int]) -> pallas_decode.Tile:
    tile = pallas_decode.tile_for(inner, widths)
    assert tile is not None  # noqa: S101 (`_fits` asked)
    return tile


_SPAN = ("start", "width", "inner", "epsilon")  # what a product in parts has besides its arrays


def _multiply_types(
    array: Any,
    parts: Any,
    squares: Any,
    scale: Aval | None,
    weights: list[Aval],
    rows: int,
    **rest: Any,
) -> tuple[Aval, ...]:
    inner, dtype = weights[0].shape[0], weights[0].dtype
    pieces = inner // _tile(inner, [w.shape[1] for w in weights]).rows
    made = [aval((pieces, rows, sum(w.shape[1] for w in weights)), dt.float32)]
    if scale is not None:
        made.append(aval((pieces, rows), dt.float32))
    return *made, *([] if parts is None else [aval((rows, inner), dtype)])


@fused_op("decode_products", ("array", "parts", "squares", "scale", "*weights"), _multiply_types)
def decode_products(
    xp: Namespace,
    array: Any,
    parts: Any,
    squares: Any,
    scale: Any,
    weights: list[Array],
    rows: int,
    span: tuple[Any, ...] | None,
    norm_epsilon: float,
) -> tuple[Any, ...]:
    """Rows by each weight, in parts; with `scale` of a norm, the sums of the rows' squares; and the
    rows as an array, if there was something to add up for them."""
    inner, dtype = weights[0].shape[0], weights[0].dtype
    tile = _tile(inner, [w.shape[1] for w in weights])
    flat = None if array is None else array.reshape(-1, inner)
    if span is not None:
        value = _product(parts, squares, span, dtype).value()
        flat = value if flat is None else (flat + value).astype(dtype)
    wide = flat.astype(xp.float32).reshape(rows, inner // tile.rows, tile.rows)  # type: ignore[union-attr]
    made = [] if scale is None else [xp.sum(wide * wide, axis=2).T]
    if scale is not None:
        wide = wide * scale.astype(xp.float32).reshape(-1, tile.rows)
    joined = xp.concatenate([w.astype(xp.float32) for w in weights], 1)
    pieces = joined.reshape(-1, tile.rows, joined.shape[1])
    return xp.einsum("rpk,pkc->prc", wide, pieces), *made, *([] if span is None else [flat])


def _product(parts: Array, squares: Any, span: Sequence[Any], dtype: Any) -> Product:
    start, width, inner, epsilon = span
    return Product(parts, start, width, dtype, squares, inner, epsilon)


@kernel("decode_products", name=NAME, platform="gpu", ready=lambda: nvidia.available())
def _decode_products(call: Call, *flat: Any) -> Any:
    array, parts, squares, scale, weights = call.group(flat)
    inner, dtype, span = weights[0].shape[0], weights[0].dtype, call.attrs["span"]
    rows = Rows(
        None if array is None else array.reshape(-1, inner),
        None if span is None else _product(parts, squares, span, dtype),
    )
    products, built = pallas_decode.multiply(
        rows,
        weights,
        _tile(inner, [w.shape[1] for w in weights]),
        dtype,
        scale=scale,
        epsilon=call.attrs["norm_epsilon"],
        interpret=nvidia.interpreted(),
    )
    first = products[0]
    return tuple([a for a in (first.parts, first.squares, built) if a is not None])


@fused_op("decode_value", ("parts", "squares"), lambda parts, squares, span, type: type)
def decode_value(
    xp: Namespace, parts: Array, squares: Any, span: tuple[Any, ...], type: Aval
) -> Array:
    """A product that is there in parts."""
    return _product(parts, squares, span, type.dtype.numpy).value().reshape(type.shape)


def _rows(f: Fuser, x: int) -> RowsOf:
    """What is known about a value that is to be multiplied."""
    found = f.fact(x, (RowsOf, Parts))
    if found is None:
        return RowsOf(x)
    return found if isinstance(found, RowsOf) else RowsOf(None, found)


def _span(known: Parts) -> tuple[Any, ...]:
    return tuple([getattr(known, name) for name in _SPAN])


def _multiply(f: Fuser, call: Call, x: int, weights: list[int]) -> list[int]:
    norm = f.fact(x, Normed)
    source, scale, epsilon = (norm.x, norm.weight, norm.epsilon) if norm else (x, None, 0.0)
    inner, widths = f.shape(x)[-1], [f.shape(w)[1] for w in weights]
    rows = _rows(f, source)
    p = rows.product
    parts, *made = f.emit(
        decode_products,
        [rows.array, p and p.parts, p and p.squares, scale, weights],
        rows=f.type_of(x).size // inner,
        span=None if p is None else _span(p),
        norm_epsilon=epsilon,
    )
    squares = made.pop(0) if norm else None
    if made:
        f.facts[source] = RowsOf(made[0])
    outs = []
    for start, width, t in zip(accumulate([0, *widths]), widths, call.outs, strict=False):
        known = Parts(parts, squares, start, width, inner, epsilon)
        (out,) = f.emit(decode_value, [parts, squares], span=_span(known), type=t)
        f.facts[out] = known
        outs.append(out)
    return outs


def _alone(call: Call, x: Any, *weights: Any) -> list[Any]:
    """The products where nothing else is seen."""
    tile = _tile(x.shape[-1], [w.shape[1] for w in weights])
    rows = Rows(x.reshape(-1, x.shape[-1]))
    made, _ = pallas_decode.multiply(rows, weights, tile, x.dtype, interpret=nvidia.interpreted())
    return [p.value().reshape(t.shape) for p, t in zip(made, call.outs, strict=True)]


def _fuse(f: Fuser, node: Node) -> list[int]:
    x, *weights = [a for a in node.args if is_value(a)]
    return _multiply(f, node.call, x, weights)


@kernel(
    "linear",
    name=NAME,
    platform="gpu",
    ready=lambda: nvidia.available(),
    fuse=_fuse,
    accepts=lambda call: call.types[2] is None and _fits(call, call.types[1:2]),
)
def _linear(call: Call, x: Any, weight: Any, bias: Any) -> Any:
    return _alone(call, x, weight)[0]


@kernel(
    "linears",
    name=NAME,
    platform="gpu",
    ready=lambda: nvidia.available(),
    fuse=_fuse,
    accepts=lambda call: _fits(call, call.types[1:]),
)
def _linears(call: Call, x: Any, *weights: Any) -> Any:
    return tuple(_alone(call, x, *weights))


@fusion(
    "rms_norm",
    name=NAME,
    platform="gpu",
    ready=lambda: nvidia.available(),
    accepts=lambda call: (
        _few_rows(call.types[0])
        and isinstance(call.types[1], Aval)
        and call.attrs["dims"] == 1
        and not any(call.casts)
    ),
)
def _rms_norm(f: Fuser, node: Node) -> list[int]:
    x, weight = node.args
    (out,) = f.copy(node)
    if f.fact(x, Parts) is None:  # a norm of a bare product is left to the compiler
        f.facts[out] = Normed(x, weight, node.call.attrs["epsilon"])  # type: ignore[arg-type]
    return [out]


@fusion(
    "add",
    name=NAME,
    platform="gpu",
    ready=lambda: nvidia.available(),
    accepts=lambda call: (
        len(call.types) == 2
        and not any(call.casts)
        and call.types[0] is call.types[1]
        and _few_rows(call.types[0])
    ),
)
def _add(f: Fuser, node: Node) -> list[int]:
    x, y = node.args
    (out,) = f.copy(node)
    for one, other in ((y, x), (x, y)):
        product, rest = f.fact(one, Parts), _rows(f, other)  # type: ignore[arg-type]
        if product is not None and rest.product is None:
            f.facts[out] = RowsOf(rest.array, product)
            break
    return [out]


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
        query[:, 0],
        key[:, 0],
        value[:, 0],
        keys,
        values,
        jnp.broadcast_to(place, (batch,)),
        call.attrs["scale"] or 1 / math.sqrt(query.shape[3]),
        interpret=nvidia.interpreted(),
    )
    return out.reshape(call.outs[0].shape), keys, values
