"""fleet.auto.Engine on eight devices: run by test_engine.py."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import pytest
from small_model import MESH, adamw, batches, loss_of, make, one_device, same, tensor_parallel

import bireme as paddle
from bireme import distributed as dist
from bireme.core.errors import InvalidArgument
from bireme.distributed import mesh
from bireme.distributed.fleet import auto
from bireme.distributed.planner import Cluster, Device, Link
from bireme.static import InputSpec

LINK = Link(5e9, 2e-5)
CLUSTER = Cluster(Device("test", 5e10, 5e10, 4e9, 1e10), 8, 8, LINK, LINK)


class Pairs(paddle.io.Dataset):
    data = tuple((x[i], y[i]) for x, y in batches() for i in range(8))

    def __getitem__(self, i):
        return self.data[i]

    def __len__(self):
        return len(self.data)


class Losses(paddle.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def on_train_batch_end(self, step, logs=None) -> None:
        assert logs is not None
        self.seen.append(logs["loss"])


def engine(strategy=None, model=None, **more) -> auto.Engine:
    mesh._global = None
    model = model or make()
    return auto.Engine(model, loss_of, adamw(model), cluster=CLUSTER, strategy=strategy, **more)


def check_training_is_that_of_one_device() -> None:
    made, losses = engine(), Losses()
    history = made.fit(Pairs(), batch_size=8, callbacks=[losses], verbose=0)
    same(losses.seen)
    assert history.epoch == [0]
    assert history.history["loss"] == [losses.seen[-1]]
    assert made.plan is not None
    assert made.plan.degrees.micro_batches == 1
    milliseconds, memory = made.cost()
    assert milliseconds == made.plan.seconds * 1e3
    assert memory == made.plan.memory


def check_marked_models_stay_as_they_are() -> None:
    mesh._global = None
    model = dist.shard_layer(make(), MESH, tensor_parallel)
    losses = Losses()
    made = engine(model=model)
    made.fit(Pairs(), batch_size=8, callbacks=[losses], verbose=0)
    assert made.plan is None
    assert model.wide.weight.placements == [dist.Replicate(), dist.Shard(1)]
    same(losses.seen)


def check_stages_of_a_strategy_are_planned() -> None:
    strategy = auto.Strategy({"auto_mode": "full"})
    strategy.sharding.enable, strategy.sharding.stage = True, 2
    made, losses = engine(strategy), Losses()
    made.fit(Pairs(), batch_size=8, callbacks=[losses], verbose=0)
    assert made.plan is not None
    assert made.plan.degrees.zero == 2 or made.plan.degrees.dp == 1
    same(losses.seen)


def check_evaluation_prediction_and_state() -> None:
    class Right(paddle.metric.Accuracy):
        def compute(self, logits, label, *more):
            return super().compute(logits.reshape([-1, 24]), label.reshape([-1, 1]), *more)

    made = engine(metrics=Right())
    history = made.fit(Pairs(), batch_size=8, valid_data=Pairs(), verbose=0)
    assert set(history.history) == {"loss", "val_loss", "val_acc"}
    found = made.evaluate(Pairs(), batch_size=8, verbose=0)
    assert found["loss"] == pytest.approx(history.history["val_loss"][0], rel=1e-5)
    outs = made.predict(Pairs(), batch_size=10, verbose=0)
    assert [o[0].shape for o in outs] == [(10, 4, 24), (10, 4, 24), (4, 4, 24)]
    logits = np.concatenate([o[0] for o in outs])
    labels = np.stack([y for _, y in Pairs.data])
    assert found["acc"] == pytest.approx((logits.argmax(-1) == labels).mean())
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m")
        made.save(path)
        losses, again = Losses(), Losses()
        made.fit(Pairs(), batch_size=8, callbacks=[losses], verbose=0)
        other = engine()
        other.load(path)
        other.fit(Pairs(), batch_size=8, callbacks=[again], verbose=0)
        np.testing.assert_allclose(again.seen, losses.seen, rtol=2e-5)
        made.save(path, training=False)
        assert os.path.exists(path + ".pdmodel") or os.path.exists(path + ".json")
        with pytest.raises(InvalidArgument, match="there is no file"):
            made.load(os.path.join(folder, "other"))


def check_prepared_without_data() -> None:
    made = engine()
    with pytest.raises(InvalidArgument, match="inputs_spec"):
        made.cost()
    spec = InputSpec([8, 4], "int64", "ids")
    assert made.cost(spec)[0] > 0
    made.prepare(spec, InputSpec([8, 4], "int64", "labels"), mode="train")
    x, y = batches()[0]
    loss = made.run((paddle.to_tensor(x), paddle.to_tensor(y)))["loss"]
    assert loss == pytest.approx(one_device()[0], rel=1e-4)
    assert made.run((paddle.to_tensor(x),), mode="predict")["outputs"][0].shape == (8, 4, 24)
    with pytest.raises(InvalidArgument, match="train, eval or predict"):
        made.to_mode("test")
