"""paddle.functional: functions of `paddle` where programs for PyTorch look for them."""

from __future__ import annotations

from collections.abc import Sequence

import bireme
from bireme import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    broadcast_shapes,
    einsum,
    meshgrid,
    norm,
    unique_consecutive,
)
from bireme.core.errors import InvalidArgument, TypeMismatch, not_a_tensor
from bireme.core.tensor import Tensor


def split(
    tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """`tensor` in parts of one size along `dim`, the last perhaps smaller, or of the given sizes.

    `paddle.split` takes the number of parts instead.
    """
    given = split_size_or_sections
    if not isinstance(tensor, Tensor):
        raise not_a_tensor("split", "tensor", tensor)
    if isinstance(given, int):
        if given <= 0:
            raise InvalidArgument(f"[split] the size of a part must be positive. Received: {given}")
        if not -tensor.ndim <= dim < tensor.ndim:
            raise InvalidArgument(
                f"[split] dim must be in [-{tensor.ndim}, {tensor.ndim}). Received: {dim}"
            )
        size = tensor.shape[dim]
        sizes = [min(given, size - start) for start in range(0, size, given)]
        return tuple(bireme.split(tensor, sizes, dim)) if sizes else ()
    if not isinstance(given, list | tuple):
        raise TypeMismatch(
            f"[split] takes a size or a list of sizes. Received: {type(given).__name__}"
        )
    if any(isinstance(size, int) and size < 0 for size in given):
        raise InvalidArgument(f"[split] sizes must not be negative. Received: {list(given)}")
    return tuple(bireme.split(tensor, given, dim))


__all__ = [
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_shapes",
    "einsum",
    "meshgrid",
    "norm",
    "split",
    "unique_consecutive",
]
