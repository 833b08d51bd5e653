"""Rotary position embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

import bireme as paddle
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.tensor import Tensor


def rotated(x: Tensor, adjacent: bool) -> Tensor:
    """A quarter turn of each pair: neighbours, or elements half a row apart."""
    if adjacent:
        pairs = x.reshape([*x.shape[:-1], -1, 2])
        turned = paddle.stack([-pairs[..., 1], pairs[..., 0]], -1)
        return turned.reshape(x.shape)
    half = x.shape[-1] // 2
    return paddle.concat([-x[..., half:], x[..., :half]], -1)


def turn(x: Tensor, sin: Tensor, cos: Tensor, adjacent: bool) -> Tensor:
    """x with each pair turned by its angle, computed in float32 at least."""
    wide = x if x.dtype is paddle.float64 else x.astype("float32")
    turned = wide * cos.astype(wide.dtype) + rotated(wide, adjacent) * sin.astype(wide.dtype)
    return turned.astype(x.dtype)


def _tables(length: int, size: int, base: float) -> tuple[np.ndarray, np.ndarray]:
    """(sin, cos) [length, size] for pairs of neighbours."""
    speed = base ** -(np.arange(size) // 2 * 2 / size)
    angle = np.arange(length)[:, None] * speed
    return np.sin(angle).astype("float32"), np.cos(angle).astype("float32")


def fused_rotary_position_embedding(
    q: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    sin: Tensor | None = None,
    cos: Tensor | None = None,
    position_ids: Tensor | None = None,
    use_neox_rotary_style: bool = True,
    time_major: bool = False,
    rotary_emb_base: float = 10000.0,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """q, k and v, [batch, time, heads, size], turned by angles that grow with the position.

    sin and cos are [time, size] or [1, time, 1, size]; position_ids [batch, time] picks their
    rows. use_neox_rotary_style turns pairs of neighbours, otherwise elements half a row apart.
    """
    for t in (q, k, v):
        if t is not None and (t.ndim != 4 or t.shape[-1] % 2):
            raise ShapeMismatch(
                "[fused_rotary_position_embedding] takes [batch, time, heads, size] with an even "
                f"size. Received: {t.shape}"
            )
    at = 0 if time_major else 1
    length, size = q.shape[at], q.shape[-1]
    if sin is None or cos is None:
        if position_ids is not None or not use_neox_rotary_style:
            raise InvalidArgument(
                "[fused_rotary_position_embedding] position_ids and use_neox_rotary_style=False "
                "need sin and cos. Received: None"
            )
        tables: list[Any] = [paddle.to_tensor(t) for t in _tables(length, size, rotary_emb_base)]
    else:
        tables = [t.reshape([-1, t.shape[-1]]) for t in (sin, cos)]
    shape = [length, 1, 1, size] if time_major else [1, length, 1, size]
    if position_ids is not None:
        order = [1, 0, 2] if time_major else [0, 1, 2]
        picked = [t[position_ids].transpose(order).unsqueeze(2) for t in tables]
    else:
        picked = [t[:length].reshape(shape) for t in tables]
    made = [
        None if t is None else turn(t, picked[0], picked[1], use_neox_rotary_style)
        for t in (q, k, v)
    ]
    return made[0], made[1], made[2]  # type: ignore[return-value]
