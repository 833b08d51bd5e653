"""Batches that are spread over a mesh as they come out of a DataLoader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.distributed.auto_parallel.layouts import axis_of
from bireme.distributed.auto_parallel.local import dtensor_from_local
from bireme.distributed.dtensor import shard_tensor
from bireme.distributed.mesh import ProcessMesh
from bireme.distributed.placement import Placement, Replicate, Shard
from bireme.host import jax_door

if TYPE_CHECKING:
    from bireme.io.dataloader import DataLoader


class ShardDataloader:
    """Iterates over a loader's batches, laid out over meshes."""

    def __init__(
        self,
        dataloader: DataLoader,
        meshes: ProcessMesh | Sequence[ProcessMesh],
        input_keys: Sequence[str] | None = None,
        shard_dims: int | str | Sequence[int | str] | None = None,
        is_dataset_splitted: bool = False,
        dense_tensor_idx: list[list[int]] | None = None,
    ) -> None:
        self._meshes: list[Any] = list(meshes) if isinstance(meshes, list | tuple) else [meshes]
        flat = [m for x in self._meshes for m in (x if isinstance(x, list | tuple) else [x])]
        if not flat or not all(isinstance(m, ProcessMesh) for m in flat):
            raise TypeMismatch(
                "[shard_dataloader] meshes must be a ProcessMesh or a list of them. Received: "
                f"{meshes!r:.100}"
            )
        if is_dataset_splitted and shard_dims is None:
            raise InvalidArgument(
                "[shard_dataloader] a dataset that is split already needs shard_dims, the "
                "dimension of the mesh along which it was"
            )
        if shard_dims is None or isinstance(shard_dims, str | int):
            dims: list[Any] = [shard_dims] * len(self._meshes)
        else:
            dims = list(shard_dims)
        if len(dims) != len(self._meshes):
            raise InvalidArgument(
                f"[shard_dataloader] there are {len(self._meshes)} meshes and {len(dims)} "
                "shard_dims"
            )
        self._dataloader = dataloader
        self._shard_dims = dims
        self._input_keys = input_keys
        self._split = bool(is_dataset_splitted)
        self._dense = dense_tensor_idx
        self._iterator: Iterator[Any] | None = None

    def __len__(self) -> int:
        return len(self._dataloader)

    def __iter__(self) -> ShardDataloader:
        self._iterator = None
        return self

    __call__ = __iter__

    def __next__(self) -> Any:
        if self._iterator is None:
            self._iterator = iter(self._dataloader)
        return self._place_batch(next(self._iterator))

    def _place_batch(self, batch: Any) -> Any:
        if isinstance(batch, dict):
            keys = list(batch) if self._input_keys is None else list(self._input_keys)
            self._check_count(len(keys))
            return {key: self._place(batch[key], i) for i, key in enumerate(keys)}
        if isinstance(batch, list | tuple):
            self._check_count(len(batch))
            return [self._place(x, i) for i, x in enumerate(batch)]
        if isinstance(batch, Tensor):
            return self._place(batch, 0)
        raise TypeMismatch(
            "[shard_dataloader] a batch is a tensor, a list or a dict of them. Received: "
            f"{type(batch).__name__}"
        )

    def _check_count(self, count: int) -> None:
        if len(self._meshes) not in (1, count):
            raise InvalidArgument(
                f"[shard_dataloader] a batch has {count} inputs, but there are "
                f"{len(self._meshes)} meshes; give one mesh, or one for each input"
            )

    def _place(self, item: Any, index: int) -> Any:
        own = 0 if len(self._meshes) == 1 else index
        mesh, dim = self._meshes[own], self._shard_dims[own]
        dense = self._dense[index] if self._dense else []
        if isinstance(item, list | tuple):
            return [
                x
                if j in dense or not isinstance(x, Tensor)
                else self._put(
                    x,
                    mesh[j] if isinstance(mesh, list | tuple) else mesh,
                    dim[j] if isinstance(dim, list | tuple) else dim,
                )
                for j, x in enumerate(item)
            ]
        if dense or not isinstance(item, Tensor):
            return item
        return self._put(item, mesh, dim)

    def _put(self, x: Tensor, mesh: ProcessMesh, dim: Any) -> Tensor:
        placements: list[Placement] = [Replicate()] * mesh.ndim
        if dim is not None:
            axis = axis_of(mesh, dim, "shard_dataloader")
            # The last batch of an epoch may be smaller; it is then copied to every device.
            own_part = self._split and jax_door.jax().process_count() > 1
            if own_part or (x.ndim and x.shape[0] % mesh.shape[axis] == 0):
                placements[axis] = Shard(0)
            if own_part:
                return dtensor_from_local(x, mesh, placements)
        return shard_tensor(x, mesh, placements)


def shard_dataloader(
    dataloader: DataLoader,
    meshes: ProcessMesh | Sequence[ProcessMesh],
    input_keys: Sequence[str] | None = None,
    shard_dims: int | str | Sequence[int | str] | None = None,
    is_dataset_splitted: bool = False,
    dense_tensor_idx: list[list[int]] | None = None,
) -> ShardDataloader:
    """A loader whose batches lie on meshes, cut along their first dimension over `shard_dims`.

    `meshes` is one mesh, or one per input (of `input_keys`, where batches are dicts). Inputs in
    `dense_tensor_idx` stay as they are.

    >>> loader = shard_dataloader(loader, mesh, shard_dims="dp")  # doctest: +SKIP
    """
    return ShardDataloader(
        dataloader, meshes, input_keys, shard_dims, is_dataset_splitted, dense_tensor_idx
    )
