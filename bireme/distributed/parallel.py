"""DataParallel: a model whose gradients are those of the whole job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bireme.core.tensor import Tensor
from bireme.distributed.environment import (
    DistributedError,
    ParallelEnv,
    get_world_size,
)
from bireme.nn.layer.layer import Layer


class DataParallel(Layer):
    """The model of a data-parallel program.

    A job is one process here, which drives all devices of the machine, so there is nothing to
    exchange with others: a batch is spread over devices by `shard_tensor`. The buffer sizes and
    `find_unused_parameters`, which steer such an exchange, therefore have nothing to steer.

    >>> model = DataParallel(net)  # doctest: +SKIP
    """

    def __init__(
        self,
        layers: Layer,
        strategy: Any = None,
        comm_buffer_size: int = 25,
        last_comm_buffer_size: int = 1,
        find_unused_parameters: bool = False,
        group: Any = None,
    ) -> None:
        super().__init__(layers.full_name() + "_data_parallel")
        if get_world_size() > 1:
            raise DistributedError(
                "[DataParallel] jobs of one process only. Received: "
                f"PADDLE_TRAINERS_NUM={get_world_size()}; one process drives all its devices, see "
                "paddle.distributed.shard_tensor"
            )
        self._layers = layers
        self.find_unused_parameters = find_unused_parameters

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self._layers(*inputs, **kwargs)

    def scale_loss(self, loss: Tensor) -> Tensor:
        """The loss itself: gradients are averaged where they are added up."""
        return loss

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Steps that exchange nothing: all of them, in a job of one process."""
        yield

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The wrapped model's, without a prefix."""
        return self._layers.state_dict(*args, **kwargs)

    def set_state_dict(self, state_dict: Any, use_structured_name: bool = True) -> Any:
        return self._layers.set_state_dict(state_dict, use_structured_name)

    set_dict = load_dict = set_state_dict


__all__ = ["DataParallel", "ParallelEnv"]
