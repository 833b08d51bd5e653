"""Models on a mesh: the batch is cut as it comes in, everything else is the model's."""

from __future__ import annotations

from typing import Any, ClassVar

from bireme.amp import auto_cast
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.distributed.dtensor import layout_of, shard_tensor
from bireme.distributed.mesh import ProcessMesh
from bireme.distributed.placement import Placement, Replicate, Shard
from bireme.nn.layer.layer import Layer


class MetaParallelBase(Layer):
    """A model whose inputs are cut over the mesh: batches over "dp" and "sharding"."""

    _cuts: ClassVar[dict[str, int]] = {"dp": 0, "sharding": 0}

    def __init__(self, layers: Layer, hcg: Any, strategy: Any = None, **kwargs: Any) -> None:
        if kwargs:
            raise InvalidArgument(
                f"[{type(self).__name__}] does not know the option {sorted(kwargs)[0]!r}"
            )
        super().__init__(layers.full_name() + "_parallel")
        self._layers = layers
        self._hcg = hcg
        self._strategy = strategy

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        mesh = self._hcg.mesh
        if mesh.size > 1:
            inputs = tuple([self._cut(x, mesh) for x in inputs])
            kwargs = {k: self._cut(x, mesh) for k, x in kwargs.items()}
        if self._strategy is None or not self._strategy.amp:
            return self._layers(*inputs, **kwargs)
        amp = self._strategy.amp_configs
        with auto_cast(
            True,
            amp["custom_white_list"],
            amp["custom_black_list"],
            "O2" if amp["use_pure_fp16"] else "O1",
            "bfloat16" if amp["use_bf16"] else "float16",
        ):
            return self._layers(*inputs, **kwargs)

    def _cut(self, x: Any, mesh: ProcessMesh) -> Any:
        if not isinstance(x, Tensor) or not x.is_leaf or layout_of(x) is not None:
            return x
        placements: list[Placement] = [Replicate()] * mesh.ndim
        parts = [1] * x.ndim
        for axis, (name, size) in enumerate(zip(mesh.dim_names, mesh.shape, strict=True)):
            dim = self._cuts.get(name)
            if dim is not None and dim < x.ndim and x.shape[dim] % (parts[dim] * size) == 0:
                parts[dim] *= size
                placements[axis] = Shard(dim)
        return shard_tensor(x, mesh, placements)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The model's, without a prefix."""
        return self._layers.state_dict(*args, **kwargs)

    def set_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        return self._layers.set_state_dict(state_dict, *args, **kwargs)

    set_dict = load_dict = set_state_dict


class TensorParallel(MetaParallelBase):
    """A model with layers that are cut over "mp"."""


class ShardingParallel(MetaParallelBase):
    """A model whose optimizer's state is cut over "sharding"."""


class SegmentParallel(MetaParallelBase):
    """A model whose sequences, [batch, sequence, ...], are cut over "sep"."""

    _cuts: ClassVar[dict[str, int]] = {"dp": 0, "sharding": 0, "sep": 1}
