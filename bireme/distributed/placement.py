"""How a tensor is laid out along one dimension of a mesh."""

from __future__ import annotations

from enum import Enum

from bireme.core.errors import InvalidArgument


class ReduceType(Enum):
    """How partial values are put together."""

    kRedSum = 0  # noqa: N815 (Paddle's names)
    kRedMax = 1  # noqa: N815
    kRedMin = 2  # noqa: N815
    kRedProd = 3  # noqa: N815
    kRedAvg = 4  # noqa: N815
    kRedAny = 5  # noqa: N815
    kRedAll = 6  # noqa: N815


class Placement:
    """Base of the three layouts."""

    def is_shard(self, dim: int | None = None) -> bool:
        return False

    def is_replicated(self) -> bool:
        return False

    def is_partial(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))


class Shard(Placement):
    """Split along the tensor's dimension `dim`."""

    def __init__(self, dim: int):
        if isinstance(dim, bool) or not isinstance(dim, int):
            raise InvalidArgument(f"Shard takes the number of a dimension. Received: {dim!r}")
        self.dim = dim

    def get_dim(self) -> int:
        return self.dim

    def is_shard(self, dim: int | None = None) -> bool:
        return dim is None or dim == self.dim

    def __repr__(self) -> str:
        return f"Shard(dim={self.dim})"


class Replicate(Placement):
    """A whole copy on each device."""

    def is_replicated(self) -> bool:
        return True

    def __repr__(self) -> str:
        return "Replicate()"


class Partial(Placement):
    """Each device holds a part of a sum (or other reduction) that is yet to be computed.

    On this engine the partitioner decides when to reduce, so contents are those of the result.
    """

    def __init__(self, reduce_type: ReduceType = ReduceType.kRedSum):
        self._reduce_type = reduce_type

    def reduce_type(self) -> ReduceType:
        return self._reduce_type

    def is_partial(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"Partial(reduce_type={self._reduce_type.name.removeprefix('kRed').upper()})"
