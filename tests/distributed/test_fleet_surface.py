"""Fleet's names, strategies as text, and what jobs without servers do."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import bireme as paddle
from bireme import nn
from bireme.core.errors import BiremeError, FileFormatError, InvalidArgument, TypeMismatch
from bireme.distributed import fleet, mesh
from bireme.distributed.fleet import prototxt

# Of Paddle's Fleet: methods of parameter servers, and casts of static programs.
ABSENT = {
    "amp_init", "check_save_pre_patch_done", "get_fl_client", "get_loss_scaling",
    "init_coordinator", "load_one_table", "make_fl_strategy", "print_table_stat", "qat_init",
    "save_cache_model", "save_cache_table", "save_dense_params", "save_one_table", "set_date",
    "shrink",
}  # fmt: skip
# Of its strategy: settings of servers and of what is refused.
ABSENT_FIELDS = {
    "a_sync_configs", "adaptive_localsgd_configs", "build_strategy", "dgc_configs",
    "fleet_desc_configs", "gradient_scale_configs", "lars_configs", "qat_configs",
    "sparse_table_configs", "trainer_desc_configs",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_mesh(monkeypatch) -> None:
    monkeypatch.setattr(mesh, "_global", None)


def names(kind) -> set[str]:
    return {n for n in dir(kind) if not n.startswith("_")}


def test_what_paddle_has_is_here_or_listed(paddle) -> None:
    theirs = paddle.distributed.fleet
    assert names(theirs.Fleet) - names(fleet.Fleet) == ABSENT
    have = names(fleet.DistributedStrategy) | set(vars(fleet.DistributedStrategy()))
    assert names(theirs.DistributedStrategy) - have == ABSENT_FIELDS


def test_fields_that_change_nothing_say_why() -> None:
    strategy = fleet.DistributedStrategy()
    strategy.nccl_comm_num = 2
    strategy.cudnn_exhaustive_search = True
    strategy.dgc = False
    with pytest.raises(InvalidArgument, match=r"dgc stays False: gradients are exchanged whole"):
        strategy.dgc = True
    with pytest.raises(InvalidArgument, match="no parameter server"):
        strategy.a_sync = False
    with pytest.raises(TypeMismatch, match="nccl_comm_num is of type int"):
        strategy.nccl_comm_num = True


def test_strategies_are_written_and_read(tmp_path) -> None:
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 2, "mp_degree": 4}
    strategy.gradient_merge = True
    strategy.gradient_merge_configs = {"k_steps": 4, "avg": False}
    strategy.recompute_configs = {"checkpoints": ["a"]}
    strategy.amp_configs = {"custom_white_list": ['x"y', "z"], "init_loss_scaling": 2.5}
    path = str(tmp_path / "s.prototxt")
    strategy.save_to_prototxt(path)
    other = fleet.DistributedStrategy()
    other.load_from_prototxt(path)
    assert vars(other) == vars(strategy)
    assert fleet.DistributedStrategy().recompute_configs == {"checkpoints": []}


def test_text_of_paddle_is_read(paddle, tmp_path) -> None:
    theirs = paddle.distributed.fleet.DistributedStrategy()
    theirs.hybrid_configs = {"dp_degree": 2, "mp_degree": 4}
    theirs.lamb = True
    theirs.lamb_configs = {"lamb_weight_decay": 0.5, "exclude_from_weight_decay": ["b_0"]}
    theirs.recompute_configs = {"checkpoints": ["a", "b"]}
    path = str(tmp_path / "s.prototxt")
    theirs.save_to_prototxt(path)
    own = fleet.DistributedStrategy()
    own.load_from_prototxt(path)
    assert own.lamb is True
    assert own.lamb_configs == {"lamb_weight_decay": 0.5, "exclude_from_weight_decay": ["b_0"]}
    assert own.recompute_configs["checkpoints"] == ["a", "b"]
    assert own.hybrid_configs["mp_degree"] == 4
    own.save_to_prototxt(path)
    theirs.load_from_prototxt(path)
    assert theirs.lamb is True


@pytest.mark.parametrize(
    "text", ["a {", "a:", "}", "a: 1 }", "a: $", "a: :", "a {" * 9, "wrong: 1"]
)
def test_damaged_text_is_an_error(tmp_path, text) -> None:
    path = tmp_path / "s.prototxt"
    path.write_text(text)
    with pytest.raises(BiremeError):
        fleet.DistributedStrategy().load_from_prototxt(str(path))


def test_text_has_comments_and_limits(tmp_path) -> None:
    assert prototxt.read('# x\na: 1 # y\nb { c: "d" c: -2.5 }\n') == {
        "a": 1,
        "b": {"c": ["d", -2.5]},
    }
    with pytest.raises(FileFormatError, match="too many"):
        prototxt.read("a" * (1 << 21))
    path = tmp_path / "s.prototxt"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(FileFormatError, match="not text"):
        fleet.DistributedStrategy().load_from_prototxt(str(path))


def test_lamb_and_pruning_are_asked_for() -> None:
    strategy = fleet.DistributedStrategy()
    strategy.lamb = strategy.asp = True
    strategy.lamb_configs = {"lamb_weight_decay": 0.1, "exclude_from_weight_decay": ["b_0"]}
    fleet.init(is_collective=True, strategy=strategy)
    paddle.seed(0)
    layers = [nn.Linear(4, 4) for _ in range(2)]
    layers[1].set_state_dict(layers[0].state_dict())
    made = fleet.distributed_optimizer(
        paddle.optimizer.Adam(0.1, parameters=layers[0].parameters())
    )
    plain = paddle.optimizer.Lamb(
        0.1, 0.1, epsilon=1e-8, parameters=layers[1].parameters(),
        exclude_from_weight_decay_fn=lambda p: p.name.endswith("b_0"),
    )  # fmt: skip
    for layer, optimizer in zip(layers, (made, plain), strict=True):
        (layer(paddle.ones([2, 4])) ** 2).sum().backward()
        optimizer.step()
    for a, b in zip(layers[0].parameters(), layers[1].parameters(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)
    with pytest.raises(InvalidArgument, match=r"strategy\.lamb is for Adam"):
        fleet.distributed_optimizer(paddle.optimizer.SGD(0.1, parameters=layers[0].parameters()))


def test_jobs_without_servers_say_so(caplog) -> None:
    fleet.init(is_collective=True)
    assert fleet.is_coordinator() is False
    assert fleet.world_device_ids() == [fleet.local_device_ids()]
    with caplog.at_level(logging.WARNING, "bireme.fleet"):
        fleet.init_worker()
        fleet.stop_worker()
    assert "init_worker does nothing" in caplog.text


def test_a_job_with_servers_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("PADDLE_PSERVERS_IP_PORT_LIST", "127.0.0.1:1")
    fleet.init()
    with pytest.raises(InvalidArgument, match="there is no parameter server"):
        fleet.init_server()


def test_static_programs_are_saved_by_fleet(tmp_path) -> None:
    fleet.init(is_collective=True)
    paddle.enable_static()
    try:
        main = paddle.static.Program()
        with paddle.static.program_guard(main, paddle.static.Program()):
            x = paddle.static.data("x", [2, 3], "float32")
            y = paddle.static.nn.fc(x, 2)
            executor = paddle.static.Executor()
            executor.run(paddle.static.default_startup_program())
            feed = {"x": np.ones((2, 3), "float32")}
            (want,) = executor.run(main, feed=feed, fetch_list=[y])
            fleet.save_persistables(executor, str(tmp_path / "p"))
            fleet.fleet.save(str(tmp_path / "i"), feed=["x"], fetch=[y])
            fleet.load_model(str(tmp_path / "p"))
            np.testing.assert_allclose(executor.run(main, feed=feed, fetch_list=[y])[0], want)
            program, inputs, results = fleet.load_inference_model(str(tmp_path / "i"))
            assert inputs == ["x"]
            got = executor.run(program, feed=feed, fetch_list=results)
            np.testing.assert_allclose(got[0], want, rtol=1e-6)
        with pytest.raises(InvalidArgument, match="mode is 0"):
            fleet.load_model(str(tmp_path / "p"), 1)
    finally:
        paddle.disable_static()


def test_levels_of_logging() -> None:
    before = fleet.get_log_level_code()
    fleet.set_log_level("debug")
    assert (fleet.get_log_level_code(), fleet.get_log_level_name()) == (10, "DEBUG")
    fleet.set_log_level(before)
    with pytest.raises(TypeMismatch, match="a name or a number"):
        fleet.set_log_level(1.5)  # type: ignore[arg-type]
