"""Checkpoints in parts: several processes, interrupted saves, loads that take long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import distributed as dist
from bireme.core.errors import InvalidArgument
from bireme.distributed.checkpoint.files import Checkpoint
from bireme.io.safetensors_file import FileFormatError


def test_two_processes_replace_all_or_nothing(launched: Any, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    done = launched("checkpoint_worker.py", 2, arguments=(str(folder),))
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in range(2):
        log = (tmp_path / "log" / f"workerlog.{rank}").read_text()
        assert f"rank {rank}: checkpoints are whole" in log


def save(folder: Path, n: float, **options: Any) -> None:
    x = paddle.to_tensor(np.full([1000], n, "float32"))
    dist.save_state_dict({"x": x, "y": x + 1}, folder, **options)


def test_a_load_keeps_the_files_that_it_began_with(tmp_path: Path) -> None:
    save(tmp_path, 1, unique_id=0)
    began = Checkpoint(str(tmp_path), None)
    save(tmp_path, 2, unique_id=0)
    assert began.read("x", (slice(0, 2),)).tolist() == [1, 1]
    assert began.read("y", (slice(0, 2),)).tolist() == [2, 2]
    assert dist.load_merged_state_dict(tmp_path)["x"][0].item() == 2


def test_parts_of_a_larger_job_go(tmp_path: Path) -> None:
    save(tmp_path, 1, unique_id=3)
    for name in ("5_3.safetensors", "5_3.parts.json", "5_2.safetensors"):
        (tmp_path / name).write_bytes(b"")
    save(tmp_path, 2, unique_id=3)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "0_3.parts.json", "0_3.safetensors", "3.checkpoint.json", "5_2.safetensors",
    ]  # fmt: skip


def test_missing_parts_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no complete"):
        dist.load_merged_state_dict(tmp_path / "nothing")
    save(tmp_path, 1)
    (tmp_path / "0_0.safetensors").unlink()
    with pytest.raises(FileFormatError, match=r"0_0\.safetensors' is missing"):
        dist.load_merged_state_dict(tmp_path)
