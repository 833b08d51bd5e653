"""fleet on eight virtual devices, and what of it needs none."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import eight

import bireme
from bireme import nn
from bireme.core import executor
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.distributed import fleet, mesh
from bireme.distributed.fleet.meta_parallel import (
    RNGStatesTracker,
    get_rng_state_tracker,
    model_parallel_random_seed,
)
from bireme.distributed.fleet.utils import LocalFS, recompute
from bireme.incubate.distributed.fleet import recompute_hybrid, recompute_sequential

FILE = "checks_fleet.py"


@pytest.fixture(autouse=True)
def _no_mesh(monkeypatch) -> None:
    monkeypatch.setattr(mesh, "_global", None)


@pytest.mark.parametrize("name", eight.names(FILE))
def test_on_eight_devices(name) -> None:
    error = eight.results(FILE)[name]
    assert error is None, error


@pytest.mark.parametrize(
    ("names", "dims"),
    [(["data", "pipe", "sharding", "sep", "model"], [2, 1, 2, 1, 2]), (["data", "model"], [2, 4])],
)
def test_topology(paddle, names, dims) -> None:
    ours = fleet.CommunicateTopology(names, dims)
    theirs = paddle.distributed.fleet.CommunicateTopology(names, dims)
    assert ours.world_size() == theirs.world_size()
    assert ours.get_hybrid_group_names() == theirs.get_hybrid_group_names()
    for rank in range(ours.world_size()):
        assert tuple(ours.get_coord(rank)) == tuple(theirs.get_coord(rank))
        assert ours.get_rank(**ours.get_coord(rank)._asdict()) == rank
        moved = ours.get_rank_from_stage(rank, data=1)
        assert moved == theirs.get_rank_from_stage(rank, data=1)
    for name in names:
        assert ours.get_dim(name) == theirs.get_dim(name)
        assert ours.get_comm_list(name) == theirs.get_comm_list(name)
        for index in range(ours.get_dim(name)):
            assert ours.get_axis_list(name, index) == theirs.get_axis_list(name, index)
    assert sorted(ours.get_fused_ranks(names[:2])) == sorted(theirs.get_fused_ranks(names[:2]))


def test_topology_errors() -> None:
    topology = fleet.CommunicateTopology(["data", "model"], [2, 4])
    with pytest.raises(InvalidArgument, match="no axis 'pipe'"):
        topology.get_dim("pipe")
    with pytest.raises(InvalidArgument, match="outside"):
        topology.get_rank(data=2, model=0)
    with pytest.raises(InvalidArgument, match="Missing"):
        topology.get_rank(data=1)


def test_strategy() -> None:
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"mp_degree": 2}
    assert strategy.hybrid_configs["mp_degree"] == 2
    assert strategy.hybrid_configs["dp_degree"] == -1
    strategy.amp = True
    assert "mp_degree" in repr(strategy)
    with pytest.raises(InvalidArgument, match="dgc stays False"):
        strategy.dgc = True
    with pytest.raises(InvalidArgument, match="no field 'speed'"):
        strategy.speed = True  # type: ignore[attr-defined]
    with pytest.raises(InvalidArgument, match="no 'ep_degree'"):
        strategy.hybrid_configs = {"ep_degree": 2}
    with pytest.raises(TypeMismatch, match="type bool"):
        strategy.amp = 1  # type: ignore[assignment]


def test_roles(monkeypatch) -> None:
    maker = fleet.UserDefinedRoleMaker(
        current_id=1, role=fleet.Role.SERVER, worker_num=2, server_endpoints=["a:1", "b:2"]
    )
    assert maker._is_server()
    assert (maker._server_num(), maker._server_index(), maker._worker_num()) == (2, 1, 2)
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", "10.0.0.1:1,10.0.0.2:1")
    cloud = fleet.PaddleCloudRoleMaker(is_collective=True)
    assert (cloud._worker_num(), cloud._node_num(), cloud._is_first_worker()) == (1, 2, True)
    with pytest.raises(InvalidArgument, match="worker_num"):
        fleet.UserDefinedRoleMaker(current_id=0)


def test_one_worker(capsys) -> None:
    own = fleet.Fleet()
    with pytest.raises(InvalidArgument, match=r"fleet\.init"):
        own.worker_index()
    own.init(is_collective=True)
    assert own.util.get_file_shard(["a", "b"]) == ["a", "b"]
    assert own.util.all_gather(3) == [3]
    np.testing.assert_array_equal(own.util.all_reduce(np.array([1, 2]), "max"), [1, 2])
    own.util.print_on_rank("hello", 0)
    assert capsys.readouterr().out == "hello\n"
    own.barrier_worker()
    model = own.distributed_model(nn.Linear(2, 2))
    assert model(bireme.ones([1, 2])).shape == [1, 2]


def test_local_files(tmp_path) -> None:
    fs = LocalFS()
    fs.mkdirs(str(tmp_path / "a" / "b"))
    fs.touch(str(tmp_path / "a" / "x"))
    assert fs.ls_dir(str(tmp_path / "a")) == (["b"], ["x"])
    with pytest.raises(FileExistsError):
        fs.touch(str(tmp_path / "a" / "x"), exist_ok=False)
    fs.mv(str(tmp_path / "a" / "x"), str(tmp_path / "a" / "y"))
    with pytest.raises(FileNotFoundError):
        fs.mv(str(tmp_path / "a" / "x"), str(tmp_path / "a" / "z"))
    fs.touch(str(tmp_path / "a" / "z"))
    with pytest.raises(FileExistsError):
        fs.mv(str(tmp_path / "a" / "y"), str(tmp_path / "a" / "z"))
    fs.mv(str(tmp_path / "a" / "y"), str(tmp_path / "a" / "z"), overwrite=True)
    fs.upload(str(tmp_path / "a"), str(tmp_path / "copy"))
    assert fs.is_file(str(tmp_path / "copy" / "z"))
    fs.delete(str(tmp_path / "a"))
    assert not fs.is_exist(str(tmp_path / "a"))
    assert fs.ls_dir(str(tmp_path / "a")) == ([], [])


class _Words(fleet.MultiSlotDataGenerator):
    def generate_sample(self, line):
        def samples():
            numbers = [int(x) for x in (line or "7 8").split()]
            yield [("words", numbers), ("label", [numbers[0] % 2])]

        return samples


def test_data_generator(capsys) -> None:
    made = _Words()
    assert list(made.lines(["1 2 3", "4"])) == ["3 1 2 3 1 1\n", "1 4 1 0\n"]
    made.run_from_memory()
    assert capsys.readouterr().out == "2 7 8 1 1\n"
    text = fleet.MultiSlotStringDataGenerator()._gen_str([("words", ["1", "2"]), ("y", ["0"])])
    assert text == "2 1 2 1 0\n"
    with pytest.raises(InvalidArgument, match="slots were"):
        made._gen_str([("other", [1])])
    with pytest.raises(InvalidArgument, match="at least one"):
        made._gen_str([("words", []), ("label", [1])])


def test_named_random_states() -> None:
    tracker = RNGStatesTracker()
    tracker.add("a", 5)
    with pytest.raises(InvalidArgument, match="already"):
        tracker.add("b", 5)
    bireme.seed(1)
    plain = bireme.rand([4]).numpy()
    bireme.seed(1)
    with tracker.rng_state("a"):
        first = bireme.rand([4]).numpy()
    np.testing.assert_array_equal(bireme.rand([4]).numpy(), plain)
    with tracker.rng_state("a"):
        assert not np.array_equal(bireme.rand([4]).numpy(), first)
    model_parallel_random_seed(3)
    assert list(get_rng_state_tracker().get_states_tracker()) == ["model_parallel_rng"]


# --- recompute ------------------------------------------------------------------------------


class _Block(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        return x + self.down(self.drop(nn.functional.gelu(self.up(x))))


def _gradients(again: bool):
    """(gradients, bytes that the compiled step takes beside its inputs and results)."""
    executor.clear_programs()
    bireme.seed(4)
    rng = np.random.default_rng(0)
    blocks = nn.LayerList([_Block() for _ in range(4)])
    for p in blocks.parameters():
        p.set_value((rng.normal(size=p.shape) * 0.1).astype("float32"))
    bireme.seed(5)
    x = bireme.to_tensor(rng.normal(size=(512, 16)).astype("float32"), stop_gradient=False)
    h = x
    for block in blocks:
        h = recompute(block, h) if again else block(h)
    (h * h).mean().backward()
    found = [x.grad.numpy(), *[p.grad.numpy() for p in blocks.parameters()]]
    largest = max(executor._programs.values(), key=lambda p: p.size)
    return found, largest.executable.compiled.memory_analysis().temp_size_in_bytes


def test_recompute_gives_the_same_and_keeps_less(monkeypatch) -> None:
    from bireme.host import config

    monkeypatch.setattr(config, "compile_mode", "always")
    plain, kept = _gradients(False)
    again, less = _gradients(True)
    for a, b in zip(plain, again, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-7)
    assert less < kept / 2, (less, kept)


def test_recompute_sequential() -> None:
    layers = nn.Sequential(*[nn.Linear(4, 4) for _ in range(5)])
    x = bireme.randn([2, 4])
    x.stop_gradient = False
    want = layers(x)
    want.sum().backward()
    grad = x.grad.numpy()
    for segments in (1, 2, 5):
        x.clear_grad()
        got = recompute_sequential({"segments": segments}, layers, x)
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
        got.sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), grad, rtol=1e-5)
    with pytest.raises(InvalidArgument, match="mp_group"):
        recompute_hybrid({}, layers, x)
    x.clear_grad()
    recompute_hybrid({"mp_group": object()}, layers, x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), grad, rtol=1e-5)


def test_utilities_of_one_worker() -> None:
    util = fleet.UtilBase()
    with pytest.raises(InvalidArgument, match=r"fleet\.init"):
        util.all_gather(1)
    util._set_role_maker(fleet.PaddleCloudRoleMaker(is_collective=True))
    np.testing.assert_array_equal(util.all_reduce(np.array([1, 2]), "max"), [1, 2])
    assert util.all_gather("x") == ["x"]
    assert util.get_file_shard(["a", "b"]) == ["a", "b"]
    with pytest.raises(InvalidArgument, match="sum, max or min"):
        util.all_reduce(np.ones(2), "mean")


def test_there_are_parts_for_distributed_work() -> None:
    assert bireme.distributed.is_available() is True
