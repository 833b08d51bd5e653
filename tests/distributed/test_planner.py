"""The planner on simulated devices: choices, constraints, memory, and what it shows."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from functools import lru_cache

import numpy as np
import pytest

import bireme as paddle
from bireme import nn
from bireme.core.aval import aval
from bireme.core.dtype import int64
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.distributed.planner import Cluster, Device, Link, plan
from bireme.distributed.planner.choosing import Choosing
from bireme.distributed.planner.cluster import Group
from bireme.distributed.planner.reading import Reading
from bireme.distributed.planner.repeats import parts_of
from bireme.distributed.planner.splits import Splits
from bireme.nn import functional as F
from bireme.static import InputSpec

IDS = [InputSpec([2, 512], "int64")]


class Decoder(nn.Layer):
    """A language model of Megatron's shape."""

    def __init__(self, width: int, layers: int, heads: int, words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        block = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", normalize_before=True
        )
        self.blocks = nn.TransformerEncoder(block, layers)
        self.head = nn.Linear(width, words, bias_attr=False)

    def forward(self, ids):
        return self.head(self.blocks(self.words(ids)))


@lru_cache
def decoder(width: int = 4096, layers: int = 16, heads: int = 32, words: int = 32000) -> nn.Layer:
    before = paddle.get_default_dtype()
    paddle.set_default_dtype("bfloat16")
    try:
        with paddle.LazyGuard():
            return Decoder(width, layers, heads, words)
    finally:
        paddle.set_default_dtype(before)


def test_a_model_without_contents_is_planned() -> None:
    model = decoder()
    found = plan(model, IDS, Cluster.h100(16), batch_size=256)
    assert np.prod(found.degrees[:3]) == 16
    assert found.memory <= 80e9
    assert 0.2 < found.mfu < 0.8
    assert not model.words.weight._is_initialized()


def test_equal_blocks_are_found() -> None:
    reading = Reading(decoder(), [aval((2, 512), int64)], None, [])
    assert [(p.count, len(p.work)) for p in parts_of(reading)] == [(1, 1), (16, 16), (1, 1)]
    assert reading.flops_of_row() == pytest.approx(
        512 * (2 * 16 * 12 * 4096**2 + 2 * 4096 * 32000) + 16 * 4 * 512**2 * 4096
    )


def test_the_published_layout_of_tensor_parallelism_is_found() -> None:
    found = plan(decoder(), IDS, Cluster.h100(8), batch_size=8, degrees={"mp": 8})
    for block in range(16):
        kinds = {
            n: found.kinds[f"blocks.layers.{block}.{n}.weight"]
            for n in ("self_attn.q_proj", "self_attn.out_proj", "linear1", "linear2")
        }
        assert kinds == {
            "self_attn.q_proj": "columns",
            "self_attn.out_proj": "rows",
            "linear1": "columns",
            "linear2": "rows",
        }


def test_choices_are_the_best_of_all() -> None:
    """Of a small network every combination of kinds is evaluated by constraint."""
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 64), nn.Linear(64, 8))
    x = [np.zeros((8, 64), "float32")]
    cluster = _slow(4)
    names = ["0.weight", "2.weight", "3.weight"]
    degrees = {"mp": 4, "micro_batch": 8}
    best = plan(model, x, cluster, degrees=degrees).seconds
    seen = []
    for kinds in itertools.product(("whole", "columns", "rows"), repeat=3):
        fixed = dict(zip(names, kinds, strict=True))
        found = plan(model, x, cluster, degrees=degrees, layouts=fixed)
        assert found.kinds == fixed
        seen.append(found.seconds)
    assert best == pytest.approx(min(seen))
    assert max(seen) > 1.2 * best


def _slow(count: int) -> Cluster:
    link = Link(1e9, 1e-6)
    device = Device("slow", 1e9, 1e9, 4e9, 1e9, products=1.0, half=0.0, launch=1e-7)
    return Cluster(device, count, count, link, link)


