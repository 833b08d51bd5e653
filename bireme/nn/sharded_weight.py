"""ShardedWeight: a process's part of a larger tensor, and where in it the part belongs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor


class ShardedWeight:
    """`local_tensor` is the block at `global_offset` of a tensor of `global_shape`. A flattened
    part is the range `flattened_range` of the block's elements in a row."""

    def __init__(
        self,
        key: str,
        local_tensor: Tensor,
        local_shape: tuple[int, ...],
        global_shape: tuple[int, ...],
        global_offset: tuple[int, ...],
        is_flattened: bool = False,
        flattened_range: slice | None = None,
    ) -> None:
        self.key = key
        self.local_tensor = local_tensor
        self.local_shape = tuple(local_shape)
        self.global_shape = tuple(global_shape)
        self.global_offset = tuple(global_offset)
        self.is_flattened = is_flattened
        self.flattened_range = flattened_range
        if len(self.global_offset) != len(self.global_shape) or any(
            o + n > g
            for o, n, g in zip(
                self.global_offset, self.local_shape, self.global_shape, strict=False
            )
        ):
            raise InvalidArgument(
                f"[ShardedWeight] a block of shape {list(self.local_shape)} at "
                f"{list(self.global_offset)} is not inside {list(self.global_shape)}"
            )

    @staticmethod
    def whole(key: str, tensor: Tensor) -> ShardedWeight:
        """A tensor of which there is one part."""
        shape = tuple(tensor.shape)
        return ShardedWeight(key, tensor, shape, shape, (0,) * len(shape))

    @property
    def is_whole(self) -> bool:
        return self.local_shape == self.global_shape and not self.is_flattened

    def __str__(self) -> str:
        return (
            f"ShardedWeight(key={self.key}, local_shape={self.local_shape}, "
            f"global_shape={self.global_shape}, global_offset={self.global_offset}, "
            f"flattened_range={self.flattened_range})"
        )


# How processes put the parts together that they hold: (part, group) -> the whole tensor.
# `bireme.distributed` knows, and whoever makes parts has imported it.
gather_parts: list[Callable[[ShardedWeight, Any], Tensor]] = []


def assembled(weight: ShardedWeight, group: object) -> Tensor:
    """The whole tensor that a part belongs to."""
    if weight.is_whole:
        return weight.local_tensor
    if not gather_parts:
        raise InvalidArgument(
            f"[full] {weight.key!r} is a part of a larger tensor; import bireme.distributed, "
            "whose processes hold the others"
        )
    return gather_parts[0](weight, group)
