"""Decoding on a GPU: kernels that read each weight once, at the speed of memory.

A step for one token multiplies a row by every weight of the model. Arithmetic costs nothing, memory
traffic is everything, and a kernel launch costs as much as reading megabytes. So a product stays in
parts: each program of its kernel sums over a piece of the inner dimension, and the kernel that
reads the product adds the pieces. Residual sums and norms move into the reader in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bireme.host import jax_door
from bireme.host.arrays import Array

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Tile:
    """How a product is cut: columns of a program, rows of the weight that it reads, its warps."""

    columns: int
    rows: int
    warps: int


@dataclass(frozen=True)
class Product:
    """rows @ weight, in parts: the sum over the first axis of parts[:, :, start:start + width].

    `squares` [pieces, rows], if there, are sums of squares of the rows over `inner` elements: the
    product is to be divided by the root of their mean (plus epsilon), for a norm.
    """

    parts: Any
    start: int
    width: int
    dtype: Any
    squares: Any = None
    inner: int = 0
    epsilon: float = 0.0

    def value(self) -> Any:
        """[rows, width] as an ordinary array."""
        lax = jax_door.jax().lax
        cut = lax.slice_in_dim(self.parts, self.start, self.start + self.width, axis=2)
        whole = _summed(cut)
        if self.squares is not None:
            mean = _summed(self.squares)[:, None] / self.inner
            whole = whole * lax.rsqrt(mean + self.epsilon)
        return whole.astype(self.dtype)


def _summed(parts: Any) -> Any:
    """The sum over the first axis, term by term: the compiler gives a reduction a kernel of its
    own, but takes additions into whatever reads them."""
    whole = parts[0]
    for n in range(1, parts.shape[0]):
        whole = whole + parts[n]
    return whole


@dataclass(frozen=True)
class Rows:
    """What is multiplied: an array [rows, inner], a product, or their sum."""

    array: Any = None
    product: Product | None = None

    @property
    def shape(self) -> tuple[int, int]:
        if self.array is not None:
            return self.array.shape
        assert self.product is not None  # noqa: S101 (one of them is there)
        return self.product.parts.shape[1], self.product.width


def _power_of_two_in(n: int) -> int:
    return n & -n


def tile_for(inner: int, widths: Sequence[int]) -> Tile | None:
    """A tile for products over `inner` with results of these widths; None if none fits."""
    # Measured on an H200: many small programs, each with all its reads under way at once.
    # (Eight warps are a little faster for a bare product and much slower for one that reads parts.)
    columns = min(128 if sum(widths) >= 8192 else 64, *[_power_of_two_in(n) for n in widths])
    rows = min(_power_of_two_in(inner), 128)
    return Tile(columns, rows, 4) if columns >= 16 and rows >= 16 else None


def multiply(
    rows: Rows,
    weights: Sequence[Any],
    tile: Tile,
    dtype: np.dtype[Any],
    *,
    scale: Array | None = None,
    epsilon: float = 0.0,
    interpret: bool = False,
) -> tuple[list[Product], Any]:
    """`rows` [rows, inner] by each weight [inner, width], and the rows themselves as an array.

    With `scale` [inner] the rows are first divided by their root mean square and multiplied by it
    (the array is of the rows before that). Without anything to add up, it is None.
    """
    jax = jax_door.jax()
    jnp, pl = jax.numpy, jax_door.pallas()
    count, inner = rows.shape
    f32 = jnp.float32
    pieces = inner // tile.rows
    blocks = [w.shape[1] // tile.columns for w in weights]
    starts = [sum(blocks[:j]) for j in range(len(blocks))]
    builds = rows.product is not None
    arguments: list[Any] = []
    specs: list[Any] = []

    def take(array: Array, block: Any, index: Any) -> int:
        arguments.append(array)
        specs.append(pl.BlockSpec(block, index))
        return len(arguments) - 1

    def piece(i: Any, k: Any) -> tuple[Any, Any]:
        return 0, k

    array_at = None if rows.array is None else take(rows.array, (count, tile.rows), piece)
    product = rows.product
    parts_at: Any = None
    squares_at: Any = None
    if product is not None:
        # Its columns may start anywhere, so that its blocks are everything, read in part.
        parts_at = take(product.parts, product.parts.shape, lambda i, k: (0, 0, 0))
        if product.squares is not None:
            squares_at = take(product.squares, product.squares.shape, lambda i, k: (0, 0))
    scale_at = None if scale is None else take(scale, (tile.rows,), lambda i, k: (k,))
    first_weight = len(arguments)
    for w, start, length in zip(weights, starts, blocks, strict=True):
        index = (
            (lambda i, k: (k, i))
            if len(weights) == 1
            else (lambda i, k, s=start, n=length: (k, jnp.clip(i - s, 0, n - 1)))
        )
        take(w, (tile.rows, tile.columns), index)

    def read_product(refs: Any, p: Product, r: int, k: Any) -> Any:
        span = pl.ds(p.start + k * tile.rows, tile.rows)
        whole = refs[parts_at][0, r, span]
        for n in range(1, p.parts.shape[0]):
            whole = whole + refs[parts_at][n, r, span]
        if p.squares is not None:
            total = refs[squares_at][0, r]
            for n in range(1, p.squares.shape[0]):
                total = total + refs[squares_at][n, r]
            whole = whole * jax.lax.rsqrt(total / p.inner + p.epsilon)
        return whole.astype(p.dtype).astype(f32)

    def body(*refs: Any) -> None:
        i, k = pl.program_id(0), pl.program_id(1)
        outs = list(refs[len(arguments) :])
        parts_out = outs.pop(0)
        squares_out = outs.pop(0) if scale_at is not None else None
        array_out = outs.pop(0) if builds else None

        def put(ref: Any, at: Any, value: Array) -> None:
            """Every column of programs has the rows; the first one writes them down."""

            @pl.when(i == 0)
            def _() -> None:
                ref[at] = value.astype(ref.dtype)

        def one(weight: Array) -> None:
            read = weight[:, :].astype(f32)
            for r in range(count):
                row: Any = None if array_at is None else refs[array_at][r, :].astype(f32)
                if product is not None:
                    found = read_product(refs, product, r, k)
                    row = found if row is None else (row + found).astype(dtype).astype(f32)
                if array_out is not None:
                    put(array_out, (r, slice(None)), row)
                if scale_at is not None:
                    put(squares_out, r, jnp.sum(row * row))
                    row = row * refs[scale_at][:].astype(f32)
                parts_out[r, :] = jnp.sum(read * row[:, None], axis=0)

        for j, (start, length) in enumerate(zip(starts, blocks, strict=True)):
            weight = refs[first_weight + j]
            if len(weights) == 1:
                one(weight)
            else:
                pl.when((i >= start) & (i < start + length))(lambda w=weight: one(w))

    total = sum(blocks) * tile.columns
    out_shapes = [jax.ShapeDtypeStruct((pieces, count, total), f32)]
    out_specs = [pl.BlockSpec((None, count, tile.columns), lambda i, k: (k, 0, i))]
    if scale is not None:
        out_shapes.append(jax.ShapeDtypeStruct((pieces, count), f32))
        out_specs.append(pl.BlockSpec((None, count), lambda i, k: (k, 0)))
    if builds:
        out_shapes.append(jax.ShapeDtypeStruct((count, inner), dtype))
        out_specs.append(pl.BlockSpec((count, tile.rows), piece))
    made = list(
        pl.pallas_call(
            body,
            grid=(sum(blocks), pieces),
            in_specs=specs,
            out_specs=out_specs,
            out_shape=out_shapes,
            interpret=interpret,
            name="decode_product",
            **({} if interpret else jax_door.pallas_options(tile.warps)),
        )(*arguments)
    )
    parts = made.pop(0)
    squares = made.pop(0) if scale is not None else None
    array = made.pop(0) if builds else None
    products = [
        Product(parts, s * tile.columns, n * tile.columns, dtype, squares, inner, epsilon)
        for s, n in zip(starts, blocks, strict=True)
    ]
    return products, array


def attend(
    query: Array,
    key: Array,
    value: Array,
    keys: Array,
    values: Array,
    place: Array,
    scale: float,
    *,
    interpret: bool = False,
) -> tuple[Any, Any, Any]:
    """Attention of one new token to itself and to the `place` [batch] tokens of a cache before it.

    query [batch, heads, size], key and value [batch, groups, size], keys and values [batch, length,
    groups, size]. Returns the attention and the cache, which is written in place.
    """
    jax = jax_door.jax()
    jnp, pl = jax.numpy, jax_door.pallas()
    batch, heads, size = query.shape
    length, groups = keys.shape[1:3]
    share = heads // groups
    block = min(_power_of_two_in(length), 256)
    f32 = jnp.float32

    def body(q_ref, k_ref, v_ref, keys_ref, values_ref, place_ref, y_ref, keys_out, values_out):
        here = jnp.minimum(place_ref[0].astype(jnp.int32), length - 1)
        q = q_ref[:].astype(f32) * scale
        new_key, new_value = k_ref[:], v_ref[:]

        def step(i: Any, state: Any) -> Any:
            top, total, mixed = state
            at = pl.ds(i * block, block)
            k, v = keys_ref[at, :].astype(f32), values_ref[at, :].astype(f32)
            seen = i * block + jax.lax.iota(jnp.int32, block) < here
            scores = jnp.where(seen, jnp.sum(k * q[None, :], axis=1), -jnp.inf)
            higher = jnp.maximum(top, jnp.max(scores))
            weights = jnp.exp(scores - higher)
            kept = jnp.exp(top - higher)
            mixed = mixed * kept + jnp.sum(weights[:, None] * v, axis=0)
            return higher, total * kept + jnp.sum(weights), mixed

        start = (jnp.sum(q * new_key.astype(f32)), f32(1), new_value.astype(f32))
        _, total, mixed = jax.lax.fori_loop(0, (here + block - 1) // block, step, start)
        y_ref[:] = (mixed / total).astype(y_ref.dtype)

        @pl.when(pl.program_id(1) % share == 0)
        def _write() -> None:
            keys_out[pl.ds(here, 1), :] = new_key[None, :]
            values_out[pl.ds(here, 1), :] = new_value[None, :]

    of_head = pl.BlockSpec((None, None, size), lambda b, h: (b, h, 0))
    of_group = pl.BlockSpec((None, None, size), lambda b, h: (b, h // share, 0))
    cached = pl.BlockSpec((None, length, None, size), lambda b, h: (b, 0, h // share, 0))
    made = pl.pallas_call(
        body,
        grid=(batch, heads),
        in_specs=[
            of_head, of_group, of_group, cached, cached, pl.BlockSpec((1,), lambda b, h: (b,)),
        ],
        out_specs=[of_head, cached, cached],
        out_shape=[
            jax.ShapeDtypeStruct(query.shape, query.dtype),
            jax.ShapeDtypeStruct(keys.shape, keys.dtype),
            jax.ShapeDtypeStruct(values.shape, values.dtype),
        ],
        input_output_aliases={3: 1, 4: 2},
        interpret=interpret,
        name="decode_attention",
        **({} if interpret else jax_door.pallas_options(8)),
    )(query, key, value, keys, values, place)  # fmt: skip
    return made[0], made[1], made[2]
