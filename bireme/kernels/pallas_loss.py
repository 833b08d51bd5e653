"""Cross-entropy over many classes on a GPU: the loss reads the logits once, and its slope once."""

from __future__ import annotations

from typing import Any

from bireme.host import jax_door
from bireme.host.arrays import Array

# (columns that a program works on at once, its warps), by measurement on an H200
_SUM = 4096, 4
_SLOPE = 2048, 8


def _piece(columns: int, most: int) -> int:
    return min(most, 1 << (columns.bit_length() - 1))


def log_sum_exp(
    logits: Array, label: Array, width: int, *, interpret: bool = False
) -> tuple[Any, Any]:
    """log(sum(exp)) of the first `width` columns of each row and the logit of its `label`; like
    that, both are [rows], in float32."""
    jax = jax_door.jax()
    jnp, pl = jax.numpy, jax_door.pallas()
    rows, columns = logits.shape
    size = _piece(columns, _SUM[0])
    f32 = jnp.float32

    def body(x_ref: Any, label_ref: Any, out_ref: Any, score_ref: Any) -> None:
        score_ref[0] = x_ref[label_ref[0]].astype(f32)

        def step(i: Any, state: Any) -> Any:
            top, total = state
            # The last piece ends with the row and begins in the one before.
            start = jnp.minimum(i * size, columns - size)
            column = start + jax.lax.iota(jnp.int32, size)
            x = x_ref[pl.ds(start, size)].astype(f32)
            x = jnp.where((column >= i * size) & (column < width), x, -jnp.inf)
            higher = jnp.maximum(top, jnp.max(x))
            level = jnp.where(higher == -jnp.inf, f32(0), higher)
            total = total * jnp.exp(top - level) + jnp.sum(jnp.exp(x - level))
            return higher, total

        top, total = jax.lax.fori_loop(0, pl.cdiv(width, size), step, (f32(-jnp.inf), f32(0)))
        out_ref[0] = jnp.where(top == -jnp.inf, f32(jnp.nan), jnp.log(total) + top)

    one = pl.BlockSpec((1,), lambda i: (i,))
    total, score = pl.pallas_call(
        body,
        grid=(rows,),
        in_specs=[pl.BlockSpec((None, columns), lambda i: (i, 0)), one],
        out_specs=[one, one],
        out_shape=[jax.ShapeDtypeStruct((rows,), f32)] * 2,
        interpret=interpret,
        name="log_sum_exp",
        **({} if interpret else jax_door.pallas_options(_SUM[1])),
    )(logits, label)
    return total, score


def slope(
    logits: Array, total: Array, label: Array, scale: Array, width: int, *, interpret: bool = False
) -> Array:
    """(softmax(logits) - one_hot(label)) * scale in the logits' type, zero from `width` on. `total`
    is log_sum_exp; like `label` and `scale` it is [rows]. The result overwrites the logits: other
    readers must come before `total`, or the logits are copied first."""
    jax = jax_door.jax()
    jnp, pl, triton = jax.numpy, jax_door.pallas(), jax_door.pallas_triton()
    rows, columns = logits.shape
    size = _piece(columns, _SLOPE[0])

    def body(x_ref: Any, total_ref: Any, label_ref: Any, scale_ref: Any, out_ref: Any) -> None:
        first = pl.program_id(1) * size
        start = jnp.minimum(first, columns - size)
        column = start + jax.lax.iota(jnp.int32, size)
        x = x_ref[pl.ds(start, size)].astype(jnp.float32)
        share = jnp.exp(x - total_ref[0]) - (column == label_ref[0]).astype(jnp.float32)
        out = jnp.where(column < width, share * scale_ref[0], 0)
        # What the last piece shares with the one before is that one's, which may have written it.
        triton.store(
            out_ref.at[pl.ds(start, size)], out.astype(out_ref.dtype), mask=column >= first
        )

    row = pl.BlockSpec((None, columns), lambda i, j: (i, 0))
    one = pl.BlockSpec((1,), lambda i, j: (i,))
    return pl.pallas_call(
        body,
        grid=(rows, pl.cdiv(columns, size)),
        in_specs=[row, one, one, one],
        out_specs=row,
        out_shape=jax.ShapeDtypeStruct((rows, columns), logits.dtype),
        input_output_aliases={0: 0},
        interpret=interpret,
        name="cross_entropy_slope",
        **({} if interpret else jax_door.pallas_options(_SLOPE[1])),
    )(logits, total, label, scale)
