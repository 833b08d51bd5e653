"""Gradients of slices on GPUs: neighbours are concatenated, not padded with zeros and added.

`x[..., :n]` and `x[..., n:]` give two gradients of x's whole shape that are mostly zeros. Their sum
is the concatenation of the two pieces, which is read and written once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.lowering import annotate, annotation_of
from bireme.core.op import Call
from bireme.host import jax_door

_NAME = "joined_slices"


@dataclass(frozen=True)
class Part:
    """What an array is between `start` and `stop` of an axis; elsewhere it is zero."""

    piece: Any
    axis: int
    start: int
    stop: int

    def plus(self, other: Any) -> Any:
        """The sum with a neighbour (see gpu_sums)."""
        part = annotation_of(other)
        if not isinstance(part, Part) or part.axis != self.axis:
            return None
        low, high = sorted((self, part), key=lambda p: p.start)
        if low.stop != high.start:
            return None
        jnp = jax_door.jnp()
        piece = jnp.concatenate([low.piece, high.piece], self.axis)
        joined = Part(piece, self.axis, low.start, high.stop)
        pads = [(0, 0)] * other.ndim
        pads[self.axis] = (joined.start, other.shape[self.axis] - joined.stop)
        out = jnp.pad(piece, pads) if any(pads[self.axis]) else piece
        annotate(out, joined)
        return out


def _one_span(forward: Call) -> tuple[int, int, int] | None:
    """(axis, start, stop) of a slice that takes a run of one axis and all of the others."""
    x: Any = forward.types[0]
    found = None
    for axis, entry in enumerate(forward.attrs["spec"]):
        if entry.__class__ is not tuple or entry[2] not in (None, 1):
            return None
        start, stop, _ = slice(*entry).indices(x.shape[axis])
        if (start, stop) == (0, x.shape[axis]):
            continue
        if found is not None or stop <= start:
            return None
        found = axis, start, stop
    return found


def _accepts_slice(call: Call) -> bool:
    forward: Call = call.attrs["forward"]
    x = forward.types[0]
    return isinstance(x, Aval) and x.is_static and _one_span(forward) is not None


@kernel("getitem_grad", name=_NAME, platform="gpu", accepts=_accepts_slice)
def _getitem_grad(call: Call, grad: Any) -> Any:
    (out,) = call.op.lower(jax_door.jnp(), call, [grad])
    span = _one_span(call.attrs["forward"])
    if span is not None:
        annotate(out, Part(grad, *span))
    return (out,)
