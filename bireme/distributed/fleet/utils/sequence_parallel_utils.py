"""Sequence parallelism, as models written for Paddle spell it.

A tensor here is whole: its devices hold parts of it, and the partitioner inserts the exchanges.
So what cuts and joins sequences in a model changes no values, and gradients of parameters that
every device reads are sums over the whole sequence already.
"""

from __future__ import annotations

from bireme.core.tensor import Tensor
from bireme.distributed.fleet.meta_parallel.layers import ColumnParallelLinear, RowParallelLinear
from bireme.nn.layer.layer import Layer


def scatter(input: Tensor) -> Tensor:
    """The sequence, whose parts the devices hold."""
    return input


class ScatterOp:
    """Cut a sequence; the tensor stays whole, so its values stay."""

    @staticmethod
    def apply(input: Tensor) -> Tensor:
        return scatter(input)


class GatherOp(ScatterOp):
    """Join a sequence; it is whole already."""


class AllGatherOp(ScatterOp):
    """Join a sequence whose gradient is summed over devices; both are whole already."""


class ReduceScatterOp(ScatterOp):
    """Sum over devices, then cut; the sum is part of the product before it."""


all_gather = reduce_scatter = scatter


_MARK = "sequence_parallel"  # the attribute that programs read


def mark_as_sequence_parallel_parameter(parameter: Tensor) -> None:
    """Note that a parameter reads parts of sequences."""
    setattr(parameter, _MARK, True)


def is_sequence_parallel_parameter(parameter: Tensor) -> bool:
    """Whether a parameter was marked."""
    return bool(getattr(parameter, _MARK, False))


def register_sequence_parallel_allreduce_hooks(
    model: Layer, accumulation_steps: int, fuse_sequence_parallel_allreduce: bool
) -> None:
    """Nothing is left to sum: gradients of marked parameters are those of whole sequences, for
    any number of `accumulation_steps`, and the compiler fuses the sums if that is faster."""


class ColumnSequenceParallelLinear(ColumnParallelLinear):
    """`ColumnParallelLinear` of a sequence."""


class RowSequenceParallelLinear(RowParallelLinear):
    """`RowParallelLinear` that gives a sequence."""


__all__ = [
    "AllGatherOp",
    "ColumnSequenceParallelLinear",
    "GatherOp",
    "ReduceScatterOp",
    "RowSequenceParallelLinear",
    "ScatterOp",
    "all_gather",
    "is_sequence_parallel_parameter",
    "mark_as_sequence_parallel_parameter",
    "reduce_scatter",
    "register_sequence_parallel_allreduce_hooks",
    "scatter",
]
