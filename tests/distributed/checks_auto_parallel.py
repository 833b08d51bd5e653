"""Stages, plans, captured steps, parts: run by test_auto_parallel.py on eight devices."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import pytest
from small_model import (
    MESH,
    adamw,
    batches,
    by_batch,
    fill,
    loss_of,
    make,
    on_first_device,
    one_device,
    same,
    tensor_parallel,
    train,
)

import bireme as paddle
from bireme import distributed as dist
from bireme import nn
from bireme.core import stats
from bireme.core.errors import InvalidArgument
from bireme.distributed.auto_parallel import parallelize_model, parallelize_optimizer
from bireme.distributed.planner import Cluster, Device, Link
from bireme.incubate.distributed.models import moe

S, R, P = dist.Shard, dist.Replicate, dist.Partial


def _moments(optimizer):
    return [v for k, v in optimizer.state_dict().items() if "moment" in k]


def check_sharding_stages() -> None:
    _stages(dist.ShardingStage1, dist.ShardingStage3)


def slow_sharding_stages() -> None:
    _stages(None, dist.ShardingStage2)


def _stages(*kinds) -> None:
    used = {}
    for stage in kinds:
        model = dist.shard_layer(make(), MESH, tensor_parallel)
        optimizer = dist.shard_optimizer(adamw(model), stage and stage("dp", MESH))
        with stats.count_compiles() as compiled:
            same(train(model, optimizer))
        assert compiled[0] <= 3, compiled
        assert isinstance(optimizer, paddle.optimizer.AdamW)
        used[stage] = on_first_device(model.parameters()), on_first_device(_moments(optimizer))
        if stage is not None:
            assert all(t.placements[0].is_shard() for t in _moments(optimizer))
    cut = ("wide.weight", "wide.bias", "narrow.weight")
    sizes = {n: p.size * 4 // (2 if n in cut else 1) for n, p in model.named_parameters()}
    whole = sum(sizes.values())
    for stage, (params, moments) in used.items():
        assert params == (whole // 4 if stage is dist.ShardingStage3 else whole)
        assert moments == (2 * whole if stage is None else 2 * whole // 4)


def check_gradients_are_cut() -> None:
    for stage, parts in ((dist.ShardingStage1, 1), (dist.ShardingStage2, 4)):
        model = dist.shard_layer(make(), MESH)
        dist.shard_optimizer(adamw(model), stage("dp", MESH))
        x, labels = batches()[0]
        loss_of(model(by_batch(x)), by_batch(labels)).backward()
        grad = model.wide.weight.grad
        if parts == 4:
            assert grad.placements == [S(0), R()]
        assert on_first_device([model.wide.weight]) == 16 * 32 * 4


def slow_accumulated_gradients_are_averaged() -> None:
    model = dist.shard_layer(make(), MESH)
    optimizer = dist.shard_optimizer(adamw(model), dist.ShardingStage1("dp", MESH), 2)
    losses = []
    for x, labels in batches():
        for half in (slice(0, 4), slice(4, 8)):
            loss = loss_of(model(by_batch(x[half])), by_batch(labels[half]))
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
        optimizer.clear_grad()
    same([(a + b) / 2 for a, b in zip(losses[::2], losses[1::2], strict=True)], 1e-4)


def slow_a_function_lays_out_the_state() -> None:
    model = dist.shard_layer(make(), MESH)
    seen = []

    def layout(key, param, accumulator):
        seen.append(key)
        cut = [S(0), R()] if accumulator.shape[0] % 4 == 0 else [R(), R()]
        return dist.shard_tensor(accumulator, MESH, cut)

    optimizer = dist.shard_optimizer(adamw(model), layout)
    same(train(model, optimizer))
    assert seen
    assert all(t.placements == [S(0), R()] for t in _moments(optimizer))


def slow_scaler_and_master_weights() -> None:
    def run(sharded):
        paddle.seed(0)
        model = fill(nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 8)))
        optimizer = paddle.optimizer.AdamW(0.01, parameters=model.parameters())
        model, optimizer = paddle.amp.decorate(model, optimizer, level="O2", dtype="float16")
        scaler = paddle.amp.GradScaler(init_loss_scaling=1024.0)
        if sharded:
            dist.set_mesh(MESH)
            model = dist.shard_layer(model, MESH)
            optimizer = paddle.optimizer.AdamW(
                0.01, parameters=model.parameters(), multi_precision=True
            )
            optimizer = dist.shard_optimizer(optimizer, dist.ShardingStage1("dp", MESH))
            scaler = dist.shard_scaler(scaler)
        losses = []
        for step in range(3):
            x = paddle.to_tensor(np.random.default_rng(step).normal(size=(8, 8)).astype("float16"))
            if sharded:
                x = by_batch(x)
            loss = (model(x) ** 2).astype("float32").mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.clear_grad()
            losses.append(loss.item())
        return losses, optimizer

    plain, _ = run(False)
    cut, optimizer = run(True)
    np.testing.assert_allclose(cut, plain, rtol=2e-3)
    masters = optimizer.state_dict()["master_weights"]
    assert all(m.placements[0] == S(0) for m in masters.values())


def check_plans() -> None:
    plans = {
        "wide": dist.ColWiseParallel(),
        "narrow": dist.RowWiseParallel(),
        "tok.ns": dist.RowWiseParallel(),
        "head.weight": dist.ColWiseParallel(),
    }
    model = make()
    model, optimizer = dist.parallelize(
        model, adamw(model), MESH,
        {"mp_config": {"parallelize_plan": plans}, "dp_config": {"sharding_level": 2}},
    )  # fmt: skip
    same(train(model, optimizer))
    assert model.wide.weight.placements == [R(), S(1)]
    assert model.wide.bias.placements == [R(), S(0)]
    assert model.tokens.weight.placements == [R(), S(0)]
    assert model.head.bias.placements == [R(), R()]


def slow_plans_for_sequences() -> None:
    for plans in (
        {"norm": dist.SequenceParallelEnable(), "wide": dist.ColWiseParallel(True),
         "narrow": dist.RowWiseParallel(is_input_parallel=False)},
        {"tokens": dist.SequenceParallelBegin(), "head": dist.SequenceParallelEnd()},
        {"tokens": dist.SequenceParallelBegin(), "head": dist.SequenceParallelEnd(),
         "narrow": dist.SequenceParallelDisable()},
        {"wide": [dist.PrepareLayerInput(_cut_input), dist.PrepareLayerOutput(_keep_output)]},
    ):  # fmt: skip
        model = make()
        config = {"mp_config": {"parallelize_plan": plans}}
        parallelize_model(model, MESH, config)
        optimizer = parallelize_optimizer(adamw(model), MESH, config)
        same(train(model, optimizer))


def _cut_input(process_mesh):
    return lambda layer, given: (dist.reshard(given[0], process_mesh, [S(0), S(2)]),)


def _keep_output(process_mesh):
    return lambda layer, given, out: out


def check_plans_for_images_and_contexts() -> None:
    class Images(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2D(2, 4, 3, padding=1)

        def forward(self, x):
            return self.conv(x)

    x = np.random.default_rng(0).normal(size=(4, 2, 8, 8)).astype("float32")
    model = fill(Images())
    want = model(paddle.to_tensor(x)).numpy()
    config = {"mp_config": {"parallelize_plan": {"conv": dist.ConvParallel()}}}
    model, _ = dist.parallelize(model, None, MESH, config)
    np.testing.assert_allclose(model(by_batch(x)).numpy(), want, rtol=1e-5, atol=1e-6)

    class Attention(nn.Layer):
        def forward(self, q, k, v):
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    class Model(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Linear(8, 24)
            self.sdpa = Attention()

        def forward(self, x):
            q, k, v = self.mix(x).reshape([2, 8, 4, 6]).split(3, axis=-1)
            return self.sdpa(q, k, v)

    mesh = dist.ProcessMesh(np.arange(8).reshape(2, 4), ["dp", "sep"])
    x = np.random.default_rng(0).normal(size=(2, 8, 8)).astype("float32")
    want = fill(Model())(paddle.to_tensor(x)).numpy()
    for backend in ("p2p", "all2all"):
        dist.set_mesh(mesh)
        plans = {"mix": dist.PrepareContextParallel(backend), "sdpa": dist.ContextParallel(backend)}
        model = fill(Model())
        dist.parallelize(model, None, mesh, {"cp_config": {"parallelize_plan": plans}})
        got = model(dist.shard_tensor(x, mesh, [S(0)])).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    dist.set_mesh(MESH)


def check_captured_steps() -> None:
    config = {
        "sharding": {"enable": True, "stage": 1, "degree": 4}, "recompute": {"enable": True},
    }  # fmt: skip
    _captured(config)


def slow_captured_steps() -> None:
    _captured({})
    _captured({"sharding": {"enable": True, "stage": 2, "degree": 4}})


def _captured(config) -> None:
    model = dist.shard_layer(make(), MESH, tensor_parallel)
    step = dist.to_static(model, None, loss_of, adamw(model), dist.Strategy(config))
    with stats.count_compiles() as compiled:
        losses = [step(by_batch(x), by_batch(y)).item() for x, y in batches()]
    same(losses)
    assert compiled[0] <= 3, compiled
    assert model.wide.weight.placements == [R(), S(1)]
    step.eval()
    x, labels = batches()[0]
    before = step(by_batch(x), by_batch(labels)).item()
    step.set_state_dict({k: v.numpy() for k, v in step.state_dict().items()})
    assert step(by_batch(x), by_batch(labels)).item() == before
    assert model.wide.weight.placements == [R(), S(1)]
    step.predict()
    assert step(by_batch(x)).shape == [8, 4, 24]


def slow_captured_steps_merge_gradients() -> None:
    model = dist.shard_layer(make(), MESH)
    strategy = dist.Strategy({"gradient_merge": {"enable": True, "k_steps": 2}})
    step = dist.to_static(model, None, loss_of, adamw(model), strategy)
    losses = []
    for x, y in batches():
        losses.append([
            step(by_batch(x[h]), by_batch(y[h])).item() for h in (slice(0, 4), slice(4, 8))
        ])  # fmt: skip
    same(np.mean(losses, axis=1), 1e-4)


def check_functions_of_parts() -> None:
    weight = paddle.to_tensor(np.arange(6.0, dtype="float32").reshape(3, 2), stop_gradient=False)
    a = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")

    def function(x):
        return (x @ weight).max(), paddle.tanh(x) * 2

    mapped = dist.local_map(function, [[P(), R()], [S(0), R()]], [[S(0), R()]], MESH)
    with stats.count_compiles() as compiled:
        for _ in range(2):
            weight.clear_grad()
            x = dist.shard_tensor(a, MESH, [S(0), R()], stop_gradient=False)
            top, curve = mapped(x)
            (top * 3 + curve.sum()).backward()
            got = top.item(), curve.numpy(), x.grad.numpy(), weight.grad.numpy()
    assert compiled[0] <= 2, compiled
    assert curve.placements == [S(0), R()]
    weight.clear_grad()
    x = paddle.to_tensor(a, stop_gradient=False)
    top = sum((x[2 * i : 2 * i + 2] @ weight).max() for i in range(4))
    curve = paddle.tanh(x) * 2
    (top * 3 + curve.sum()).backward()
    for g, w in zip(got, (top.item(), curve.numpy(), x.grad.numpy(), weight.grad.numpy()),
                    strict=True):  # fmt: skip
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)


def check_reductions_of_parts() -> None:
    a = np.arange(16.0, dtype="float32")
    x = dist.shard_tensor(a, MESH, [S(0), R()])
    kinds = dist.ReduceType
    for kind, want in (
        (kinds.kRedSum, a.reshape(4, 4).max(1).sum()),
        (kinds.kRedMax, 15.0),
        (kinds.kRedMin, 3.0),
        (kinds.kRedAvg, a.reshape(4, 4).max(1).mean()),
    ):
        mapped = dist.local_map(lambda t: t.max(), [[P(kind)]])
        assert mapped(x).item() == want


def check_local_layer() -> None:
    class Scaled(dist.LocalLayer):
        def __init__(self) -> None:
            super().__init__([(MESH, [P(), R()])], [(MESH, [S(0), R()])])
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(x).max()

    a = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
    layer = fill(Scaled())
    x = dist.shard_tensor(a, MESH, [S(0), R()], stop_gradient=False)
    out = layer(x)
    out.backward()
    y = paddle.to_tensor(a, stop_gradient=False)
    want = sum(layer.linear(y[2 * i : 2 * i + 2]).max() for i in range(4))
    np.testing.assert_allclose(out.item(), want.item(), rtol=1e-5)
    want.backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5)
    assert x.grad.placements == [S(0), R()]


def check_local_and_whole() -> None:
    part = paddle.to_tensor(np.arange(8.0, dtype="float32"))
    x = dist.dtensor_from_local(part, MESH, [S(0)])
    assert x.placements == [S(0), R()]
    np.testing.assert_array_equal(dist.dtensor_to_local(x).numpy(), part.numpy())
    assert dist.DistAttr(MESH, ["mp", None]).placements == [R(), S(0)]


def check_loader() -> None:
    class Numbers(paddle.io.Dataset):
        def __getitem__(self, i):
            return np.full((3,), i, "float32"), np.array(i)

        def __len__(self):
            return 18

    loader = paddle.io.DataLoader(Numbers(), batch_size=8)
    sharded = dist.shard_dataloader(loader, MESH, shard_dims="dp")
    assert len(sharded) == 3
    for _ in range(2):
        seen = [(x.placements, y.placements, y.numpy()) for x, y in sharded]
        assert [s[0] for s in seen] == [[S(0), R()], [S(0), R()], [R(), R()]]
        assert np.concatenate([s[2] for s in seen]).tolist() == list(range(18))


def check_to_distributed() -> None:
    class Pairs(paddle.io.Dataset):
        def __getitem__(self, i):
            return data[i]

        def __len__(self):
            return len(data)

    data = [(x[i], y[i]) for x, y in batches() for i in range(8)]
    loader = paddle.io.DataLoader(Pairs(), batch_size=8)
    model = make()
    model, optimizer, loader = dist.to_distributed(model, adamw(model), loader, 8)
    losses = []
    for x, labels in loader():
        loss = loss_of(model(x), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss.item())
    same(losses)
    dist.set_mesh(MESH)


def check_planner() -> None:
    mesh = dist.ProcessMesh(list(range(8)))
    link = Link(5e9, 2e-5)
    device = Device("test", 5e10, 5e10, 4e9, 1e10, products=1.0, half=0.0)
    cluster = Cluster(device, 8, 8, link, link)
    for sizes, rows, chosen in (((32, 64, 16), 4096, (8, 1)), ((512, 4096, 512), 8, (1, 8))):
        first, hidden, last = sizes

        def build(first=first, hidden=hidden, last=last):
            return fill(nn.Sequential(nn.Linear(first, hidden), nn.ReLU(), nn.Linear(hidden, last)))

        def run(model, optimizer, place, first=first, last=last, rows=rows):
            rng = np.random.default_rng(3)
            losses = []
            for _ in range(2):
                x = place(paddle.to_tensor(rng.normal(size=(rows, first)).astype("float32")))
                y = place(paddle.to_tensor(rng.normal(size=(rows, last)).astype("float32")))
                loss = ((model(x) - y) ** 2).mean()
                loss.backward()
                optimizer.step()
                optimizer.clear_grad()
                losses.append(loss.item())
            return losses

        model = build()
        want = run(model, paddle.optimizer.SGD(1e-4, model.parameters()), lambda x: x)
        model = build()
        given = [np.zeros((rows, first), "float32")]
        degrees = {"micro_batches": 1, "zero": 0}
        plan = dist.plan(model, given, mesh, cluster=cluster, degrees=degrees)
        assert (plan.dp, plan.mp) == chosen, str(plan)
        assert len(plan.rivals) == 4
        assert "predicted" in str(plan)
        assert "rival" in str(plan)
        plan.apply(model)
        place = (lambda x: x) if plan.batch_dim is None else (lambda x, m=plan.mesh: by_batch(x, m))
        optimizer = dist.shard_optimizer(paddle.optimizer.SGD(1e-4, model.parameters()))
        np.testing.assert_allclose(run(model, optimizer, place), want, rtol=1e-4)
        if plan.mp == 8:
            assert plan.kinds == {"0.weight": "columns", "2.weight": "rows"}
            assert model[0].weight.placements == [S(1)]
            assert model[0].bias.placements == [S(0)]
            assert model[2].weight.placements == [S(0)]


def check_plans_train_as_one_device() -> None:
    for degrees in ({"dp": 4, "zero": 3}, {"dp": 2, "mp": 4, "zero": 2}, {"mp": 8}):
        model = make()
        optimizer = adamw(model)
        ids = np.zeros((8, 4), "int64")
        link = Link(5e9, 2e-5)
        device = Device("test", 5e10, 5e10, 4e9, 1e10)
        cluster = Cluster(device, 8, 8, link, link)
        mesh = dist.ProcessMesh(list(range(8 if "mp" in degrees else 4)))
        plan = dist.plan(
            model, [ids], mesh, cluster=cluster, optimizer=optimizer,
            degrees={**degrees, "micro_batches": 1}, recompute="all",
        )  # fmt: skip
        model, optimizer = plan.apply(model, optimizer)
        place = (lambda x: x) if plan.batch_dim is None else (lambda x, m=plan.mesh: by_batch(x, m))
        same(train(model, optimizer, place))


def check_experts_are_planned() -> None:
    def build():
        paddle.seed(0)
        gate = moe.GShardGate(16, 8, 1, capacity=(0.5, 0.5), random_routing=False)
        experts = moe.StackedExperts(8, 16, 32, gated=True)
        return nn.Sequential(nn.Linear(8, 16), moe.MoELayer(16, experts, gate), nn.Linear(16, 8))

    def run(model, optimizer, place):
        losses = []
        for step in range(3):
            x = np.random.default_rng(step).normal(size=(16, 4, 8)).astype("float32")
            loss = (model(place(paddle.to_tensor(x))) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            losses.append(loss.item())
        return losses

    model = build()
    want = run(model, adamw(model), lambda x: x)
    link = Link(5e9, 2e-5)
    cluster = Cluster(Device("test", 5e10, 5e10, 4e9, 1e10), 8, 8, link, link)
    for degrees in ({"dp": 8, "ep": 8}, {"dp": 4, "mp": 2, "ep": 4}):
        model = build()
        optimizer = adamw(model)
        plan = dist.plan(
            model, [np.zeros((16, 4, 8), "float32")], dist.ProcessMesh(list(range(8))),
            cluster=cluster, optimizer=optimizer, degrees={**degrees, "micro_batches": 1},
        )  # fmt: skip
        model, optimizer = plan.apply(model, optimizer)
        assert model[1].experts.up.placements[0] == S(0)
        got = run(model, optimizer, lambda x, m=plan.mesh: by_batch(x, m))
        np.testing.assert_allclose(got, want, rtol=2e-5)


def _group_sharded(level):
    model = make()
    wrapped, optimizer, _ = dist.sharding.group_sharded_parallel(
        model, adamw(model), level, exclude_layer=["LayerNorm"]
    )
    same(train(wrapped, optimizer, lambda x: x))
    return model


def check_made_by_a_function() -> None:
    mesh = dist.ProcessMesh(np.arange(8), ["x"])
    made = dist.dtensor_from_fn(paddle.ones, mesh, [S(0)], [16, 2])
    assert made.placements == [S(0)]
    np.testing.assert_array_equal(dist.unshard_dtensor(made).numpy(), np.ones((16, 2)))


def check_a_sharded_model_is_saved_whole() -> None:
    dist.set_mesh(dist.ProcessMesh(np.arange(8), ["sharding"]))
    model = make()
    wrapped, optimizer, _ = dist.sharding.group_sharded_parallel(model, adamw(model), "os")
    with tempfile.TemporaryDirectory() as folder:
        dist.sharding.save_group_sharded_model(wrapped, folder, optimizer)
        loaded = paddle.load(os.path.join(folder, "model.pdmodel"))
        assert os.path.exists(os.path.join(folder, "model.pdopt"))
    for name, weight in model.state_dict().items():
        np.testing.assert_array_equal(loaded[name].numpy(), weight.numpy())
    with pytest.raises(InvalidArgument, match="group_sharded_parallel returned"):
        dist.sharding.save_group_sharded_model(model, "nowhere")
    dist.set_mesh(MESH)


def slow_sharded_group() -> None:
    dist.set_mesh(dist.ProcessMesh(np.arange(8), ["sharding"]))
    _group_sharded("os")
    _group_sharded("os_g")
    dist.set_mesh(MESH)


def check_sharded_group_and_fsdp() -> None:
    mesh = dist.ProcessMesh(np.arange(8), ["sharding"])
    dist.set_mesh(mesh)
    model = _group_sharded("p_g_os")
    assert model.wide.weight.placements == [S(0)]
    assert model.norm.weight.placements == [R()]
    model = make()
    optimizer = adamw(model)
    dist.fsdp.fully_shard(model, mesh=mesh)
    same(train(model, optimizer, lambda x: by_batch(x, mesh)))
    assert model.wide.weight.placements == [S(0)]
    assert on_first_device([model.wide.weight]) == 16 * 32 * 4 / 8
    dist.set_mesh(MESH)


def check_set_value_keeps_the_layout() -> None:
    model = dist.shard_layer(make(), MESH, tensor_parallel)
    model.set_state_dict({k: v.numpy() for k, v in make().state_dict().items()})
    assert model.wide.weight.placements == [R(), S(1)]
    same(train(model, dist.shard_optimizer(adamw(model))))
    assert len(one_device()) == 3
