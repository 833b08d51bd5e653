"""Meshes and placements here; training over eight virtual devices in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bireme import distributed as dist
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.host import config


def test_sharded_training_equals_one_device() -> None:
    script = Path(__file__).with_name("train_sharded.py")
    env = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    done = subprocess.run(
        [sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "sharded training agrees" in done.stdout


def test_mesh() -> None:
    mesh = dist.ProcessMesh([[0, 1], [2, 3]], dim_names=["x", "y"])
    assert mesh.shape == [2, 2]
    assert mesh.process_ids == [0, 1, 2, 3]
    assert mesh == dist.ProcessMesh(shape=[2, 2], process_ids=[0, 1, 2, 3], dim_names=["x", "y"])
    assert hash(mesh) == hash(dist.ProcessMesh([[0, 1], [2, 3]], ["x", "y"]))
    assert mesh != dist.ProcessMesh([[0, 1], [2, 3]])
    assert mesh.get_mesh_with_dim("y").process_ids == [0, 2, 1, 3]
    assert mesh.get_mesh_with_dim("x", 1).process_ids == [2, 3]
    assert mesh.get_submesh_with_dim("y") == dist.ProcessMesh([0, 1], ["y"])  # around device 0
    assert mesh.get_submesh_with_dim("x") == dist.ProcessMesh([0, 2], ["x"])
    assert dist.ProcessMesh([[1], [2]], ["x", "y"]).get_submesh_with_dim("x") is None
    assert mesh[0].process_ids == [0, 1]
    assert mesh[:, 1].dim_names == ["x"]
    assert mesh.get_dim_size("x") == 2
    assert mesh.get_rank_by_dim_and_process_id("y", 3) == 1
    assert dist.ProcessMesh([0]).dim_names == ["d0"]


@pytest.mark.parametrize(
    "arguments",
    [([[0, 1], [2]],), ([0, 1], ["a", "b"]), ([0, 0],), (3,), ([0.5],), (None,), ([-1],)],
)
def test_bad_mesh(arguments) -> None:
    with pytest.raises(InvalidArgument):
        dist.ProcessMesh(*arguments)


def test_placements() -> None:
    assert dist.Shard(1) == dist.Shard(1) != dist.Shard(0)
    assert len({dist.Replicate(), dist.Replicate(), dist.Partial()}) == 2
    assert repr(dist.Shard(1)) == "Shard(dim=1)"
    assert repr(dist.Partial()) == "Partial(reduce_type=SUM)"
    assert dist.Shard(1).is_shard(1)
    assert not dist.Shard(1).is_shard(0)


def test_one_device_changes_nothing() -> None:
    mesh = dist.ProcessMesh([0])
    x = dist.shard_tensor([1.0, 2.0], mesh, [dist.Shard(0)], dtype="float64", stop_gradient=False)
    assert (x.placements, x.process_mesh) == ([dist.Shard(0)], mesh)
    assert not x.stop_gradient
    assert not config.sharded
    assert (x * 2).placements is None


def test_bad_placements() -> None:
    mesh = dist.ProcessMesh([0])
    x = np.ones((3, 2), "float32")
    with pytest.raises(InvalidArgument, match="does not fit"):
        dist.shard_tensor(x, mesh, [dist.Shard(2)])
    with pytest.raises(InvalidArgument, match="does not divide into 2"):
        dist.shard_tensor(x, dist.ProcessMesh([0, 1]), [dist.Shard(0)])
    with pytest.raises(InvalidArgument, match="per dimension"):
        dist.shard_tensor(x, mesh, [dist.Shard(0), dist.Shard(1)])
    with pytest.raises(TypeMismatch, match="ProcessMesh"):
        dist.shard_tensor(x, [0], [dist.Shard(0)])
    with pytest.raises(TypeMismatch, match="placements"):
        dist.shard_tensor(x, mesh, ["x"])


def test_a_mesh_that_is_larger_than_the_machine_is_computed_on_one_device() -> None:
    mesh = dist.ProcessMesh([[4998, 4999], [5000, 5001]], ["x", "y"])
    with pytest.warns(UserWarning, match="the mesh uses device 5001, but there are"):
        x = dist.shard_tensor(
            np.ones((4, 2), "float32"), mesh, [dist.Shard(0), dist.Replicate()], stop_gradient=False
        )
    assert x.is_dist()
    assert (x.process_mesh, x.placements) == (mesh, [dist.Shard(0), dist.Replicate()])
    assert x.dist_attr().dims_mapping == [0, -1]
    assert x.dist_attr().sharding_specs == ["x", None]
    again = dist.reshard(x * 2, mesh, [dist.Replicate(), dist.Shard(1)])
    again.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full((4, 2), 2.0))
    assert not config.sharded
    assert (x * 2).dist_attr() is None
