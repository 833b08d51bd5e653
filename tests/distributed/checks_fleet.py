"""fleet, recompute and checkpoints: run by test_fleet.py on eight devices."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from small_model import (
    MESH,
    Net,
    adamw,
    batches,
    by_batch,
    fill,
    make,
    on_first_device,
    same,
    tensor_parallel,
    train,
)

import bireme as paddle
from bireme import distributed as dist
from bireme import nn
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.distributed import fleet
from bireme.distributed.fleet.meta_parallel import (
    ColumnParallelLinear,
    ParallelCrossEntropy,
    RowParallelLinear,
    TensorParallel,
    VocabParallelEmbedding,
)
from bireme.io.safetensors_file import FileFormatError

S, R = dist.Shard, dist.Replicate


def _init(**degrees) -> None:
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = degrees
    fleet.init(is_collective=True, strategy=strategy)


def check_hybrid_training() -> None:
    _init(dp_degree=2, mp_degree=2, sharding_degree=2)
    assert dist.get_mesh().dim_names == ["dp", "sharding", "mp"]
    model = Net(
        ColumnParallelLinear(16, 32, has_bias=True, gather_output=False),
        RowParallelLinear(32, 16, input_is_parallel=True),
    )
    model.tokens = VocabParallelEmbedding(24, 16)
    fill(model)
    assert model.wide.weight.placements == [R(), R(), S(1)]
    assert model.tokens.weight.placements == [R(), R(), S(0)]
    optimizer = fleet.distributed_optimizer(adamw(model))
    wrapped = fleet.distributed_model(model)
    assert isinstance(wrapped, TensorParallel)
    same(train(wrapped, optimizer, lambda x: x))
    state = optimizer.state_dict()
    assert all(S(0) in v.placements or S(1) in v.placements for k, v in state.items() if "mom" in k)
    assert list(wrapped.state_dict()) == list(model.state_dict())
    groups = fleet.get_hybrid_communicate_group()
    assert groups.get_model_parallel_group().ranks == [0, 1]
    assert groups.get_data_parallel_group().ranks == [0, 4]
    assert groups.get_sharding_parallel_world_size() == 2
    assert groups.get_parallel_mode() == dist.ParallelMode.TENSOR_PARALLEL
    assert (fleet.worker_num(), fleet.worker_index(), fleet.is_first_worker()) == (1, 0, True)


def check_parallel_layers_alone() -> None:
    _init(mp_degree=8)
    x = np.random.default_rng(0).normal(size=(4, 16)).astype("float32")
    for make_layer in (
        lambda: ColumnParallelLinear(16, 32, has_bias=True, gather_output=True),
        lambda: RowParallelLinear(16, 8, input_is_parallel=False),
    ):
        layer = fill(make_layer())
        want = x @ layer.weight.numpy() + layer.bias.numpy()
        np.testing.assert_allclose(layer(paddle.to_tensor(x)).numpy(), want, rtol=1e-4, atol=1e-5)
        assert on_first_device([layer.weight]) == layer.weight.size * 4 / 8
    logits = paddle.to_tensor(np.random.default_rng(0).normal(size=(4, 16)).astype("float32"))
    labels = paddle.to_tensor([1, 2, -100, 15])
    loss = ParallelCrossEntropy()(logits, labels)
    want = nn.functional.cross_entropy(logits, labels, reduction="none")
    assert loss.shape == [4, 1]
    np.testing.assert_allclose(loss.numpy()[:, 0], want.numpy().reshape(-1), rtol=1e-5)
    with pytest.raises(InvalidArgument, match="does not divide into 8"):
        ColumnParallelLinear(4, 6)


def check_degrees_must_fit() -> None:
    for degrees, words in (({"mp_degree": 16}, "there are 8"), ({"mp_degree": 0}, "1 or more")):
        with pytest.raises(InvalidArgument, match=words):
            _init(**degrees)
    _init(pp_degree=2)
    with pytest.raises(InvalidArgument, match="PipelineLayer"):
        fleet.distributed_model(make())
    _init(mp_degree=2)
    assert fleet.get_hybrid_communicate_group().get_data_parallel_world_size() == 4


def check_checkpoint_on_another_mesh() -> None:
    folder = tempfile.mkdtemp()
    model = dist.shard_layer(make(), MESH, tensor_parallel)
    optimizer = dist.shard_optimizer(adamw(model), dist.ShardingStage3("dp", MESH))
    train(model, optimizer, data=batches()[:1])
    state = {"model": model.state_dict(), "opt": optimizer.state_dict(), "epoch": 3}
    dist.save_state_dict(state, folder)
    rest = train(model, optimizer, data=batches()[1:])

    other = dist.ProcessMesh(np.arange(8).reshape(2, 4), ["dp", "mp"])
    again = dist.shard_layer(make(), other, tensor_parallel)
    fresh = dist.shard_optimizer(adamw(again), dist.ShardingStage1("dp", other))
    fresh._make_ready()
    names = dict(zip(fresh.state_dict(), optimizer.state_dict(), strict=True))
    state = {
        "model": again.state_dict(),
        "opt": {names[k]: v for k, v in fresh.state_dict().items()},
        "epoch": 0,
    }
    dist.load_state_dict(state, folder)
    assert state["epoch"] == 3
    assert again.wide.weight.placements == [R(), S(1)]
    place = lambda x: by_batch(x, other)  # noqa: E731
    np.testing.assert_allclose(train(again, fresh, place, batches()[1:]), rest, rtol=3e-5)
    # Each element is on disk once, whatever the number of copies was.
    part = json.loads((Path(folder) / "0_0.parts.json").read_text())
    for entry in part["tensors"].values():
        held = sum(int(np.prod(b["shape"])) for b in entry["blocks"])
        assert held == int(np.prod(entry["shape"]))


def check_checkpoints_are_complete_or_not_there() -> None:
    folder = Path(tempfile.mkdtemp())
    x = dist.shard_tensor(np.arange(16.0).reshape(8, 2), MESH, [S(0), S(1)])
    dist.save_state_dict({"x": x}, folder)
    dist.save_state_dict({"x": x * 2}, folder, async_save=True)
    merged = dist.load_merged_state_dict(folder)
    np.testing.assert_array_equal(merged["x"].numpy(), 2 * np.arange(16.0).reshape(8, 2))
    dist.save_state_dict({"x": x * 3}, folder)
    (folder / "2.checkpoint.json").unlink()  # as if it had been interrupted
    merged = dist.load_merged_state_dict(folder)
    np.testing.assert_array_equal(merged["x"].numpy(), 2 * np.arange(16.0).reshape(8, 2))
    first = dist.load_merged_state_dict(folder, unique_id=0)
    np.testing.assert_array_equal(first["x"].numpy(), x.numpy())
    assert dist.load_merged_state_dict(folder, prefix="y") == {}

    whole = paddle.zeros([8, 2], dtype="float64")
    dist.load_state_dict({"x": whole}, folder, unique_id=0)
    np.testing.assert_array_equal(whole.numpy(), x.numpy())
    for state, error in (
        ({"y": whole}, InvalidArgument),
        ({"x": paddle.zeros([2, 8])}, ShapeMismatch),
    ):
        with pytest.raises(error):
            dist.load_state_dict(state, folder, unique_id=0)
    part = json.loads((folder / "0_0.parts.json").read_text())
    part["tensors"]["x"]["blocks"].pop()
    (folder / "0_0.parts.json").write_text(json.dumps(part))
    with pytest.raises(FileFormatError, match="incomplete"):
        dist.load_state_dict({"x": whole}, folder, unique_id=0)


def check_sharded_weights() -> None:
    folder = tempfile.mkdtemp()

    class Second:
        rank, nranks = 1, 2

    part = dist.shard_weight("w", paddle.ones([2, 3]), 0, Second())
    assert (part.global_shape, part.global_offset) == ((4, 3), (2, 0))
    states = dist.build_sharded_state_dict({"b": paddle.ones([2])}, prefix="m.")
    assert states["m.b"].global_shape == (2,)
    x = dist.shard_tensor(np.arange(12.0, dtype="float32").reshape(4, 3), MESH, [S(0)])
    dist.save_state_dict({"w": x}, folder)
    dist.load_state_dict({"w": part}, folder)
    np.testing.assert_array_equal(part.local_tensor.numpy(), np.arange(6.0, 12.0).reshape(2, 3))


def _split_losses(parts: int) -> list[float]:
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 1, "mp_degree": parts}
    fleet.init(is_collective=True, strategy=strategy)
    rng = np.random.RandomState(0)

    def weight(*shape: int):
        values = rng.randn(*shape).astype("float32")
        return paddle.ParamAttr(initializer=paddle.nn.initializer.Assign(values))

    static = paddle.static
    paddle.enable_static()
    try:
        main, start = static.Program(), static.Program()
        with static.program_guard(main, start), static.scope_guard(static.Scope()):
            ids = static.data("ids", [None, 3], "int64")
            rows = dist.split(ids, (8, 4), "embedding", 0, parts, weight_attr=weight(8, 4))
            inner = dist.split(rows, (4, 6), "linear", 1, parts, False, weight(4, 6))
            out = dist.split(inner, (6, 2), "linear", 0, parts, True, weight(6, 2))
            loss = (out**2).mean()
            paddle.optimizer.SGD(0.05).minimize(loss)
            exe = static.Executor()
            exe.run(start)
            feed = {"ids": np.arange(6).reshape(2, 3)}
            losses = [float(exe.run(main, feed, [loss])[0]) for _ in range(4)]
            first = static.global_scope().tensor(main.all_parameters()[0].name)
            if parts > 1:
                assert len(first._array().sharding.device_set) == parts
                assert first._array().sharding.spec[0] == "mp"
            return losses
    finally:
        paddle.disable_static()


def check_split_in_static_programs() -> None:
    np.testing.assert_allclose(_split_losses(2), _split_losses(1), rtol=1e-5)


def check_the_page_runs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "meshes.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    dist.set_mesh(MESH)
    names: dict = {}
    exec(blocks[0], names)
    assert names["model"][0].weight.placements == [R(), S(1)]
    for block in blocks[1:]:
        exec(block, names)
