"""Parts of larger tensors: made, put together, collected in state dicts."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor, constant
from bireme.nn.sharded_weight import ShardedWeight, gather_parts

if TYPE_CHECKING:
    from bireme.distributed.communication.group import Group


ShardedStateDict = Union[dict[str, ShardedWeight], "OrderedDict[str, ShardedWeight]"]


def shard_weight(key: str, weight: Tensor, axis: int, group: Group) -> ShardedWeight:
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
    group: Any = None
    if rules:
        from bireme.distributed import fleet

        group = fleet.get_hybrid_communicate_group().get_model_parallel_group()
    made: dict[str, ShardedWeight] = {}
    for name, tensor in state_dict.items():
        key = prefix + name
        if name in rules:
            made[key] = shard_weight(key, tensor, rules[name], group)
        else:
            made[key] = ShardedWeight.whole(key, tensor)
    return made


def _gather_parts(weight: ShardedWeight, group: Group | None) -> Tensor:
    """The whole of which all processes of the group hold parts, by exchanging all of them."""
    from bireme.distributed.communication.objects import all_gather_object

    parts: list[Any] = []
    own = (weight.global_offset, weight.local_shape, weight.flattened_range)
    all_gather_object(parts, (*own, np.asarray(weight.local_tensor.numpy())), group)
    whole = np.empty(weight.global_shape, weight.local_tensor.dtype.numpy)
    blocks: dict[tuple[int, ...], np.ndarray] = {}
    for offset, shape, taken, array in parts:
        # Parts that several processes hold are the same; flattened ones fill a block in turns.
        block = blocks.setdefault(offset, np.empty(int(np.prod(shape)), whole.dtype))
        block[slice(None) if taken is None else taken] = array.reshape(-1)
        place = tuple([slice(o, o + n) for o, n in zip(offset, shape, strict=True)])
        whole[place] = block.reshape(shape)
    return constant(whole)


gather_parts[:] = [_gather_parts]
