"""Who holds the parts of tensor-parallel layers: nobody else, the devices of a mesh, or processes.

The layers (`layers.py`) are written once, in these terms. On a mesh a weight is one tensor of its
full shape, and the partitioner inserts sums and copies. Over processes each holds its part as an
ordinary tensor, so that a client's code sees the shapes that it sees with Paddle.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import bireme
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor, constant
from bireme.distributed.auto_parallel.layouts import lay_out
from bireme.distributed.auto_parallel.plans import cut, whole
from bireme.distributed.communication import differentiable
from bireme.distributed.communication.group import Group
from bireme.distributed.communication.programs import ReduceOp, exchange
from bireme.distributed.environment import get_world_size
from bireme.distributed.fleet.meta_parallel.random import MODEL_PARALLEL_RNG, get_rng_state_tracker
from bireme.distributed.mesh import ProcessMesh, get_mesh
from bireme.distributed.placement import Placement, Replicate, Shard
from bireme.nn import functional as F


class Cutting(Protocol):
    """How one dimension of weights and activations is spread."""

    count: int

    def local(self, size: int, what: str) -> int:
        """The size of a weight's dimension here, of `size` in all."""
        ...

    def drawing(self) -> AbstractContextManager[None]:
        """A context in which a cut weight is drawn."""
        ...

    def place(self, param: Tensor | None, dim: int | None, what: str) -> None:
        """`param` is cut in dimension `dim`, or whole."""
        ...

    def enter(self, x: Tensor) -> Tensor:
        """`x`, whole, before each part uses it."""
        ...

    def own(self, x: Tensor) -> Tensor:
        """The part of `x`, whole, in the last dimension."""
        ...

    def kept(self, x: Tensor) -> Tensor:
        """`x`, which is cut in the last dimension and stays so."""
        ...

    def join(self, x: Tensor) -> Tensor:
        """`x`, which is cut in the last dimension, whole."""
        ...

    def add_up(self, x: Tensor) -> Tensor:
        """The sum of the parts' `x`."""
        ...

    def look_up(self, ids: Tensor, table: Tensor) -> Tensor:
        """Rows of a table that is cut in its first dimension."""
        ...

    def cross_entropy(self, logits: Tensor, label: Tensor, ignore_index: int) -> Tensor:
        """The losses of logits that are cut in the last dimension; labels end in a 1."""
        ...


class Whole:
    """Nothing is cut: the layers are the ordinary ones."""

    count = 1

    def local(self, size: int, what: str) -> int:
        return size

    @contextmanager
    def drawing(self) -> Iterator[None]:
        yield

    def place(self, param: Tensor | None, dim: int | None, what: str) -> None:
        pass

    def enter(self, x: Tensor) -> Tensor:
        return x

    own = kept = join = add_up = enter

    def look_up(self, ids: Tensor, table: Tensor) -> Tensor:
        return F.embedding(ids, table)

    def cross_entropy(self, logits: Tensor, label: Tensor, ignore_index: int) -> Tensor:
        loss = F.softmax_with_cross_entropy(logits, label, ignore_index=ignore_index)
        assert isinstance(loss, Tensor)  # noqa: S101 (a pair only where the softmax is asked for)
        return loss


class OnMesh(Whole):
    """Tensors of full shapes on the devices of a mesh, cut along its dimension "mp"."""

    def __init__(self, mesh: ProcessMesh) -> None:
        self.mesh = mesh
        self.count = mesh.get_dim_size("mp")

    def place(self, param: Tensor | None, dim: int | None, what: str) -> None:
        if param is None:
            return
        placements: list[Placement] = [Replicate()] * self.mesh.ndim
        if dim is not None:
            _check_divides(param.shape[dim], self.count, what)
            placements[self.mesh.dim_names.index("mp")] = Shard(dim)
            _mark(param, dim)
        lay_out(param, self.mesh, placements)

    def own(self, x: Tensor) -> Tensor:
        return cut(x, self.mesh, mp=-1)

    kept = own

    def join(self, x: Tensor) -> Tensor:
        return whole(x, self.mesh, -1)

    add_up = join

    def cross_entropy(self, logits: Tensor, label: Tensor, ignore_index: int) -> Tensor:
        return super().cross_entropy(self.own(logits), label, ignore_index)