def test_memory_decides() -> None:
    model, cluster = decoder(), Cluster.h100(8)
    least = None
    for memory in (80e9, 20e9):
        found = plan(model, IDS, cluster, batch_size=64, memory=memory)
        assert found.memory <= memory
        assert least is None or found.seconds >= least
        least = found.seconds
    with pytest.raises(InvalidArgument, match=r"nothing fits.*smallest plan takes \d"):
        plan(model, IDS, cluster, batch_size=64, memory=6e9)


def test_zero_and_recomputation_save_what_they_should() -> None:
    model, cluster = decoder(), Cluster.h100(8)
    found = {}
    for zero in range(4):
        p = plan(
            model,
            IDS,
            cluster,
            batch_size=64,
            memory=1e12,
            degrees={"dp": 8, "zero": zero, "micro_batch": 1},
        )
        found[zero] = p.best.stages[0].memory
    count = sum(np.prod(p.shape) for p in model.parameters())
    assert found[0]["optimizer"] == pytest.approx(12 * count)
    assert found[1]["optimizer"] == pytest.approx(12 * count / 8)
    assert found[1]["gradients"] == pytest.approx(2 * count)
    assert found[2]["gradients"] == pytest.approx(2 * count / 8)
    assert found[3]["weights"] == pytest.approx(2 * count / 8)
    whole = plan(model, IDS, cluster, batch_size=64, memory=1e12, degrees={"dp": 8})
    again = plan(model, IDS, cluster, batch_size=64, degrees={"dp": 8}, recompute="all")
    assert again.recomputed() == [f"blocks.layers.{i}" for i in range(16)]
    assert (
        again.best.stages[0].memory["activations"]
        < 0.3 * (whole.best.stages[0].memory["activations"])
    )
    assert again.best.parts["recomputation"] > 0


def test_pipelines_pay_with_bubbles() -> None:
    model, cluster = decoder(), Cluster.h100(16)
    few, many = (
        plan(
            model,
            IDS,
            cluster,
            batch_size=b,
            degrees={"pp": 8, "dp": 1, "mp": 2, "micro_batch": 1, "virtual": 1},
        )
        for b in (8, 64)
    )
    assert few.mfu < many.mfu
    assert few.best.parts["bubble"] == pytest.approx(many.best.parts["bubble"], rel=0.1)
    assert [sum(n for _, n in s.units) for s in few.best.stages] == pytest.approx([2] * 8, abs=1)
    interleaved = plan(
        model,
        IDS,
        cluster,
        batch_size=8,
        degrees={"pp": 8, "dp": 1, "mp": 2, "micro_batch": 1, "virtual": 2},
    )
    assert interleaved.best.parts["bubble"] < few.best.parts["bubble"]


def test_messages_cost_what_their_links_say() -> None:
    cluster = Cluster.h100(32)
    inside, across = Group(8), Group(4, 8)
    assert cluster.is_inside(inside)
    assert not cluster.is_inside(across)
    assert cluster.reduce(8e9, inside) == pytest.approx(2 * 8e9 * 7 / 8 / 370e9, rel=1e-2)
    assert cluster.gather(8e9, across) == pytest.approx(8e9 * 3 / 4 / 45e9, rel=1e-2)
    assert cluster.gather(8e9, Group(32)) < cluster.gather(8e9, across)
    assert cluster.gather(8e9, Group(1)) == 0
    with pytest.raises(InvalidArgument, match="12 devices do not fill nodes of 8"):
        Cluster.h100(12)


def test_more_memory_never_costs_time() -> None:
    """No solution of the dynamic program is beaten by another in everything."""
    reading = Reading(decoder(layers=2), [aval((2, 512), int64)], None, [])
    splits = Splits(reading, Cluster.h100(8), 8, 1, 2.0, {})
    choosing = Choosing(reading, splits, 1)
    sizes = []
    for solution in choosing.solve():
        steps = [(s, u.count) for u in solution.units for s in u.steps]
        sizes.append(
            (
                sum(
                    n
                    * (
                        s.way.forward
                        + s.way.backward
                        + s.way.messages_forward
                        + s.way.messages_backward
                        + s.way.step
                        + sum(s.converted)
                    )
                    for s, n in steps
                ),
                sum(n * s.kept for s, n in steps),
            )
        )
    assert len(sizes) > 1
    assert min(sizes)[0] == min(t for t, _ in sizes)


