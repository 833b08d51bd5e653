"""DataParallel: a model whose gradients are those of the whole job."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bireme.core import autograd
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor, constant
from bireme.core.trace import state
from bireme.distributed.communication.group import Group, get_global_group, is_initialized
from bireme.distributed.communication.programs import ReduceOp, exchange
from bireme.distributed.communication.stream import put
from bireme.distributed.environment import ParallelEnv, get_world_size
from bireme.distributed.job import DistributedError
from bireme.nn.layer.layer import Layer

_MIB = 1 << 20


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
        strategy: Any = None,
        comm_buffer_size: int = 25,
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
        self._sync = True
        self._expects_backward = False
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
        self._shared = group is not None and group.is_member()
        if not self._shared:
            return
        trained = [
            p for p in layers.parameters() if p.trainable and not getattr(p, "no_sync", False)
        ]
        if not trained:
            raise InvalidArgument(
                "[DataParallel] the model has no parameter to train, so it needs no DataParallel"
            )
        self._buckets = _buckets(
            trained,
            last_comm_buffer_size * _MIB,
            comm_buffer_size * _MIB,
        )
        self._take_first_ranks_contents()
        self._number = next(_numbers)
        _models.add(self)
        if _average_all not in autograd.after_backward:
            autograd.after_backward.append(_average_all)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        outputs = self._layers(*inputs, **kwargs)
        # As in Paddle, what counts is whether the forward pass was under no_sync().
        if self._shared and self._sync and state.trace.tape:
            self._expects_backward = True
        return outputs

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Passes whose gradients are only added up here; the next one outside averages them."""
        before, self._sync = self._sync, False
        try:
            yield
        finally:
            self._sync = before

    def scale_loss(self, loss: Tensor) -> Tensor:
        """The loss itself: gradients are averaged where they are added up."""
        return loss

    def apply_collective_grads(self) -> None:
        """Nothing: gradients are averaged when the backward pass ends."""

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The wrapped model's, without a prefix."""
        return self._layers.state_dict(*args, **kwargs)

    def set_state_dict(self, state_dict: Any, use_structured_name: bool = True) -> Any:
        return self._layers.set_state_dict(state_dict, use_structured_name)

    set_dict = load_dict = set_state_dict

    def _take_first_ranks_contents(self) -> None:
        assert self.group is not None  # noqa: S101 (only called with one)
        held = [*self._layers.parameters(), *self._layers.buffers()]
        shared = [t for t in held if not getattr(t, "is_distributed", False)]
        arrays = exchange("broadcast", self.group, [t._array() for t in shared], 0)
        for tensor, array in zip(shared, arrays, strict=True):
            put(tensor, array)

    def _average_gradients(self) -> None:
        assert self.group is not None  # noqa: S101 (only called with one)
        self._expects_backward = False
        for bucket in self._buckets:
            grads = [p._grad for p in bucket]
            given = [
                np.zeros(p._value.aval.shape, p.dtype.numpy) if g is None else g._array()
                for p, g in zip(bucket, grads, strict=True)
            ]
            used = np.array([g is not None for g in grads])
            *averages, anywhere = exchange("all_reduce", self.group, [*given, used], ReduceOp.AVG)
            if not used.all():
                used = np.asarray(anywhere)  # the only reason to wait for the exchange
            for parameter, average, wanted in zip(bucket, averages, used, strict=True):
                if wanted:
                    shape = parameter._value.aval.shape
                    parameter._grad = constant(average.reshape(shape))


_numbers = itertools.count()
_models: weakref.WeakSet[DataParallel] = weakref.WeakSet()


def _average_all() -> None:
    """After a backward pass: the models that took part in it."""
    for model in sorted(_models, key=lambda m: m._number):
        if model._expects_backward:
            model._average_gradients()


def _buckets(parameters: list[Any], first: float, limit: float) -> list[list[Any]]:
    """The parameters from the last to the first, in groups of about equal size and one type."""
    buckets: list[list[Any]] = []
    room = 0.0
    for p in reversed(parameters):
        size = p._value.aval.size * p.dtype.itemsize
        if not buckets or size > room or buckets[-1][0].dtype is not p.dtype:
            room = limit if buckets else first
            buckets.append([])
        buckets[-1].append(p)
        room -= size
    return buckets


__all__ = ["DataParallel", "ParallelEnv"]
