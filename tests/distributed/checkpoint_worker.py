"""Two processes save parts of one checkpoint: both or none replace what was there."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import numpy as np

import bireme as paddle
from bireme import distributed as dist
from bireme.distributed.checkpoint import ShardedWeight


def state(n: float, rank: int) -> dict[str, Any]:
    part = paddle.to_tensor(np.full([4, 2], n + rank / 2, "float32"))
    return {"w": ShardedWeight("w", part, (4, 2), (8, 2), (4 * rank, 0)), "n": n}


def found(folder: str) -> list[float]:
    whole = dist.load_merged_state_dict(folder)["w"].numpy()
    assert whole.shape == (8, 2)
    return [float(whole[0, 0]), float(whole[7, 1])]


def full_disk(*args: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def main(folder: str) -> None:
    dist.init_parallel_env()
    rank = dist.get_rank()
    dist.save_state_dict(state(1, rank), folder, unique_id=0)
    assert found(folder) == [1, 1.5]
    dist.save_state_dict(state(2, rank), folder, unique_id=0)
    assert found(folder) == [2, 2.5]
    dist.barrier()
    for failing in (0, 1):
        kept, message = os.fsync, ""
        if rank == failing:
            os.fsync = full_disk
        try:
            dist.save_state_dict(state(3, rank), folder, unique_id=0)
        except OSError as e:
            message = str(e)
        os.fsync = kept
        assert "No space left on device" in message, (rank, failing, message)
        assert found(folder) == [2, 2.5]
        dist.barrier()
    message = ""
    try:
        bad = {"x": object()} if rank == 1 else state(3, rank)
        dist.save_state_dict(bad, folder, unique_id=0)
    except (TypeError, OSError) as e:
        message = str(e)
    assert "object" in message
    assert found(folder) == [2, 2.5]
    dist.barrier()
    dist.save_state_dict(state(4, rank), folder)
    dist.save_state_dict(state(5, rank), folder)
    assert found(folder) == [5, 5.5]
    assert len(os.listdir(folder)) == 15, sorted(os.listdir(folder))
    sys.stdout.write(f"rank {rank}: checkpoints are whole\n")


if __name__ == "__main__":
    main(sys.argv[1])