def test_what_the_user_decides_holds() -> None:
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    x = [np.zeros((8, 64), "float32")]
    found = plan(
        model, x, _slow(4), degrees={"mp": 2, "dp": 2, "zero": 1}, layouts={r"0\.weight": "rows"}
    )
    assert (found.degrees.mp, found.degrees.dp, found.degrees.zero) == (2, 2, 1)
    assert found.kinds["0.weight"] == "rows"
    with pytest.raises(InvalidArgument, match="names no parameter: 'first'"):
        plan(model, x, _slow(4), layouts={"first": "rows"})
    with pytest.raises(InvalidArgument, match="whole, columns, rows"):
        plan(model, x, _slow(4), layouts={"0.weight": "across"})
    with pytest.raises(InvalidArgument, match="no degree 'tp'"):
        plan(model, x, _slow(4), degrees={"tp": 2})
    with pytest.raises(InvalidArgument, match="recompute is one of"):
        plan(model, x, _slow(4), recompute="some")
    with pytest.raises(InvalidArgument, match="example_inputs is empty"):
        plan(model, [], _slow(4))
    with pytest.raises(TypeMismatch, match="a ProcessMesh or a Cluster"):
        plan(model, x, 4)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="simulated devices"):
        found.apply(model)


def test_a_loss_over_cut_classes_is_cheaper_than_gathering_them() -> None:
    model = nn.Linear(256, 32000)
    x, y = [np.zeros((64, 256), "float32")], [np.zeros((64,), "int64")]
    found = plan(model, x, _slow(4), loss=F.cross_entropy, labels=y, degrees={"mp": 4})
    assert found.kinds == {"weight": "columns"}
    gathered = 64 * 32000 * 4 * 3 / 4 / 1e9
    assert found.best.parts["tensor messages"] < gathered


def test_a_model_that_differs_between_batches_is_refused() -> None:
    class Odd(nn.Layer):
        def forward(self, x):
            return x + 1 if x.shape[0] > 2 else x

    with pytest.raises(InvalidArgument, match="other ops for another batch size"):
        plan(Odd(), [np.zeros((8, 4), "float32")], _slow(2))


def test_plans_explain_themselves() -> None:
    found = plan(decoder(), IDS, Cluster.h100(64), batch_size=256, degrees={"pp": 8, "mp": 2})
    text = found.explain()
    for part in (
        "64 x H100",
        "pipeline (8)",
        "MFU",
        "bubble",
        "optimizer",
        "activations",
        "blocks.layers.*.self_attn.q_proj.weight [0-15]: columns",
    ):
        assert part in text, text
    assert "rivals" in plan(decoder(), IDS, Cluster.h100(8), batch_size=64).explain()
    picture = ET.fromstring(found.svg())
    texts = [e.text or "" for e in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert any(t.startswith("stage 7") for t in texts)
    assert any("between stages" in t for t in texts)
    assert found.fleet_strategy()["hybrid_configs"]["pp_degree"] == 8
    assert "chosen: " in str(found)
    assert "rival: " in str(plan(decoder(), IDS, Cluster.h100(8), batch_size=64))


def test_a_changed_optimizer_takes_other_memory() -> None:
    model = nn.Sequential(nn.Linear(64, 64))
    x = [np.zeros((8, 64), "float32")]
    sizes = []
    for kind in (paddle.optimizer.SGD, paddle.optimizer.Momentum, paddle.optimizer.Adam):
        optimizer = kind(0.1, parameters=model.parameters())
        found = plan(model, x, _slow(1), optimizer=optimizer)
        sizes.append(found.best.stages[0].memory["optimizer"])
    assert sizes == [0, 4 * 65 * 64, 8 * 65 * 64]
    stranger = paddle.optimizer.SGD(0.1, parameters=nn.Linear(2, 2).parameters())
    with pytest.raises(InvalidArgument, match="not the model's"):
        plan(model, x, _slow(1), optimizer=stranger)
