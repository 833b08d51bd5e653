"""Tensor-parallel layers. `cutting.py` says who holds their parts; without any they are the
ordinary layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bireme.core.tensor import Tensor
from bireme.distributed.fleet.meta_parallel.cutting import cutting_of
from bireme.nn import functional as F
from bireme.nn.attributes import ParamAttrLike
from bireme.nn.layer.common import Embedding, Linear
from bireme.nn.layer.layer import Layer

if TYPE_CHECKING:
    from bireme.distributed.communication.group import Group


class ColumnParallelLinear(Linear):
    """A linear layer each part of which computes some of the output's columns. XLA fuses the sum
    with the product, `fuse_matmul_bias` or not.

    >>> layer = ColumnParallelLinear(64, 256, has_bias=True, gather_output=False)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        weight_attr: ParamAttrLike | None = None,
        has_bias: bool | None = None,
        gather_output: bool = True,
        fuse_matmul_bias: bool = False,
        mp_group: Group | None = None,
        name: str | None = None,
    ) -> None:
        cutting, what = cutting_of(mp_group), type(self).__name__
        columns = cutting.local(out_features, what)
        with cutting.drawing():
            super().__init__(in_features, columns, weight_attr, None if has_bias else False, name)
        self._cutting = cutting
        self.is_mp = cutting.count > 1
        self.world_size = cutting.count
        self.gather_output = gather_output
        cutting.place(self.weight, 1, what)
        cutting.place(self.bias, 0, what)

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        out = super().forward(self._cutting.enter(x))
        return self._cutting.join(out) if self.gather_output else self._cutting.kept(out)


class RowParallelLinear(Linear):
    """A linear layer each part of which adds some of the input's columns to the result.

    With `input_is_parallel` the input is in parts already, as a ColumnParallelLinear with
    `gather_output=False` leaves it.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        weight_attr: ParamAttrLike | None = None,
        has_bias: bool = True,
        input_is_parallel: bool = False,
        fuse_matmul_bias: bool = False,
        mp_group: Group | None = None,
        name: str | None = None,
    ) -> None:
        cutting, what = cutting_of(mp_group), type(self).__name__
        rows = cutting.local(in_features, what)
        with cutting.drawing():
            super().__init__(rows, out_features, weight_attr, None if has_bias else False, name)
        self._cutting = cutting
        self.is_mp = cutting.count > 1
        self.world_size = cutting.count
        self.input_is_parallel = input_is_parallel
        cutting.place(self.weight, 0, what)
        cutting.place(self.bias, None, what)

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        if not self.is_mp:
            return super().forward(x)
        own = self._cutting.kept(x) if self.input_is_parallel else self._cutting.own(x)
        out = self._cutting.add_up(F.linear(own, self.weight))
        return out if self.bias is None else out + self.bias


class VocabParallelEmbedding(Embedding):
    """An embedding each part of which holds some of the rows."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        weight_attr: ParamAttrLike | None = None,
        mp_group: Group | None = None,
        name: str | None = None,
    ) -> None:
        cutting, what = cutting_of(mp_group), type(self).__name__
        rows = cutting.local(num_embeddings, what)
        with cutting.drawing():
            super().__init__(rows, embedding_dim, weight_attr=weight_attr, name=name)
        self._cutting = cutting
        self.is_mp = cutting.count > 1
        self.world_size = cutting.count
        cutting.place(self.weight, 0, what)

    def forward(self, x: Tensor) -> Tensor:
        return self._cutting.look_up(x, self.weight) if self.is_mp else super().forward(x)


class ParallelCrossEntropy(Layer):
    """Cross entropy of logits whose classes are in parts; one loss per label."""

    def __init__(
        self,
        mp_group: Group | None = None,
        name: str | None = None,
        ignore_index: int = -100,
    ) -> None:
        super().__init__(name)
        self._cutting = cutting_of(mp_group)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, label: Tensor) -> Tensor:
        if label.ndim < input.ndim:
            label = label.unsqueeze(-1)
        return self._cutting.cross_entropy(input, label, self.ignore_index)
