"""Whose batch a model gets, and whose weights it has.

One process that drives all devices gets the whole batch, and cuts it over the mesh. In a job of
several processes each gets its own part, as programs for Paddle are written: rows differ along the
axes "data" and "sharding", and are the same along "model". Nothing is cut there, and no row is
left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bireme.capture import tree
from bireme.core.tensor import Tensor
from bireme.distributed.auto_parallel.layouts import everywhere, lay_out
from bireme.distributed.communication.averaging import MIB, GradientAverage, first_ranks_contents
from bireme.distributed.communication.group import Group
from bireme.distributed.communication.programs import exchange
from bireme.distributed.dtensor import layout_of, shard_tensor
from bireme.distributed.environment import get_world_size
from bireme.distributed.fleet.meta_parallel.parts import Parts
from bireme.distributed.job import DistributedError
from bireme.distributed.mesh import ProcessMesh
from bireme.distributed.placement import Placement, Replicate, Shard
from bireme.nn.layer.layer import Layer

if TYPE_CHECKING:
    from bireme.distributed.fleet.strategy import DistributedStrategy
    from bireme.distributed.fleet.topology import HybridCommunicateGroup


Call = tuple[tuple[Any, ...], dict[str, Any]]  # arguments by position and by name


class Batches(Protocol):
    """What a model does around its forward pass."""

    def take(self, given: Call) -> Call:
        """The arguments, as the model computes with them."""
        ...

    def forward(self) -> AbstractContextManager[None]:
        """A context for the forward pass."""
        ...

    def state_dict(self, layers: Layer, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The model's state, with whole parameters."""
        ...

    def set_state_dict(
        self, layers: Layer, state: dict[str, Any], *args: Any, **kwargs: Any
    ) -> tuple[list[str], list[str]]:
        """Fill the model from whole parameters."""
        ...

    def no_sync(self) -> AbstractContextManager[None]:
        """A context in which gradients stay this process's own."""
        ...


