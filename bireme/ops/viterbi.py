"""The best path through a sequence of tags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.requirements import InRange
from bireme.host import jax_door


def _check(potentials: Aval, transitions: Aval, lengths: Aval, with_ends: bool) -> None:
    if potentials.ndim != 3 or transitions.ndim != 2 or lengths.ndim != 1:
        raise ShapeMismatch(
            "potentials must be [batch, steps, tags], transitions [tags, tags] and lengths [batch]"
        )
    if not potentials.dtype.is_floating or transitions.dtype is not potentials.dtype:
        raise TypeMismatch("potentials and transitions must be floating, of one dtype")
    if lengths.dtype is not dt.int64:
        raise TypeMismatch("lengths must be int64; cast with .astype('int64')")


def _types(potentials: Aval, *_: Any, with_ends: bool) -> tuple[Aval, Aval]:
    batch, steps, _tags = potentials.shape
    return aval((batch,), potentials.dtype), aval((batch, steps), dt.int64)


def _scan(xp: Any, step: Callable[..., Any], state: Any, rows: Any) -> tuple[Any, Any]:
    if xp is not np:
        return jax_door.jax().lax.scan(step, state, rows)
    made = []
    for row in zip(*rows, strict=True):
        state, out = step(state, row)
        made.append(out)
    return state, np.stack(made) if made else np.zeros((0, *state.shape), np.int64)


def _lengths(potentials: Aval, *_: Any, **__: Any) -> list[InRange]:
    return [InRange("lengths", 0, potentials.shape[1])]


@op(name="viterbi_decode", infer=_types, check=_check, requires=_lengths, differentiable=False)
def decode(xp, potentials, transitions, lengths, with_ends=True):
    """(score of the best path, its tags with zeros after each sequence's end).

    With `with_ends` the last tag stands for the begin and the one before it for the end.
    """
    start = potentials[:, 0]
    if with_ends:
        start = start + transitions[-1]
        start = xp.where((lengths == 1)[:, None], start + transitions[-2], start)
    frames = xp.swapaxes(potentials, 0, 1)
    number = xp.arange(potentials.shape[1])

    def forward(alpha: Any, row: Any) -> tuple[Any, Any]:
        frame, t = row
        scores = alpha[:, :, None] + transitions[None]
        moved = xp.max(scores, axis=1) + frame
        if with_ends:
            moved = xp.where((lengths - 1 == t)[:, None], moved + transitions[-2], moved)
        kept = xp.where((t < lengths)[:, None], moved, alpha)
        return kept, xp.argmax(scores, axis=1).astype(np.int64)

    alpha, origins = _scan(xp, forward, start, (frames[1:], number[1:]))
    last = xp.argmax(alpha, axis=1).astype(np.int64)

    def back(tag: Any, row: Any) -> tuple[Any, Any]:
        origin, t = row
        inside = t < lengths
        before = xp.take_along_axis(origin, tag[:, None], axis=1)[:, 0]
        return xp.where(inside, before, tag), xp.where(inside, tag, 0)

    first, tags = _scan(xp, back, last, (origins[::-1], number[1:][::-1]))
    path = xp.concatenate([xp.where(lengths > 0, first, 0)[None], tags[::-1]], axis=0)
    return xp.max(alpha, axis=1), xp.swapaxes(path, 0, 1).astype(np.int64)
