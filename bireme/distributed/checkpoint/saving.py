"""save_state_dict: every process writes the blocks that it holds, and each block once."""

from __future__ import annotations

import atexit
import errno
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core import sharding
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.distributed.checkpoint import files
from bireme.distributed.checkpoint.weights import ShardedWeight
from bireme.distributed.environment import get_rank, get_world_size
from bireme.io import atomic, safetensors_file

if TYPE_CHECKING:
    from bireme.distributed.communication.group import Group


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
                listed.append(
                    {"file": file, "key": block, "offset": list(offset), "shape": list(array.shape)}
                )
            tensors[name] = {"shape": list(shape), "dtype": tensor.dtype.name, "blocks": listed}
        self.part = {"version": files.VERSION, "tensors": tensors, "values": values}
        self.number, self.rank = number, rank

    def write(self, save: atomic.Save, folder: str) -> None:
        with save.file(os.path.join(folder, files.data_name(self.rank, self.number))) as file:
            safetensors_file.write(self.arrays, {"format": "bireme"}, file)
        files.write_json(save, files.parts_path(folder, self.rank, self.number), self.part)


def _add_last(save: atomic.Save, folder: str, number: int, world: int) -> None:
    """The file that says that all parts are there; those of an older, larger job go."""
    last = {"version": files.VERSION, "ranks": list(range(world))}
    files.write_json(save, files.last_path(folder, number), last)
    for path in files.others(folder, number, world):
        save.remove(path)


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
            atexit.unregister(self.wait)
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def start(self, job: Any) -> None:
        def run() -> None:
            try:
                job()
            except BaseException as e:  # handed to whoever waits
                self._error = e

        atexit.register(self.wait)
        self._thread = threading.Thread(target=run, name="bireme-checkpoint")
        self._thread.start()


_pending = _Pending()


def save_state_dict(
    state_dict: dict[str, Any],
    path: str,
    process_group: Group | None = None,
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
        if async_save:
            raise InvalidArgument(
                "[save_state_dict] async_save works in jobs of one process; others meet to agree "
                "that all parts are there"
            )
        number = max(_gathered(number, process_group))

        def snapshot() -> _Snapshot:
            return _Snapshot(state_dict, number, rank, rank == coordinator_rank, save_replicas)

        _save_with_others(snapshot, folder, rank == coordinator_rank, process_group)
        return
    taken = _Snapshot(state_dict, number, rank, rank == coordinator_rank, save_replicas)

    def finish() -> None:
        with atomic.Save() as save:
            taken.write(save, folder)
            _add_last(save, folder, number, world)

    if async_save:
        _pending.start(finish)
    else:
        finish()


def _save_with_others(
    snapshot: Callable[[], _Snapshot], folder: str, commits: bool, group: Group | None
) -> None:
    """Every process writes its part under temporary names and holds it; then one of them puts all
    parts in their places. What fails in one process fails in all, and replaces nothing."""
    save = atomic.Save()
    try:
        error: Exception | None = None
        number = -1
        try:
            taken = snapshot()
            number = taken.number
            taken.write(save, folder)
        except Exception as e:
            error = e
        staged = _agree(error, save.staged, group)
        try:
            if commits:
                for names in staged:
                    save.take(folder, names)
                _add_last(save, folder, number, len(staged))
                save.commit()
        except Exception as e:
            error = e
        _agree(error, None, group)
    finally:
        save.discard()


def _agree(error: Exception | None, value: Any, group: Group | None) -> list[Any]:
    """The values of all processes, unless something went wrong in one of them."""
    told = None if error is None else f"{type(error).__name__}: {error}"
    found = _gathered((told, value), group)
    if error is not None:
        raise error
    for rank, (other, _) in enumerate(found):
        if other is not None:
            raise atomic.WriteError(
                errno.EIO, f"[save_state_dict] rank {rank} could not save: {other}"
            )
    return [v for _, v in found]


def _gathered(value: Any, group: Group | None) -> list[Any]:
    from bireme.distributed.communication.objects import all_gather_object

    found: list[Any] = []
    all_gather_object(found, value, group)
    return found


def wait_async_save() -> None:
    """Wait for a checkpoint that is being written in the background."""
    _pending.wait()
