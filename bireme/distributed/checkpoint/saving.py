"""save_state_dict: every process writes the blocks that it holds, and each block once."""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any

import numpy as np

from bireme.core import sharding
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.distributed.checkpoint import files
from bireme.distributed.checkpoint.weights import ShardedWeight
from bireme.distributed.environment import get_rank, get_world_size
from bireme.io import safetensors_file

Block = tuple[tuple[int, ...], np.ndarray]


def _blocks(value: Any, plain: bool, copies: bool) -> tuple[tuple[int, ...], list[Block]]:
    """(shape of the whole, blocks that this process saves)."""
    if isinstance(value, ShardedWeight):
        if value.is_flattened:
            raise InvalidArgument(
                f"[save_state_dict] {value.key!r} is a flattened part; save the block it is from"
            )
        array = np.asarray(value.local_tensor.numpy()).reshape(value.local_shape)
        return value.global_shape, [(value.global_offset, array)]
    buf = value._array()
    shape = tuple(buf.shape)
    if not sharding.is_spread(buf):
        return shape, [((0,) * len(shape), np.array(buf))] if plain or copies else []
    found: dict[tuple[int, ...], np.ndarray] = {}
    for shard in buf.addressable_shards:
        offset = tuple([s.indices(n)[0] for s, n in zip(shard.index, shape, strict=True)])
        if (copies or shard.replica_id == 0) and offset not in found:
            found[offset] = np.array(shard.data)
    return shape, list(found.items())


class _Snapshot:
    """What this process saves, copied, so that training can go on while it is written."""

    def __init__(self, state: dict[str, Any], number: int, rank: int, plain: bool, copies: bool):
        self.arrays: dict[str, np.ndarray] = {}
        tensors: dict[str, Any] = {}
        values: dict[str, Any] = {}
        file = files.data_name(rank, number)
        for name, (holder, key) in files.flatten(state).items():
            value = holder[key]
            if not isinstance(value, Tensor | ShardedWeight):
                if not isinstance(value, str | int | float | bool | list | tuple | type(None)):
                    raise TypeMismatch(
                        f"[save_state_dict] {name!r} is neither a tensor nor a plain value. "
                        f"Received: {type(value).__name__}"
                    )
                values[name] = value
                continue
            tensor = value.local_tensor if isinstance(value, ShardedWeight) else value
            shape, blocks = _blocks(value, plain, copies)
            listed = []
            for at, (offset, array) in enumerate(blocks):
                if not safetensors_file.can_store(array):
                    raise TypeMismatch(
                        f"[save_state_dict] tensors of type {array.dtype} cannot be saved: {name!r}"
                    )
                block = name if len(blocks) == 1 else f"{name}@{at}"
                self.arrays[block] = array
                listed.append({"file": file, "key": block, "offset": list(offset),
                               "shape": list(array.shape)})  # fmt: skip
            tensors[name] = {"shape": list(shape), "dtype": tensor.dtype.name, "blocks": listed}
        self.part = {"version": files.VERSION, "tensors": tensors, "values": values}
        self.number, self.rank = number, rank

    def write(self, folder: str) -> None:
        path = os.path.join(folder, files.data_name(self.rank, self.number))
        with safetensors_file.replacing(path) as file:
            safetensors_file.write(self.arrays, {"format": "bireme"}, file)
        files.write_json(files.parts_path(folder, self.rank, self.number), self.part)


class _Pending:
    """A checkpoint that is being written in the background."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def wait(self) -> None:
        """Wait until it is complete; raises what went wrong."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def start(self, job: Any) -> None:
        def run() -> None:
            try:
                job()
            except BaseException as e:  # handed to whoever waits
                self._error = e

        self._thread = threading.Thread(target=run, name="bireme-checkpoint")
        self._thread.start()


_pending = _Pending()
atexit.register(_pending.wait)


def save_state_dict(
    state_dict: Any,
    path: str,
    process_group: Any = None,
    coordinator_rank: int = 0,
    unique_id: int | None = None,
    async_save: bool = False,
    safetensors: bool = False,
    save_replicas: bool = False,
) -> None:
    """Save tensors in the parts in which they lie. Nested dicts and plain values may be among
    them.

    The files are safetensors and JSON whatever `safetensors` says. A folder keeps several
    checkpoints, numbered by `unique_id` (the next number, if None); one that was interrupted
    does not count. With `async_save` the contents are copied now and written in the background.
    `save_replicas` makes every process save what it holds, even if another has the same.

    >>> save_state_dict(model.state_dict(), "checkpoint")  # doctest: +SKIP
    """
    if not isinstance(state_dict, dict):
        raise TypeMismatch(f"[save_state_dict] takes a dict. Received: {type(state_dict).__name__}")
    if unique_id is not None and (not isinstance(unique_id, int) or unique_id < 0):
        raise InvalidArgument(f"[save_state_dict] unique_id is 0 or more. Received: {unique_id!r}")
    _pending.wait()
    world = get_world_size(process_group)
    rank = get_rank(process_group)
    folder = os.fspath(path)
    number = unique_id
    if number is None:
        done = files.checkpoints(folder)
        number = done[-1] + 1 if done else 0
    if world > 1:
        _barrier(process_group)  # everybody has looked which number is next
    snapshot = _Snapshot(state_dict, number, rank, rank == coordinator_rank, save_replicas)
    if unique_id is not None and rank == coordinator_rank and number in files.checkpoints(folder):
        # A checkpoint that is saved again must not look complete while its parts change.
        os.unlink(files.last_path(folder, number))

    def finish() -> None:
        snapshot.write(folder)
        if world > 1:
            _barrier(process_group)
        if rank == coordinator_rank:
            last = {"version": files.VERSION, "ranks": list(range(world))}
            files.write_json(files.last_path(folder, number), last)

    if async_save:
        if world > 1:
            raise InvalidArgument(
                "[save_state_dict] async_save works in jobs of one process; others meet to agree "
                "that all parts are there"
            )
        _pending.start(finish)
    else:
        finish()
        if world > 1:
            _barrier(process_group)


def _barrier(group: Any) -> None:
    import bireme.distributed as dist

    dist.barrier(group)  # type: ignore[attr-defined]


def wait_async_save() -> None:
    """Wait for a checkpoint that is being written in the background."""
    _pending.wait()
