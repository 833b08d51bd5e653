"""DataParallel: a model whose gradients are those of the whole job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.distributed.communication.averaging import MIB, GradientAverage, first_ranks_contents
from bireme.distributed.communication.group import Group, get_global_group, is_initialized
from bireme.distributed.environment import ParallelEnv, get_world_size
from bireme.distributed.job import DistributedError
from bireme.nn.layer.layer import Layer


class DataParallel(Layer):
    """A model that every process trains on its own part of the batch.

    Construction gives all processes the parameters of the first one. When a backward pass is
    over, gradients are averaged over the group, in buckets of `comm_buffer_size` MiB (the first
    one, with the parameters used last, of `last_comm_buffer_size`). A parameter that this process
    did not use but another one did gets their gradient too, with `find_unused_parameters` or
    without.

    >>> model = paddle.DataParallel(net)  # doctest: +SKIP
    """

    def __init__(
        self,
        layers: Layer,
        strategy: ParallelEnv | None = None,
        comm_buffer_size: float = 25,
        last_comm_buffer_size: float = 1,
        find_unused_parameters: bool = False,
        group: Group | None = None,
    ) -> None:
        if not isinstance(layers, Layer):
            raise TypeMismatch(f"[DataParallel] takes a Layer. Received: {type(layers).__name__}")
        super().__init__(layers.full_name() + "_data_parallel")
        if comm_buffer_size <= 0 or last_comm_buffer_size <= 0:
            raise InvalidArgument(
                "[DataParallel] buffer sizes are in MiB and positive. Received: "
                f"comm_buffer_size={comm_buffer_size}, last_comm_buffer_size="
                f"{last_comm_buffer_size}"
            )
        self._layers = layers
        self.find_unused_parameters = find_unused_parameters
        if strategy is not None and strategy.nranks != get_world_size():
            raise InvalidArgument(
                f"[DataParallel] strategy is for {strategy.nranks} processes, but the job has "
                f"{get_world_size()}; leave it out"
            )
        if group is None and get_world_size() > 1:
            if not is_initialized():
                raise DistributedError(
                    "[DataParallel] call paddle.distributed.init_parallel_env() first"
                )
            group = get_global_group()
        self.group = group
        self._average: GradientAverage | None = None
        if group is None or not group.is_member():
            return
        synced = [p for p in layers.parameters() if not getattr(p, "no_sync", False)]
        if not any(p.trainable for p in synced):
            raise InvalidArgument(
                "[DataParallel] the model has no parameter to train, so it needs no DataParallel"
            )
        held = [*layers.parameters(), *layers.buffers()]
        first_ranks_contents([t for t in held if not getattr(t, "is_distributed", False)], group)
        self._average = GradientAverage(
            synced, group, last_comm_buffer_size * MIB, comm_buffer_size * MIB
        )

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        outputs = self._layers(*inputs, **kwargs)
        if self._average is not None:
            self._average.expect()
        return outputs

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Passes whose gradients are only added up here; the next one outside averages them."""
        with nullcontext() if self._average is None else self._average.no_sync():
            yield

    def scale_loss(self, loss: Tensor) -> Tensor:
        """The loss itself: gradients are averaged where they are added up."""
        return loss

    def apply_collective_grads(self) -> None:
        """Nothing: gradients are averaged when the backward pass ends."""

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The wrapped model's, without a prefix."""
        return self._layers.state_dict(*args, **kwargs)

    def set_state_dict(
        self, state_dict: dict[str, Any], use_structured_name: bool = True
    ) -> tuple[list[str], list[str]]:
        return self._layers.set_state_dict(state_dict, use_structured_name)

    set_dict = load_dict = set_state_dict


__all__ = ["DataParallel", "ParallelEnv"]