class _Whole:
    """Parameters that are whole here."""

    def state_dict(self, layers: Layer, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return layers.state_dict(*args, **kwargs)

    def set_state_dict(
        self, layers: Layer, state: dict[str, Any], *args: Any, **kwargs: Any
    ) -> tuple[list[str], list[str]]:
        return layers.set_state_dict(state, *args, **kwargs)


class OnMesh(_Whole):
    """Batches of the one process that drives all devices, cut over the mesh; `cuts` has the
    dimension of a batch for each dimension of the mesh."""

    def __init__(self, layers: Layer, mesh: ProcessMesh, cuts: dict[str, int]) -> None:
        self.mesh, self.cuts = mesh, cuts
        if mesh.size > 1:
            for tensor in (*layers.parameters(), *layers.buffers()):
                if layout_of(tensor) is None:
                    lay_out(tensor, *everywhere(mesh))

    def take(self, given: Call) -> Call:
        if self.mesh.size == 1:
            return given
        args, kwargs = given
        return tuple([self._cut(x) for x in args]), {k: self._cut(x) for k, x in kwargs.items()}

    @contextmanager
    def forward(self) -> Iterator[None]:
        yield

    no_sync = forward

    def _cut(self, x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.is_leaf or layout_of(x) is not None:
            return x
        placements: list[Placement] = [Replicate()] * self.mesh.ndim
        parts = [1] * x.ndim
        for axis, (name, size) in enumerate(zip(self.mesh.dim_names, self.mesh.shape, strict=True)):
            dim = self.cuts.get(name)
            if dim is not None and dim < x.ndim and x.shape[dim] % (parts[dim] * size) == 0:
                parts[dim] *= size
                placements[axis] = Shard(dim)
        return shard_tensor(x, self.mesh, placements)


class OwnPart(_Whole):
    """Batches of one process of several.

    `copies` are the processes that train the same weights on other rows: their gradients are
    averaged. `sharers` are those that hold other parts of the same model, and compute with the same
    rows. With `parts` the copies also share the storage of the parameters.
    """

    def __init__(
        self,
        layers: Layer,
        copies: Group,
        sharers: Group | None = None,
        parts: Parts | None = None,
        bucket_mib: tuple[float, float] = (1, 32),
    ) -> None:
        self._sharers = sharers if sharers is not None and sharers.nranks > 1 else None
        self._parts = parts
        self._average: GradientAverage | None = None
        if copies.nranks > 1:
            held = layers.parameters()
            if parts is not None and parts.group is copies:
                # Gradients of parts are averaged where they are cut.
                held = [p for p in held if not getattr(p, "is_part", False)]
            first, limit = bucket_mib
            self._average = GradientAverage(held, copies, first * MIB, limit * MIB)

    def take(self, given: Call) -> Call:
        if self._sharers is not None:
            _must_be_equal(given, self._sharers)
        return given

    @contextmanager
    def forward(self) -> Iterator[None]:
        if self._parts is None:
            yield
        else:
            with self._parts.whole():
                yield
        if self._average is not None:
            self._average.expect()

    def state_dict(self, layers: Layer, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if self._parts is not None:
            return self._parts.state_dict(*args, **kwargs)
        return super().state_dict(layers, *args, **kwargs)

    def set_state_dict(
        self, layers: Layer, state: dict[str, Any], *args: Any, **kwargs: Any
    ) -> tuple[list[str], list[str]]:
        if self._parts is not None:
            return self._parts.set_state_dict(state)
        return super().set_state_dict(layers, state, *args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        if self._average is None:
            yield
        else:
            with self._average.no_sync():
                yield


def _must_be_equal(given: Any, group: Group) -> None:
    """Raise unless all processes of the group were given the same tensors: each would compute a
    part of another result, and the sum of such parts means nothing."""
    digest = hashlib.blake2b(digest_size=16)
    for x in tree.flatten(given)[0]:
        array = np.ascontiguousarray(np.asarray(x._array()))
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.view(np.uint8).reshape(-1).data if array.size else b"")
    own = np.frombuffer(digest.digest(), np.uint8)
    (found,) = exchange("all_gather", group, [own])
    if (np.asarray(found).reshape(group.nranks, -1) != own).any():
        raise DistributedError(
            f"[TensorParallel] processes {group.ranks} hold parts of one model, so they compute "
            "with the same batch, but they were given different ones. Take the batch by the rank "
            "in the data-parallel group (hcg.get_data_parallel_rank()), not by the rank in the "
            "job, and seed its order equally"
        )


def equal_weights(layers: Layer, copies: Group, sharers: Group | None = None) -> None:
    """Give processes that should have the same weights and buffers those of the first of them."""
    held = [*layers.parameters(), *layers.buffers()]
    if sharers is not None:
        first_ranks_contents([t for t in held if not getattr(t, "is_distributed", False)], sharers)
    first_ranks_contents(held, copies)


def batches_of(
    layers: Layer,
    hcg: HybridCommunicateGroup,
    strategy: DistributedStrategy | None,
    cuts: dict[str, int],
) -> Batches:
    """How a model of fleet gets its batches."""
    if get_world_size() == 1:
        return OnMesh(layers, hcg.mesh, cuts)
    copies, sharers = hcg.get_copies_group(), hcg.get_model_parallel_group()
    equal_weights(layers, copies, sharers)
    if strategy is None:
        return OwnPart(layers, copies, sharers)
    sizes = strategy._message_sizes()
    stage = int(strategy.sharding_configs["stage"])
    sharding = hcg.get_sharding_parallel_group()
    if sharding.nranks == 1 or stage < 3:
        return OwnPart(layers, copies, sharers, bucket_mib=sizes)
    parts = Parts(layers, sharding)
    return OwnPart(layers, hcg.get_dp_sep_parallel_group(), sharers, parts, bucket_mib=sizes)
