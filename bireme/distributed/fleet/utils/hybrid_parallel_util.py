"""Gradients and parameters that the processes of a job have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bireme.autograd import no_grad
from bireme.core.tensor import Tensor
from bireme.distributed import all_reduce, broadcast, get_world_size
from bireme.distributed.communication.group import Group
from bireme.distributed.fleet.topology import HybridCommunicateGroup
from bireme.nn.layer.layer import Layer


def obtain_optimizer_parameters_list(optimizer: Any) -> list[Tensor]:
    """All parameters of an optimizer, those of its groups too."""
    found: list[Tensor] = []
    for item in optimizer._parameter_list:
        found += item["params"] if isinstance(item, dict) else [item]
    return found


def unwrap_optimizer(optimizer: Any, optimizer_instances: tuple[type, ...] = ()) -> Any:
    """The optimizer inside wrappers of these classes."""
    while isinstance(optimizer, optimizer_instances):
        optimizer = optimizer._inner_opt
    return optimizer


def fused_allreduce_gradients_with_group(
    parameter_list: Iterable[Tensor],
    group: Group | None,
    bucket_size: int = 128 * 1024 * 1024,
    scale: float | None = None,
) -> None:
    """Sum gradients over the processes of a group, and multiply them by `scale` (None averages).

    Exchanges are programs of their own, whatever `bucket_size` is. Nothing is done alone: the
    gradient of one process, on all its devices, is that of its whole batch.
    """
    count = get_world_size() if group is None else group.nranks
    if count == 1:
        return
    with no_grad():
        for parameter in parameter_list:
            if parameter.grad is not None:
                all_reduce(parameter.grad, group=group)
                parameter.grad.scale_(1 / count if scale is None else scale)


def fused_allreduce_gradients(
    parameter_list: Iterable[Tensor], hcg: HybridCommunicateGroup | None
) -> None:
    """Average gradients over the processes that have other data."""
    group = None if hcg is None else hcg.get_data_parallel_group()
    fused_allreduce_gradients_with_group(parameter_list, group)


def _from_first(model: Layer, group: Group | None) -> None:
    count = get_world_size() if group is None else group.nranks
    if count > 1:
        for parameter in model.parameters():
            broadcast(parameter, src=0 if group is None else group.ranks[0], group=group)


def broadcast_dp_parameters(
    model: Layer, hcg: HybridCommunicateGroup, fuse_params: bool = True
) -> None:
    """Give all processes that have other data the parameters of the first, one exchange each
    whether `fuse_params` or not."""
    _from_first(model, hcg.get_data_parallel_group())


__all__ = [
    "broadcast_dp_parameters",
    "fused_allreduce_gradients",
    "fused_allreduce_gradients_with_group",
    "obtain_optimizer_parameters_list",
    "unwrap_optimizer",
]
