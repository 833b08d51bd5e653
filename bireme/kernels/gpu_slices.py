"""Gradients of slices on GPUs: neighbours are concatenated, not padded with zeros and added.

`x[..., :n]` and `x[..., n:]` give two gradients of x's whole shape that are mostly zeros. Their sum
is the concatenation of the two pieces, which is read and written once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bireme.core.aval import Aval, aval
from bireme.core.graph import Node
from bireme.core.kernels import fusion
from bireme.core.op import OPS, Call
from bireme.host.arrays import Array, Namespace
from bireme.kernels.fusing import Fuser, fused_op

_NAME = "joined_slices"


def _in_zeros_type(x: Aval, axis: int, start: int, size: int) -> Aval:
    return aval((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)


@fused_op("in_zeros", ("x",), _in_zeros_type)
def in_zeros(xp: Namespace, x: Array, axis: int, start: int, size: int) -> Array:
    """Zeros of this size along an axis, with `x` in them from `start` on."""
    pads = [(0, 0)] * x.ndim
    pads[axis] = (start, size - start - x.shape[axis])
    return xp.pad(x, pads)


@dataclass(frozen=True)
class Part:
    """What a value is between `start` and `stop` of an axis; elsewhere it is zero."""

    piece: int
    axis: int
    start: int
    stop: int

    def plus(self, f: Fuser, other: int) -> int | None:
        """The sum with a neighbour (see gpu_sums)."""
        part = f.fact(other, Part)
        if part is None or part.axis != self.axis:
            return None
        low, high = sorted((self, part), key=lambda p: p.start)
        if low.stop != high.start:
            return None
        (piece,) = f.emit(OPS["concat"], [[low.piece, high.piece]], axis=self.axis)
        joined = Part(piece, self.axis, low.start, high.stop)
        out, size = piece, f.shape(other)[self.axis]
        if (joined.start, joined.stop) != (0, size):
            (out,) = f.emit(in_zeros, [piece], axis=self.axis, start=joined.start, size=size)
        f.facts[out] = joined
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


@fusion("getitem_grad", name=_NAME, platform="gpu", accepts=_accepts_slice)
def _getitem_grad(f: Fuser, node: Node) -> list[int]:
    made = f.copy(node)
    grad, span = node.args[0], _one_span(node.call.attrs["forward"])
    if span is not None and grad.__class__ is int:
        f.facts[made[0]] = Part(grad, *span)  # type: ignore[arg-type]
    return made
