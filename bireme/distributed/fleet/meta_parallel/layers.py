"""Tensor-parallel layers.

They are the ordinary layers with parameters of their full shapes, cut over the mesh: the
partitioner inserts the sums and copies that such layers write by hand elsewhere. Without a mesh
dimension "mp" they are the ordinary layers and nothing else.
"""

from __future__ import annotations

from typing import Any

from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.distributed.auto_parallel.layouts import lay_out
from bireme.distributed.auto_parallel.plans import cut, whole
from bireme.distributed.mesh import ProcessMesh, get_mesh
from bireme.distributed.placement import Placement, Replicate, Shard
from bireme.nn import functional as F
from bireme.nn.layer.common import Embedding, Linear
from bireme.nn.layer.layer import Layer


def _mesh(group: Any) -> ProcessMesh | None:
    """The mesh whose dimension "mp" cuts; None where there is nothing to cut."""
    if group is not None and group.nranks == 1:
        return None
    mesh = get_mesh()
    if mesh is None or "mp" not in mesh.dim_names or mesh.get_dim_size("mp") == 1:
        return None
    return mesh


def _place(layer: Any, name: str, dim: int | None, mesh: ProcessMesh | None) -> None:
    param = getattr(layer, name, None)
    if mesh is None or param is None:
        return
    placements: list[Placement] = [Replicate()] * mesh.ndim
    if dim is not None:
        size = mesh.get_dim_size("mp")
        if param.shape[dim] % size:
            raise InvalidArgument(
                f"[{type(layer).__name__}] a {name} of shape {list(param.shape)} does not divide "
                f"into {size} equal parts in dimension {dim}"
            )
        placements[mesh.dim_names.index("mp")] = Shard(dim)
        param.is_distributed = True
    lay_out(param, mesh, placements)


class ColumnParallelLinear(Linear):
    """A linear layer whose devices each compute some of the output's columns. XLA fuses the sum
    with the product, `fuse_matmul_bias` or not.

    >>> layer = ColumnParallelLinear(64, 256, has_bias=True, gather_output=False)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        weight_attr: Any = None,
        has_bias: bool | None = None,
        gather_output: bool = True,
        fuse_matmul_bias: bool = False,
        mp_group: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(in_features, out_features, weight_attr, None if has_bias else False, name)
        self._own_mesh = _mesh(mp_group)
        self.is_mp = self._own_mesh is not None
        self.gather_output = gather_output
        _place(self, "weight", 1, self._own_mesh)
        _place(self, "bias", 0, self._own_mesh)

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        if self._own_mesh is None:
            return out
        if self.gather_output:
            return whole(out, self._own_mesh, -1)
        return cut(out, self._own_mesh, mp=-1)


class RowParallelLinear(Linear):
    """A linear layer whose devices each add some of the input's columns to the result."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        weight_attr: Any = None,
        has_bias: bool = True,
        input_is_parallel: bool = False,
        fuse_matmul_bias: bool = False,
        mp_group: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(in_features, out_features, weight_attr, None if has_bias else False, name)
        self._own_mesh = _mesh(mp_group)
        self.is_mp = self._own_mesh is not None
        self.input_is_parallel = input_is_parallel
        _place(self, "weight", 0, self._own_mesh)
        _place(self, "bias", None, self._own_mesh)

    def forward(self, x: Tensor) -> Tensor:
        if self._own_mesh is None:
            return super().forward(x)
        return whole(super().forward(cut(x, self._own_mesh, mp=-1)), self._own_mesh, -1)


class VocabParallelEmbedding(Embedding):
    """An embedding whose devices each hold some of the rows."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        weight_attr: Any = None,
        mp_group: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, weight_attr=weight_attr, name=name)
        self._own_mesh = _mesh(mp_group)
        self.is_mp = self._own_mesh is not None
        _place(self, "weight", 0, self._own_mesh)


class ParallelCrossEntropy(Layer):
    """Cross entropy of logits whose classes are cut over devices; one loss per label."""

    def __init__(
        self, mp_group: Any = None, name: str | None = None, ignore_index: int = -100
    ) -> None:
        super().__init__(name)
        self._own_mesh = _mesh(mp_group)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, label: Tensor) -> Tensor:
        if self._own_mesh is not None:
            input = cut(input, self._own_mesh, mp=-1)
        if label.ndim < input.ndim:
            label = label.unsqueeze(-1)
        loss = F.softmax_with_cross_entropy(input, label, ignore_index=self.ignore_index)
        assert isinstance(loss, Tensor)  # noqa: S101 (a pair only where the softmax is asked for)
        return loss
