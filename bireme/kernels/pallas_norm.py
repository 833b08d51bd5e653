"""Norms over rows on a GPU, with the residual sums around them: everything is read once.

Forward: rows are added, written, and normalised while they are in registers. Backward: the
gradients at the norm's result are added, propagated through the norm and added to the gradient of
the residual stream; the sums over rows for weight and bias are computed on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bireme.host import jax_door
from bireme.host.arrays import Array

if TYPE_CHECKING:
    import numpy as np

_ROWS = 16  # of a program's share in the gradient, whose sums over rows it writes once


class Term(NamedTuple):
    """An addend [rows, width]; with a bias [width], both in half precision, their rounded sum."""

    array: Any
    bias: Any = None


def pieces_of(width: int) -> list[tuple[int, int]]:
    """(start, size) of the runs, each a power of two, that make up a row; [] if they are many."""
    found, start = [], 0
    for bit in reversed(range(width.bit_length())):
        if width >> bit & 1:
            found.append((start, 1 << bit))
            start += 1 << bit
    return found if len(found) <= 3 and found[-1][1] >= 16 and width <= 8192 else []


def fits(rows: int, width: int) -> bool:
    return rows % _ROWS == 0 and rows > 0 and bool(pieces_of(width))


def _block(width: int) -> tuple[int, int]:
    """(rows that a program holds at once, its warps), by measurement on an H200."""
    return (8, 4) if width <= 1024 else (1, 16)


def _read(jnp: Any, refs: Sequence[Any], terms: Sequence[Term], rows: Any, at: Any) -> Any:
    """The sum of `terms`, whose arrays and biases are `refs` in order."""
    left = list(refs)
    whole = None
    for term in terms:
        part = left.pop(0)[rows, at].astype(jnp.float32)
        if term.bias is not None:
            bias = left.pop(0)[at].astype(jnp.float32)
            part = (part + bias[None, :]).astype(term.array.dtype).astype(jnp.float32)
        whole = part if whole is None else whole + part
    return whole


def _arguments(terms: Sequence[Term]) -> list[Any]:
    return [a for t in terms for a in (t.array, t.bias) if a is not None]


@jax_door.traced_once("centred", "epsilon", "dtype", "interpret")
def forward(
    terms: Sequence[Term],
    weight: Array,
    bias: Array,
    *,
    centred: bool,
    epsilon: float,
    dtype: np.dtype[Any],
    interpret: bool = False,
) -> tuple[Any, Any, Any, Any]:
    """The float32 sum of `terms` and its norm in `dtype`, both [rows, width]; and of each row the
    mean (None unless `centred`) and what it was multiplied by, both [rows, 1]."""
    jax = jax_door.jax()
    jnp, pl = jax.numpy, jax_door.pallas()
    rows, width = terms[0].array.shape
    block, warps = _block(width)
    pieces = pieces_of(width)
    arrays = _arguments(terms)
    vectors = [v for v in (weight, bias) if v is not None]

    def body(*refs: Any) -> None:
        given, outs = refs[: len(arrays) + len(vectors)], refs[len(arrays) + len(vectors) :]
        scale = given[len(arrays)] if weight is not None else None
        shift = given[-1] if bias is not None else None
        whole = slice(None)
        values = []
        for start, size in pieces:
            at = pl.ds(start, size)
            values.append(_read(jnp, given[: len(arrays)], terms, whole, at))
            outs[0][:, at] = values[-1]
        mean = None
        if centred:
            mean = sum(jnp.sum(v, axis=1) for v in values) / width
            values = [v - mean[:, None] for v in values]
            outs[3][:] = mean
        square = sum(jnp.sum(v * v, axis=1) for v in values) / width
        factor = jax.lax.rsqrt(square + epsilon)
        outs[2][:] = factor
        for (start, size), value in zip(pieces, values, strict=True):
            at = pl.ds(start, size)
            out = value * factor[:, None]
            if scale is not None:
                out = out * scale[at].astype(jnp.float32)[None, :]
            if shift is not None:
                out = out + shift[at].astype(jnp.float32)[None, :]
            outs[1][:, at] = out.astype(dtype)

    matrix = pl.BlockSpec((block, width), lambda i: (i, 0))
    vector = pl.BlockSpec((width,), lambda i: (0,))
    row = pl.BlockSpec((block,), lambda i: (i,))
    of_rows = jax.ShapeDtypeStruct((rows,), jnp.float32)
    made = pl.pallas_call(
        body,
        grid=(rows // block,),
        in_specs=[*[matrix if a.ndim == 2 else vector for a in arrays], *[vector] * len(vectors)],
        out_specs=[matrix, matrix, row, *[row] * centred],
        out_shape=[
            jax.ShapeDtypeStruct((rows, width), jnp.float32),
            jax.ShapeDtypeStruct((rows, width), dtype),
            of_rows,
            *[of_rows] * centred,
        ],
        interpret=interpret,
        name="norm_of_sum",
        **({} if interpret else jax_door.pallas_options(warps)),
    )(*arrays, *vectors)
    mean = made[3][:, None] if centred else None
    return made[0], made[1], mean, made[2][:, None]


@jax_door.traced_once("narrow", "interpret")
def backward(
    grads: Sequence[Term],
    residual: Array,
    x: Array,
    weight: Array,
    mean: Array,
    factor: Array,
    *,
    narrow: np.dtype[Any] | None = None,
    interpret: bool = False,
) -> tuple[Any, Any, Any, Any]:
    """`residual` plus what the sum of `grads` becomes at the norm's input `x`, in float32 and (if
    given) in the type `narrow`; and the gradients of weight and (if there is a `mean`) of bias,
    both [width]."""
    jax = jax_door.jax()
    jnp, pl = jax.numpy, jax_door.pallas()
    rows, width = x.shape
    block, warps = _block(width)
    pieces = pieces_of(width)
    f32 = jnp.float32
    arrays = _arguments(grads)
    centred = mean is not None
    statistics = [m[:, 0] for m in (factor, mean) if m is not None]

    def body(*refs: Any) -> None:
        inputs = refs[: len(arrays)]
        residual_ref, x_ref, scale, factor_ref, *rest = refs[len(arrays) :]
        mean_ref = rest.pop(0) if centred else None
        total_out, *sum_outs = rest[: 2 + centred]
        narrow_out = rest[2 + centred :]
        scales = [scale[pl.ds(a, n)].astype(f32)[None, :] for a, n in pieces]

        def step(i: Any, sums: Any) -> Any:
            here = pl.ds(i * block, block)
            times = factor_ref[here][:, None]
            units, pulls = [], []
            for a, n in pieces:
                value = x_ref[here, pl.ds(a, n)]
                if mean_ref is not None:
                    value = value - mean_ref[here][:, None]
                units.append(value * times)
                pulls.append(_read(jnp, inputs, grads, here, pl.ds(a, n)))
            scaled = [p * s for p, s in zip(pulls, scales, strict=True)]
            products = zip(scaled, units, strict=True)
            slope = sum(jnp.sum(s * u, axis=1) for s, u in products) / width
            level = sum(jnp.sum(s, axis=1) for s in scaled) / width if centred else None
            after = []
            for (a, n), unit, pull, s, old in zip(pieces, units, pulls, scaled, sums, strict=True):
                at = pl.ds(a, n)
                flat = s if level is None else s - level[:, None]
                total = residual_ref[here, at] + times * (flat - unit * slope[:, None])
                total_out[here, at] = total
                for ref in narrow_out:
                    ref[here, at] = total.astype(ref.dtype)
                new = [pull * unit, pull][: len(sum_outs)]
                after.append([o + jnp.sum(m, axis=0) for o, m in zip(old, new, strict=True)])
            return after

        zeros = [[jnp.zeros((n,), f32) for _ in sum_outs] for _, n in pieces]
        sums = jax.lax.fori_loop(0, _ROWS // block, step, zeros)
        for (a, n), found in zip(pieces, sums, strict=True):
            for ref, value in zip(sum_outs, found, strict=True):
                ref[pl.ds(a, n)] = value

    matrix = pl.BlockSpec((_ROWS, width), lambda i: (i, 0))
    vector = pl.BlockSpec((width,), lambda i: (0,))
    row = pl.BlockSpec((_ROWS,), lambda i: (i,))
    part = pl.BlockSpec((None, width), lambda i: (i, 0))
    programs = rows // _ROWS
    whole = jax.ShapeDtypeStruct((rows, width), f32)
    parts = jax.ShapeDtypeStruct((programs, width), f32)
    copies = [] if narrow is None else [jax.ShapeDtypeStruct((rows, width), narrow)]
    made = pl.pallas_call(
        body,
        grid=(programs,),
        in_specs=[
            *[matrix if a.ndim == 2 else vector for a in arrays],
            matrix,
            matrix,
            vector,
            *[row] * len(statistics),
        ],
        out_specs=[matrix, part, *[part] * centred, *[matrix] * len(copies)],
        out_shape=[whole, parts, *[parts] * centred, *copies],
        interpret=interpret,
        name="norm_gradient",
        **({} if interpret else jax_door.pallas_options(warps)),
    )(*arrays, residual, x, weight, *statistics)
    by_weight = jnp.sum(made[1], axis=0)
    by_bias = jnp.sum(made[2], axis=0) if centred else None
    return made[0], None if narrow is None else made[-1], by_weight, by_bias
