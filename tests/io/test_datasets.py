"""Datasets and samplers against Paddle's, with the same NumPy seed."""

from __future__ import annotations

import numpy as np
import pytest

import bireme
from bireme.core.errors import BiremeError
from bireme.io import (
    BatchSampler,
    ChainDataset,
    ComposeDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedBatchSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequenceSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)


class Range(Dataset):
    def __init__(self, n, start=0):
        self.n, self.start = n, start

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.start + i


class Stream(IterableDataset):
    def __init__(self, *items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


@pytest.mark.parametrize(
    "make",
    [
        lambda io: io.SequenceSampler(range(5)),
        lambda io: io.RandomSampler(range(9)),
        lambda io: io.RandomSampler(range(9), num_samples=4),
        lambda io: io.RandomSampler(range(9), replacement=True, num_samples=20),
        lambda io: io.RandomSampler(range(9), num_samples=3, generator=iter([4, 4, 1, 0])),
        lambda io: io.WeightedRandomSampler(np.array([0.1, 0.7, 0.2]), 8),
        lambda io: io.WeightedRandomSampler(np.array([0.1, 0.7, 0.2]), 3, replacement=False),
        lambda io: io.BatchSampler(range(7), shuffle=True, batch_size=3),
        lambda io: io.BatchSampler(range(7), batch_size=3, drop_last=True),
        lambda io: io.BatchSampler(sampler=[3, 1, 4, 1, 5], batch_size=2),
        *[
            lambda io, n=n, r=r, d=d, s=s: io.DistributedBatchSampler(
                range(n), 3, num_replicas=3, rank=r, shuffle=s, drop_last=d
            )
            for n in (2, 20, 27)
            for r in range(3)
            for d in (False, True)
            for s in (False, True)
        ],
    ],
)
def test_samplers_are_paddles(paddle, make):
    results = []
    for io in (paddle.io, bireme.io):
        np.random.seed(11)
        sampler = make(io)
        results.append((list(sampler), len(sampler), list(sampler)))
    assert results[0] == results[1]


def test_distributed_shares_cover_everything_and_follow_the_epoch():
    def shares(epoch):
        samplers = [DistributedBatchSampler(range(10), 2, 2, r, shuffle=True) for r in range(2)]
        for s in samplers:
            s.set_epoch(epoch)
        return [[i for batch in s for i in batch] for s in samplers]

    first = shares(0)
    assert sorted(first[0] + first[1]) == list(range(10))
    assert first == shares(0)
    assert first != shares(1)


def test_weighted_sampler_takes_lists_and_tensors():
    for weights in ([0.0, 1.0], bireme.to_tensor([0.0, 1.0])):
        sampler = WeightedRandomSampler(weights, 3)
        assert list(sampler) == [1, 1, 1]
        assert len(sampler) == 3


def test_subset_random_sampler_gives_each_index_once():
    sampler = SubsetRandomSampler([3, 5, 7])
    assert sorted(sampler) == [3, 5, 7]
    assert len(sampler) == 3


def test_tensor_dataset_rows_follow_the_tensor():
    x = bireme.to_tensor(np.arange(6.0, dtype="float32").reshape(3, 2))
    y = bireme.to_tensor(np.arange(3))
    data = TensorDataset([x, y])
    assert len(data) == 3
    row, label = data[1]
    assert (row.tolist(), label.item()) == ([2.0, 3.0], 1)
    x.set_value(np.zeros((3, 2), "float32"))
    assert data[1][0].tolist() == [0.0, 0.0]
    assert row.tolist() == [2.0, 3.0]
    batches = list(DataLoader(data, batch_size=2, num_workers=1))
    assert [b[0].shape for b in batches] == [[2, 2], [1, 2]]
    with pytest.raises(BiremeError, match=r"shapes \[\[3, 2\], \[2\]\]"):
        TensorDataset([x, bireme.to_tensor([1, 2])])


def test_combinations():
    compose = ComposeDataset([Range(3), Range(3, 10)])
    assert [compose[i] for i in range(len(compose))] == [(0, 10), (1, 11), (2, 12)]
    concat = ConcatDataset([Range(2), Range(0), Range(3, 10)])
    assert [concat[i] for i in range(len(concat))] == [0, 1, 10, 11, 12]
    assert concat[-1] == 12
    assert list(ChainDataset([Stream(1, 2), Stream(), Stream(3)])) == [1, 2, 3]
    subset = Subset(Range(10), [7, 2])
    assert (len(subset), subset[0], subset[1]) == (2, 7, 2)


@pytest.mark.parametrize(("lengths", "sizes"), [([3, 7], [3, 7]), ([0.25, 0.75], [3, 7])])
def test_random_split(lengths, sizes):
    parts = random_split(Range(10), lengths)
    assert [len(p) for p in parts] == sizes
    assert sorted(p[i] for p in parts for i in range(len(p))) == list(range(10))
    again = [random_split(Range(10), lengths, np.random.default_rng(3))[0].indices for _ in "ab"]
    assert again[0] == again[1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomSampler(range(3), num_samples=4), "4 samples from 3"),
        (lambda: RandomSampler(range(3), replacement=1), "True or False"),
        (lambda: RandomSampler(range(0)), "positive integer"),
        (lambda: BatchSampler(range(3), batch_size=0), "batch_size must be a positive"),
        (lambda: BatchSampler(), "neither"),
        (lambda: BatchSampler(range(3), sampler=[1]), "both"),
        (lambda: BatchSampler(Stream(1)), "no sample numbers"),
        (lambda: DistributedBatchSampler(range(3), 1, 2, 2), "between 0 and 1"),
        (lambda: list(WeightedRandomSampler([0.0, 0.0], 1)), "positive weight"),
        (lambda: list(WeightedRandomSampler([float("nan")], 1)), "finite"),
        (lambda: ComposeDataset([Range(1), Range(2)]), r"one length. Received: \[1, 2\]"),
        (lambda: ConcatDataset([Stream()]), "ChainDataset"),
        (lambda: ChainDataset([Range(1)]), "ConcatDataset"),
        (lambda: ConcatDataset([]), "empty"),
        (lambda: ConcatDataset([Range(2)])[-3], "out of range"),
        (lambda: random_split(Range(3), [1, 1]), "add up to 2"),
        (lambda: SubsetRandomSampler([]), "at least one"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(BiremeError, match=message):
        make()


def test_what_a_subclass_must_define():
    with pytest.raises(NotImplementedError, match="Sampler must define __iter__"):
        iter(Sampler())
    with pytest.raises(NotImplementedError, match="__getitem__"):
        Dataset()[0]
    with pytest.raises(RuntimeError, match="stream"):
        Stream()[0]
    assert list(SequenceSampler([1, 2])) == [0, 1]
