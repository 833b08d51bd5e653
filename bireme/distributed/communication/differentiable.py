"""Collectives that gradients flow through, of any order."""

from __future__ import annotations

from typing import Any

from bireme.autograd.py_layer import PyLayer
from bireme.core.tensor import Tensor, constant
from bireme.distributed.communication.group import Group, get_global_group
from bireme.distributed.communication.programs import ReduceOp, exchange


class _Total(PyLayer):
    """The sum over a group. Each rank's input is in every rank's result, so the gradient is the
    sum of all ranks' gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        (out,) = exchange("all_reduce", group, [x._array()], ReduceOp.SUM)
        return constant(out.reshape(x._value.aval.shape))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return _Total.apply(grad, ctx.group)


def total(x: Tensor, group: Group | None = None) -> Tensor:
    """The sum of all ranks' `x`, as a new tensor."""
    return _Total.apply(x, get_global_group() if group is None else group)
