"""What `paddle.distributed` has for static programs: entries, persistables, passes, inference."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme import distributed as dist
from bireme import static
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.distributed import passes
from bireme.distributed.passes.pass_base import PassBase, register_pass


@pytest.fixture(autouse=True)
def _program():
    paddle.enable_static()
    with (
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
    ):
        yield
    paddle.disable_static()


def test_entries_are_spelled_as_paddles(paddle):
    for make in (
        lambda d: d.ProbabilityEntry(0.25),
        lambda d: d.CountFilterEntry(3),
        lambda d: d.ShowClickEntry("s", "c"),
    ):
        assert make(dist)._to_attr() == make(paddle.distributed)._to_attr()
    for make in (
        lambda d: d.ProbabilityEntry(1),
        lambda d: d.ProbabilityEntry(1.5),
        lambda d: d.CountFilterEntry(-1),
        lambda d: d.CountFilterEntry("2"),
        lambda d: d.ShowClickEntry("s", 2),
    ):
        for module in (dist, paddle.distributed):
            with pytest.raises(ValueError):
                make(module)


def table(entry):
    ids = static.data("ids", [None, 1], "int64")
    return static.nn.sparse_embedding(
        ids,
        [6, 2],
        entry=entry,
        param_attr=paddle.ParamAttr(name="t", initializer=paddle.nn.initializer.Constant(1.0)),
    )


def seen(program, rows, ids) -> list[float]:
    feed = {"ids": np.array(ids)[:, None]}
    (out,) = static.Executor().run(program, feed=feed, fetch_list=[rows])
    return out.reshape(len(ids), 2)[:, 0].tolist()


def test_a_row_that_came_up_often_enough():
    rows = table(dist.CountFilterEntry(2))
    test = static.default_main_program().clone(for_test=True)
    paddle.optimizer.SGD(0.5).minimize(rows.sum())
    static.Executor().run(static.default_startup_program())
    main = static.default_main_program()
    assert seen(main, rows, [0, 1, 1]) == [0, 1, 1]
    assert seen(test, rows, [0, 1, 1]) == [0, 0, 0]  # 1 - 2 * 0.5, and testing counts nothing
    assert seen(main, rows, [0, 2]) == [1, 0]
    held = main.state_dict()
    assert held["t_count"].numpy().tolist() == [2, 2, 1, 0, 0, 0]
    assert held["t"].numpy()[:, 0].tolist() == [0.5, 0, 1, 1, 1, 1]  # rows outside are not trained


def test_rows_enter_by_chance_and_stay():
    rows = table(dist.ProbabilityEntry(0.5))
    static.Executor().run(static.default_startup_program())
    main = static.default_main_program()
    paddle.seed(7)
    runs = np.array([seen(main, rows, range(6)) for _ in range(12)])
    assert 0 < runs[0].sum() < 6
    assert (np.diff(runs, axis=0) >= 0).all()
    assert runs[-1].sum() == 6


def test_shows_and_clicks_add_up():
    static.data("shown", [None, 1])
    static.data("clicked", [None, 1])
    rows = table(dist.ShowClickEntry("shown", "clicked"))
    static.Executor().run(static.default_startup_program())
    one = np.ones((3, 1), "float32")
    feed = {"ids": np.array([[1], [1], [4]]), "shown": one, "clicked": one * 2}
    for _ in range(2):
        static.Executor().run(feed=feed, fetch_list=[rows])
    held = static.default_main_program().state_dict()
    assert held["t_show"].numpy().tolist() == [0, 4, 0, 0, 2, 0]
    assert held["t_click"].numpy().tolist() == [0, 8, 0, 0, 4, 0]


def test_tables_are_particular():
    ids = static.data("i", [None], "int32")
    with pytest.raises(TypeMismatch, match="int64"):
        static.nn.sparse_embedding(ids, [4, 2])
    ids = static.data("j", [None], "int64")
    with pytest.raises(InvalidArgument, match="table_class"):
        static.nn.sparse_embedding(ids, [4, 2], table_class="Drawer")
    with pytest.raises(InvalidArgument, match="entry is"):
        static.nn.sparse_embedding(ids, [4, 2], entry=3)


def model():
    x = static.data("x", [None, 3])
    y = static.nn.fc(x, 2, bias_attr=False)
    loss = (y**2).mean()
    paddle.optimizer.Adam(0.1).minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    return exe, y, loss


def test_persistables_come_back(tmp_path):
    exe, _, _ = model()
    main = static.default_main_program()
    x = {"x": np.ones((2, 3), "float32")}
    exe.run(feed=x)
    before = {k: v.numpy() for k, v in main.state_dict().items()}
    assert len(before) > 1
    dist.io.save_persistables(exe, str(tmp_path / "many"), main)
    dist.io.save_persistables(exe, str(tmp_path / "one"), main, "all")
    assert isinstance(dist.io.save_persistables(exe, None, main), bytes)
    for folder, name in (("many", None), ("one", "all")):
        exe.run(feed=x)
        dist.io.load_persistables(exe, str(tmp_path / folder), main, name)
        after = main.state_dict()
        for key, value in before.items():
            np.testing.assert_array_equal(after[key].numpy(), value)
    with pytest.raises(InvalidArgument, match="no file"):
        dist.io.load_persistables(exe, str(tmp_path), main)


def test_inference_with_what_was_saved(tmp_path):
    exe, y, loss = model()
    main, start = static.default_main_program(), static.default_startup_program()
    x = {"x": np.ones((2, 3), "float32")}
    exe.run(feed=x)
    dist.io.save_persistables(exe, str(tmp_path), main)
    (want,) = exe.run(main.clone(for_test=True), feed=x, fetch_list=[y])
    infer = dist.fleet.utils.DistributedInfer(main, start)
    with pytest.raises(InvalidArgument, match="init_distributed_infer_env"):
        infer.get_dist_infer_program()
    infer.init_distributed_infer_env(exe, loss, dirname=str(tmp_path))
    program = infer.get_dist_infer_program()
    for _ in range(2):  # and nothing is trained
        (got,) = exe.run(program, feed=x, fetch_list=[y])
        np.testing.assert_array_equal(got, want)


def test_passes_change_what_runs():
    q = static.data("q", [1, 2, 8, 4])
    weights = paddle.nn.functional.softmax(q @ q.transpose([0, 1, 3, 2]) * 0.5)
    out = weights @ q
    feed = {"q": np.random.RandomState(0).randn(1, 2, 8, 4).astype("float32")}
    exe = static.Executor()
    (want,) = exe.run(feed=feed, fetch_list=[out])
    main, start = static.default_main_program(), static.default_startup_program()
    manager = passes.PassManager(
        [passes.new_pass("fuse_dot_product_attention"), passes.new_pass("dead_code")]
    )
    context = manager.apply([main], [start])
    assert manager.names == ["fuse_dot_product_attention", "dead_code"]
    assert context.passes == list(manager.passes)
    (got,) = exe.run(feed=feed, fetch_list=[out])
    np.testing.assert_allclose(got, want, rtol=1e-5)
    used = {n.call.op.name for plan in main._plans.values() for n in plan.op.graph.nodes}
    assert any("attention" in name for name in used)


def test_passes_know_their_neighbours():
    halves = [passes.new_pass("bfloat16"), passes.new_pass("float16"), passes.new_pass("bfloat16")]
    assert passes.PassManager(halves).names == ["bfloat16"]
    assert len(passes.PassManager(halves, auto_solve_conflict=False).names) == 3
    with pytest.raises(InvalidArgument, match="no pass 'fuse_gemm_epilogue'"):
        passes.new_pass("fuse_gemm_epilogue")
    with pytest.raises(InvalidArgument, match="has no attributes"):
        passes.new_pass("dead_code", {"x": 1}).apply([], [])
    with pytest.raises(InvalidArgument, match="one startup program"):
        passes.new_pass("dead_code").apply([static.Program()], [])


def test_a_pass_of_ones_own():
    @register_pass("count_ops_for_a_test")
    class Count(PassBase):
        def _check_self(self):
            return self.get_attr("on", True)

        def _check_conflict(self, other_pass):
            return True

        def _apply_single_impl(self, main_program, startup_program, context):
            context.set_attr("ops", main_program.num_ops())

    try:
        static.data("x", [1]).exp().log()
        pair = [static.default_main_program()], [static.default_startup_program()]
        assert passes.new_pass("count_ops_for_a_test").apply(*pair).get_attr("ops") == 2
        off = passes.new_pass("count_ops_for_a_test", {"on": False}).apply(*pair)
        assert off.get_attr("ops") is None
        assert off.passes == []
    finally:
        del PassBase._REGISTERED_PASSES["count_ops_for_a_test"]


def test_split_wants_a_static_program_and_fleet(monkeypatch):
    x = static.data("x", [None, 4])
    monkeypatch.setattr(dist.fleet.fleet, "_role_maker", None)
    with pytest.raises(InvalidArgument, match=r"fleet\.init"):
        dist.split(x, (4, 6), "linear")
    with pytest.raises(InvalidArgument, match="does not divide"):
        dist.split(x, (4, 6), "linear", axis=1, num_partitions=4)
    with pytest.raises(InvalidArgument, match="'linear' or 'embedding'"):
        dist.split(x, (4, 6), "conv")
    paddle.disable_static()
    try:
        with pytest.raises(ValueError, match="static program"):
            dist.split(paddle.ones([1, 4]), (4, 6), "linear")
    finally:
        paddle.enable_static()


def test_nccl_is_not_asked_where_it_is_not():
    assert dist.create_nccl_config({"nchannels": 4, "commName": "tp"}) is None
    with pytest.raises(InvalidArgument, match="no 'channels'"):
        dist.create_nccl_config({"channels": 4})