class OverProcesses(Whole):
    """Each process of a group holds a part, an ordinary tensor."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.count = group.nranks

    def local(self, size: int, what: str) -> int:
        _check_divides(size, self.count, what)
        return size // self.count

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """From the state of `model_parallel_random_seed`, which differs between the parts."""
        tracker = get_rng_state_tracker()
        if MODEL_PARALLEL_RNG not in tracker.states_:
            raise InvalidArgument(
                "weights in parts are drawn from a random state of their own: call fleet.init with "
                "mp_degree > 1 in hybrid_configs, or model_parallel_random_seed(seed)"
            )
        with tracker.rng_state():
            yield

    def place(self, param: Tensor | None, dim: int | None, what: str) -> None:
        if param is not None and dim is not None:
            _mark(param, dim)

    def enter(self, x: Tensor) -> Tensor:
        return differentiable.enter(x, self.group)

    def own(self, x: Tensor) -> Tensor:
        return differentiable.own_part(x, self.group)

    def join(self, x: Tensor) -> Tensor:
        return differentiable.join(x, self.group)

    def add_up(self, x: Tensor) -> Tensor:
        return differentiable.add_up(x, self.group)

    def kept(self, x: Tensor) -> Tensor:
        return x

    def _positions(self, ids: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Positions in this process's part of `size`, and whether they are in it. Those that are
        in no part stay outside, for the look-up to complain about."""
        here = ids - self.group.rank * size
        inside = bireme.logical_and(here >= 0, here < size)
        elsewhere = bireme.logical_and(ids >= 0, ids < size * self.count)
        elsewhere = bireme.logical_and(elsewhere, bireme.logical_not(inside))
        return bireme.where(elsewhere, bireme.zeros_like(here), here), inside

    def look_up(self, ids: Tensor, table: Tensor) -> Tensor:
        here, inside = self._positions(ids, table.shape[0])
        rows = F.embedding(here, table)
        return self.add_up(rows * inside.unsqueeze(-1).astype(rows.dtype))

    def cross_entropy(self, logits: Tensor, label: Tensor, ignore_index: int) -> Tensor:
        (peak,) = exchange(
            "all_reduce", self.group, [logits.detach().max(-1, keepdim=True)._array()], ReduceOp.MAX
        )
        shifted = logits - constant(peak)
        total = self.add_up(shifted.exp().sum(-1, keepdim=True))
        counted = bireme.where(label == ignore_index, bireme.zeros_like(label), label)
        here, inside = self._positions(counted.astype("int64"), logits.shape[-1])
        own = bireme.take_along_axis(shifted, here, -1) * inside.astype(shifted.dtype)
        loss = total.log() - self.add_up(own)
        return bireme.where(label == ignore_index, bireme.zeros_like(loss), loss)


def _mark(param: Tensor, dim: int) -> None:
    param.is_distributed = True  # pyright: ignore[reportAttributeAccessIssue] (Paddle's names)
    param.split_axis = dim  # pyright: ignore[reportAttributeAccessIssue]


def _check_divides(size: int, count: int, what: str) -> None:
    if size % count:
        raise InvalidArgument(f"[{what}] {size} does not divide into {count} equal parts")


def cutting_of(group: Group | None) -> Cutting:
    """How layers are cut: over the processes of `group` (or of fleet's "mp" group), or over the
    mesh dimension "mp" where one process drives all devices."""
    if group is not None and group.nranks == 1:
        return Whole()
    if get_world_size() > 1:
        from bireme.distributed.fleet import fleet

        if group is None and not hasattr(fleet, "_hcg"):
            return Whole()
        group = fleet._hcg.get_model_parallel_group() if group is None else group
        return OverProcesses(group) if group.nranks > 1 else Whole()
    mesh = get_mesh()
    if mesh is None or "mp" not in mesh.dim_names or mesh.get_dim_size("mp") == 1:
        return Whole()
    return OnMesh(mesh)
