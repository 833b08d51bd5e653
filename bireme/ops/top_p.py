"""Sampling from the head of a distribution, for text generation."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.api.public import method
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.op import op
from bireme.core.random import next_key
from bireme.core.tensor import Tensor
from bireme.ops import random_bits


def _types(x: Aval, *_: Any, k: int, mode: str) -> tuple[Aval, ...]:
    rows = x.shape[0]
    return (
        aval((rows, 1), x.dtype),
        aval((rows, 1), dt.int64),
        aval((rows, k), x.dtype),
        aval((rows, k), dt.int64),
    )


def _check(x: Aval, ps: Aval, *_: Any, **attrs: Any) -> None:
    if len(x.shape) != 2:
        raise ShapeMismatch("x holds probabilities, [rows, choices]")
    if not x.dtype.is_floating or not ps.dtype.is_floating:
        raise InvalidArgument("x and ps are of a floating type")


@op(name="top_p_sampling", inputs=("x", "ps", "threshold", "seeds", "seed", "offset"),
    infer=_types, check=_check, differentiable=False)  # fmt: skip
def _top_p(xp, x, ps, threshold, seeds, seed, offset, k=0, mode="truncated"):
    """One choice per row among the best whose probabilities reach p.

    Truncated: the first whose running sum reaches u * p for a uniform u. Otherwise by probability
    among those before which the sum is below p.
    """
    probs = x.astype(np.float32)
    order = xp.argsort(-probs, axis=-1, stable=True)
    best = xp.take_along_axis(probs, order, axis=-1)
    reached = xp.cumsum(best, axis=-1)
    limit = ps.astype(np.float32).reshape((-1, 1))
    low = xp.zeros_like(limit)
    if threshold is not None:
        low = threshold.astype(np.float32).reshape((-1, 1))
    count = 1 if mode == "truncated" else probs.shape[1]
    if seeds is None:
        unit = random_bits.uniform(xp, seed, offset, (probs.shape[0], count))
    else:
        unit = random_bits.uniform_rows(xp, seeds, count)
    places = xp.arange(probs.shape[1])
    if mode == "truncated":
        there = reached >= unit * limit
        chosen = xp.argmax(there, axis=-1)[:, None]
        # What is too unlikely gives way to the last that is likely enough, or to the best.
        likely = xp.max(xp.where(best >= low, places, 0), axis=-1, keepdims=True)
        chosen = xp.minimum(chosen, likely)
    else:
        head = (reached - best < limit) & (best >= low)
        wait = -xp.log1p(-unit) / xp.where(head & (best > 0), best, 1)
        chosen = xp.argmin(xp.where(head & (best > 0), wait, np.inf), axis=-1)[:, None]
        complete = xp.any(reached >= limit, axis=-1, keepdims=True)
        chosen = xp.where(complete, chosen, 0)
    ids = xp.take_along_axis(order, chosen, axis=-1).astype(np.int64)
    top = order[:, :k].astype(np.int64)
    return (
        xp.take_along_axis(x, ids, axis=-1),
        ids,
        xp.take_along_axis(x, top, axis=-1),
        top,
    )


@method
def top_p_sampling(
    x: Tensor,
    ps: Tensor,
    threshold: Tensor | None = None,
    topp_seed: Tensor | None = None,
    seed: int = -1,
    k: int = 0,
    mode: str = "truncated",
    return_top: bool = False,
    name: str | None = None,
) -> Any:
    """(probabilities, ids), [rows, 1] each, of one choice per row of probabilities `x`.

    Choices are among the best whose probabilities reach `ps` [rows]; those below `threshold` [rows]
    are not taken unless there is nothing better. In mode "truncated" the last of the best counts
    only as far as it is needed to reach `ps`, in "non-truncated" wholly. A `seed` of 0 or more, or
    `topp_seed` [rows], gives the same choices every time. With `return_top` the `k` best and their
    ids follow.
    """
    if mode not in ("truncated", "non-truncated"):
        raise InvalidArgument(
            f"[top_p_sampling] mode is 'truncated' or 'non-truncated'. Received: {mode!r}"
        )
    key = next_key() if seed < 0 else (int(seed), 0)
    made = _top_p(x, ps, threshold, topp_seed, *key, int(k), mode)
    return tuple(made) if return_top else (made[0], made[1])
