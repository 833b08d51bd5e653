"""Collectives that gradients flow through, of any order.

Each is a pair of linear functions, one for the values and one for the gradients; the gradient of
the second is the first. Which pair is right depends on what the ranks hold. If each rank has a
loss of its own, the gradient of a sum is the sum of the gradients (`total`). If all ranks compute
the same loss from parts (tensor parallelism), a sum passes its gradient on (`add_up`), and what
enters the parts gets the sum of their gradients (`enter`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import bireme
from bireme.autograd.py_layer import PyLayer
from bireme.core.errors import ShapeMismatch
from bireme.core.tensor import Tensor, alias, constant
from bireme.distributed.communication.group import Group, get_global_group
from bireme.distributed.communication.programs import ReduceOp, exchange

Linear = Callable[[Tensor], Tensor]


class _Pair(PyLayer):
    """A linear function of one tensor, and the one that its gradients go through."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Linear, back: Linear) -> Tensor:
        ctx.there, ctx.back = there, back
        return there(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _Pair.apply(grad, ctx.back, ctx.there)


def _same(x: Tensor) -> Tensor:
    return alias(x)


def _sum(group: Group, x: Tensor) -> Tensor:
    (out,) = exchange("all_reduce", group, [x._array()], ReduceOp.SUM)
    return constant(out.reshape(x._value.aval.shape))


def _joined(group: Group, axis: int, x: Tensor) -> Tensor:
    (out,) = exchange("all_gather", group, [x._array()])
    parts = constant(out.reshape((group.nranks, *x.shape)))
    return bireme.concat(list(parts.unbind(0)), axis)


def _own(group: Group, axis: int, x: Tensor) -> Tensor:
    size, rest = divmod(x.shape[axis], group.nranks)
    if rest:
        raise ShapeMismatch(
            f"dimension {axis % x.ndim} of a tensor of shape {x.shape} does not divide into "
            f"{group.nranks} equal parts"
        )
    begin = group.rank * size
    return bireme.slice(x, [axis % x.ndim], [begin], [begin + size])


def _scattered(group: Group, axis: int, x: Tensor) -> Tensor:
    """This rank's part of the sum."""
    if x.shape[axis] % group.nranks:
        return _own(group, axis, x)  # which says what is wrong
    order = [axis % x.ndim, *[d for d in range(x.ndim) if d != axis % x.ndim]]
    first = x.transpose(order)
    (out,) = exchange("reduce_scatter", group, [first._array()], ReduceOp.SUM)
    back = sorted(range(x.ndim), key=order.__getitem__)
    return constant(out).transpose(back)


def _swapped(group: Group, x: Tensor) -> Tensor:
    (out,) = exchange("alltoall", group, [x._array()])
    return constant(out.reshape(x._value.aval.shape))


def total(x: Tensor, group: Group | None = None) -> Tensor:
    """The sum of all ranks' `x`, where each rank has a loss of its own."""
    add = partial(_sum, get_global_group() if group is None else group)
    return _Pair.apply(x, add, add)


def enter(x: Tensor, group: Group) -> Tensor:
    """`x` itself, which all ranks have; its gradient is the sum over the ranks' parts."""
    return _Pair.apply(x, _same, partial(_sum, group))


def add_up(x: Tensor, group: Group) -> Tensor:
    """The sum of all ranks' `x`, where all ranks compute one loss from it."""
    return _Pair.apply(x, partial(_sum, group), _same)


def join(x: Tensor, group: Group, axis: int = -1) -> Tensor:
    """All ranks' parts, one after the other, where all ranks compute one loss from them."""
    return _Pair.apply(x, partial(_joined, group, axis), partial(_own, group, axis))


def own_part(x: Tensor, group: Group, axis: int = -1) -> Tensor:
    """This rank's part of what all ranks have."""
    return _Pair.apply(x, partial(_own, group, axis), partial(_joined, group, axis))


def gather_parts(x: Tensor, group: Group, axis: int = 0) -> Tensor:
    """All ranks' parts, one after the other, where each rank uses them in its own way."""
    return _Pair.apply(x, partial(_joined, group, axis), partial(_scattered, group, axis))


def scatter_sum(x: Tensor, group: Group, axis: int = 0) -> Tensor:
    """This rank's part of the sum of all ranks' `x`."""
    return _Pair.apply(x, partial(_scattered, group, axis), partial(_joined, group, axis))


def swap_parts(x: Tensor, group: Group) -> Tensor:
    """Part i of the first dimension goes to rank i, and what the others sent comes in their
    order."""
    swap = partial(_swapped, group)
    return _Pair.apply(x, swap, swap)
