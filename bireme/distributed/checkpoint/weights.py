"""ShardedWeight: a process's part of a larger tensor, and where in it the part belongs."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Union

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

    def __str__(self) -> str:
        return (
            f"ShardedWeight(key={self.key}, local_shape={self.local_shape}, "
            f"global_shape={self.global_shape}, global_offset={self.global_offset}, "
            f"flattened_range={self.flattened_range})"
        )


ShardedStateDict = Union[dict[str, ShardedWeight], "OrderedDict[str, ShardedWeight]"]


def shard_weight(key: str, weight: Tensor, axis: int, group: Any) -> ShardedWeight:
    """This process's part of a tensor whose parts the group's processes hold, in their order,
    joined along `axis`.

    >>> shard_weight("w", part, 0, group).global_offset  # doctest: +SKIP
    """
    shape = tuple(weight.shape)
    if not 0 <= axis < len(shape):
        raise InvalidArgument(f"[shard_weight] a tensor of shape {list(shape)} has no axis {axis}")
    whole, offset = list(shape), [0] * len(shape)
    whole[axis] *= group.nranks
    offset[axis] = max(group.rank, 0) * shape[axis]
    return ShardedWeight(key, weight, shape, tuple(whole), tuple(offset))


def build_sharded_state_dict(
    state_dict: dict[str, Tensor], shard_rules: dict[str, int] | None = None, prefix: str = ""
) -> dict[str, ShardedWeight]:
    """A state dict whose entries know where they belong. `shard_rules` has the axis of those of
    which the processes of the model-parallel group hold parts; the others are whole."""
    rules = shard_rules or {}
    group = None
    if rules:
        from bireme.distributed import fleet

        group = fleet.get_hybrid_communicate_group().get_model_parallel_group()
    made: dict[str, ShardedWeight] = {}
    for name, tensor in state_dict.items():
        key = prefix + name
        if name in rules:
            made[key] = shard_weight(key, tensor, rules[name], group)
        else:
            shape = tuple(tensor.shape)
            made[key] = ShardedWeight(key, tensor, shape, shape, (0,) * len(shape))
    return made
