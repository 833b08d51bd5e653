"""InputSpec: the shape, dtype and name of an input."""

from __future__ import annotations

from collections.abc import Sequence
from keyword import iskeyword
from typing import Any

import numpy as np

from bireme.api.types import DTypeLike
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor

Dimension = int | str


class InputSpec:
    """The shape, dtype and name of an input.

    None or -1 stands for a size that may differ from call to call. A string names such a size:
    inputs that use the same name must agree on it. "32*height" promises a multiple of 32.
    """

    def __init__(
        self,
        shape: Sequence[int | str | None],
        dtype: DTypeLike = "float32",
        name: str | None = None,
        stop_gradient: bool = False,
    ):
        self.shape: tuple[Dimension, ...] = _checked_shape(shape)
        self.dtype = dt.as_dtype(dtype)
        self.name = name
        self.stop_gradient = stop_gradient

    @classmethod
    def from_tensor(cls, tensor: Tensor, name: str | None = None) -> InputSpec:
        """The spec of a tensor."""
        if not isinstance(tensor, Tensor):
            raise TypeMismatch(
                f"from_tensor takes a Tensor. Received: {type(tensor).__name__}; use from_numpy "
                "for NumPy arrays"
            )
        return cls(tensor.shape, tensor.dtype, name or tensor.name)

    @classmethod
    def from_numpy(cls, ndarray: np.ndarray, name: str | None = None) -> InputSpec:
        """The spec of a NumPy array."""
        return cls(ndarray.shape, ndarray.dtype, name)

    def batch(self, batch_size: int | None) -> InputSpec:
        """Put a batch dimension in front."""
        if isinstance(batch_size, list | tuple):
            if len(batch_size) != 1:
                raise InvalidArgument(
                    f"batch takes one size. Received: {len(batch_size)} of them, {batch_size!r}"
                )
            batch_size = batch_size[0]
        self.shape = (*_checked_shape([batch_size]), *self.shape)
        return self

    def unbatch(self) -> InputSpec:
        """Take the first dimension off."""
        if not self.shape:
            raise InvalidArgument("unbatch needs a spec of at least one dimension. Received: []")
        self.shape = self.shape[1:]
        return self

    def __repr__(self) -> str:
        return (
            f"InputSpec(shape={self.shape}, dtype={self.dtype}, name={self.name}, "
            f"stop_gradient={self.stop_gradient})"
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))  # as in Paddle: names differ under one hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InputSpec) and vars(self) == vars(other)


def _checked_shape(shape: Any) -> tuple[Dimension, ...]:
    if not isinstance(shape, list | tuple):
        raise TypeMismatch(
            f"InputSpec's shape must be a list or tuple. Received: {type(shape).__name__}"
        )
    dims: list[Dimension] = []
    for d in shape:
        if d is None:
            d = -1
        if isinstance(d, str):
            factor, star, name = d.rpartition("*")
            if (
                not name.isidentifier()
                or iskeyword(name)
                or (star and not (factor.isdecimal() and int(factor) > 0))
            ):
                raise InvalidArgument(
                    "a dimension's name must be an identifier, or a multiple of one such as "
                    f"'32*height'. Received: {d!r}"
                )
        elif isinstance(d, bool) or not isinstance(d, int | np.integer) or d < -1:
            raise InvalidArgument(
                "a dimension is a size, None (or -1) for any size, or a name for one. "
                f"Received: {d!r} in shape {list(shape)}"
            )
        dims.append(d if isinstance(d, str) else int(d))
    return tuple(dims)
