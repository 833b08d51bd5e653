"""Samples of neighbours are neighbours, in the right numbers and proportions; graphs train."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme import geometric as G
from bireme.core.errors import BiremeError
from bireme.host import config
from bireme.profiler import count_compiles

ROW = np.array([3, 7, 0, 9, 1, 4, 2, 9, 3, 9, 1, 9, 7])
START = np.array([0, 2, 4, 5, 6, 7, 9, 11, 11, 13, 13])


def graph() -> tuple[paddle.Tensor, paddle.Tensor]:
    return paddle.to_tensor(ROW), paddle.to_tensor(START)


def test_all_neighbours() -> None:
    found, count = G.sample_neighbors(*graph(), paddle.to_tensor([0, 8, 7, 2]))
    assert found.tolist() == [3, 7, 9, 7, 1]
    assert count.tolist() == [2, 2, 0, 1]
    assert count.dtype == paddle.int32


def test_samples_are_distinct_edges_of_the_node() -> None:
    paddle.seed(1)
    row = paddle.to_tensor(np.arange(100))
    start = paddle.to_tensor([0, 60, 100])
    edges = paddle.to_tensor(np.arange(100) + 1000)
    found, count, numbers = G.sample_neighbors(
        row, start, paddle.to_tensor([1, 0]), 25, edges, return_eids=True
    )
    assert count.tolist() == [25, 25]
    first, second = found.numpy()[:25], found.numpy()[25:]
    assert len(set(first.tolist())) == len(set(second.tolist())) == 25
    assert first.min() >= 60
    assert second.max() < 60
    np.testing.assert_array_equal(numbers.numpy(), found.numpy() + 1000)
    paddle.seed(1)
    again, _ = G.sample_neighbors(row, start, paddle.to_tensor([1, 0]), 25)
    np.testing.assert_array_equal(again.numpy(), found.numpy())


def test_sampling_is_uniform_or_by_weight() -> None:
    paddle.seed(2)
    many = paddle.zeros([6000], "int64")
    row, start = paddle.arange(3), paddle.to_tensor([0, 3])
    found, _ = G.sample_neighbors(row, start, many, 1)
    np.testing.assert_allclose(np.bincount(found.numpy()) / 6000, [1 / 3] * 3, atol=0.03)
    weight = paddle.to_tensor([1.0, 0.0, 3.0])
    found, count = G.weighted_sample_neighbors(row, start, weight, many, 1)
    np.testing.assert_allclose(
        np.bincount(found.numpy(), minlength=3) / 6000, [0.25, 0, 0.75], atol=0.03
    )
    assert (count.numpy() == 1).all()


def test_counts_must_fit() -> None:
    with pytest.raises(BiremeError, match="add up"):
        G.reindex_graph(paddle.to_tensor([0]), paddle.to_tensor([1, 2]), paddle.to_tensor([1]))


def test_a_graph_network_learns_and_compiles_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "compile_mode", "sync")
    paddle.seed(0)
    rng = np.random.default_rng(0)
    source, target = (paddle.to_tensor(rng.integers(0, 20, 80)) for _ in range(2))
    features = paddle.to_tensor(rng.normal(size=(20, 4)).astype(np.float32))
    label = paddle.to_tensor((rng.random(20) < 0.5).astype(np.int64))
    first, second = paddle.nn.Linear(4, 32), paddle.nn.Linear(32, 2)
    weights = [*first.parameters(), *second.parameters()]
    optimizer = paddle.optimizer.Adam(0.05, parameters=weights)
    losses = []

    def step() -> None:
        hidden = paddle.nn.functional.relu(first(features))
        hidden = hidden + G.send_u_recv(hidden, source, target, "mean")
        loss = paddle.nn.functional.cross_entropy(second(hidden), label)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))

    for _ in range(4):
        step()
    with count_compiles() as compiled:
        for _ in range(60):
            step()
    assert compiled == [0]
    assert losses[-1] < 0.2 * losses[0]


def test_symbolic_number_of_nodes() -> None:
    spec = [paddle.static.InputSpec([None, 3]), paddle.static.InputSpec([None], "int64"),
            paddle.static.InputSpec([None], "int64")]  # fmt: skip
    captured = paddle.jit.to_static(lambda x, s, d: G.send_u_recv(x, s, d), input_spec=spec)
    for nodes, edges in ((4, 6), (5, 2)):
        x = paddle.randn([nodes, 3])
        s, d = paddle.randint(0, nodes, [edges]), paddle.randint(0, nodes, [edges])
        want = np.zeros((nodes, 3), np.float32)
        np.add.at(want, d.numpy(), x.numpy()[s.numpy()])
        np.testing.assert_allclose(captured(x, s, d).numpy(), want, rtol=1e-5)
