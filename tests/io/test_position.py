"""A loader goes on where its state says, in the same order, or says why it cannot."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import bireme
from bireme.core.errors import BiremeError, ExecutionError, InvalidArgument
from bireme.io import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedBatchSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from bireme.io.position import generators


class Numbers(Dataset):
    def __init__(self, count: int = 23):
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        return np.array([i])


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        for i in range(11):
            yield np.array([i])


def ids(batch: Any) -> list[int]:
    return batch.numpy().ravel().tolist()


def weighted() -> Any:
    return WeightedRandomSampler(np.arange(1, 24), 23)


LOADERS: dict[str, Any] = {
    "shuffled": lambda: DataLoader(Numbers(), batch_size=4, shuffle=True),
    "in order": lambda: DataLoader(Numbers(), batch_size=4),
    "no thread": lambda: DataLoader(
        Numbers(), batch_size=4, shuffle=True, use_buffer_reader=False, drop_last=True
    ),
    "single samples": lambda: DataLoader(Numbers(), batch_size=None),
    "subset": lambda: DataLoader(
        Numbers(), batch_sampler=BatchSampler(sampler=SubsetRandomSampler(range(20)), batch_size=3)
    ),
    "weighted": lambda: DataLoader(
        Numbers(), batch_sampler=BatchSampler(sampler=weighted(), batch_size=4)
    ),
    "with replacement": lambda: DataLoader(
        Numbers(),
        batch_sampler=BatchSampler(sampler=RandomSampler(Numbers(), True, 30), batch_size=4),
    ),
    "distributed": lambda: DataLoader(
        Numbers(), batch_sampler=DistributedBatchSampler(Numbers(), 3, 2, 1, shuffle=True)
    ),
    "stream": lambda: DataLoader(Stream(), batch_size=2),
}


def saved(state: dict[str, Any], tmp_path: Any, ending: str) -> dict[str, Any]:
    path = str(tmp_path / f"state{ending}")
    bireme.save({"loader": state, "rng": bireme.get_rng_state()}, path)
    return bireme.load(path)


@pytest.mark.parametrize("ending", [".safetensors", ".pdparams"])
@pytest.mark.parametrize("at", [0, 1, 3, 99])
@pytest.mark.parametrize("name", LOADERS)
def test_a_pass_goes_on(tmp_path: Any, name: str, at: int, ending: str) -> None:
    loader = LOADERS[name]()
    assert [ids(b) for b in loader]  # a pass before
    passing = iter(loader)
    seen = [next(passing, None) for _ in range(at)]
    state = loader.state_dict()
    assert state["batches"] == (0 if None in seen else at)
    kept, numpy = saved(state, tmp_path, ending), np.random.get_state()
    want = [ids(b) for b in passing] if None not in seen else [ids(b) for b in loader]
    after = [ids(b) for b in loader]

    np.random.seed(77)
    bireme.seed(78)
    again = LOADERS[name]()
    again.set_state_dict(kept["loader"])
    assert again.state_dict() == state
    np.random.set_state(numpy)
    bireme.set_rng_state(kept["rng"])
    assert [ids(b) for b in again] == want
    assert [ids(b) for b in again] == after


def test_with_workers_no_sample_is_read_twice() -> None:
    def make() -> DataLoader:
        return DataLoader(
            Numbers(), batch_size=4, shuffle=True, num_workers=2, persistent_workers=True
        )

    loader = make()
    list(loader)
    passing = iter(loader)
    first = [ids(next(passing)) for _ in range(2)]
    state, numpy = loader.state_dict(), np.random.get_state()
    rest, after = [ids(b) for b in passing], [ids(b) for b in loader]
    np.random.seed(5)
    again = make()
    again.load_state_dict(state)
    np.random.set_state(numpy)
    assert [ids(b) for b in again] == rest
    assert [ids(b) for b in again] == after
    assert sorted(i for batch in first + rest for i in batch) == list(range(23))


def test_generators_of_the_program_are_left_alone() -> None:
    loader = LOADERS["shuffled"]()
    next(iter(loader))
    again = LOADERS["shuffled"]()
    again.set_state_dict(loader.state_dict())
    np.random.seed(3)
    bireme.seed(4)
    rng = bireme.get_rng_state()
    list(again)
    assert bireme.get_rng_state() == rng
    number = np.random.rand()
    np.random.seed(3)
    assert number == np.random.rand()


def test_orders_are_drawn_when_a_pass_begins() -> None:
    """Not by whichever of two reading threads comes first."""
    np.random.seed(1)
    loaders = [LOADERS["shuffled"]() for _ in range(2)]
    pairs = [(ids(a), ids(b)) for a, b in zip(*loaders, strict=True)]
    np.random.seed(1)
    one, other = ([ids(b) for b in LOADERS["shuffled"]()] for _ in range(2))
    assert pairs == list(zip(one, other, strict=True))


class Shuffled(Sampler):
    """Draws from where nobody looks."""

    def __iter__(self) -> Any:
        order = list(range(23))
        random.shuffle(order)
        return iter(order)

    def __len__(self) -> int:
        return 23


class Remembering(Shuffled):
    def state_dict(self) -> dict[str, Any]:
        return {"random": list(random.getstate()[1])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        random.setstate((3, tuple(state["random"]), None))


def with_sampler(sampler: Any) -> DataLoader:
    return DataLoader(Numbers(), batch_sampler=BatchSampler(sampler=sampler, batch_size=4))


def test_another_order_is_noticed() -> None:
    loader = with_sampler(Shuffled())
    next(iter(loader))
    again = with_sampler(Shuffled())
    again.set_state_dict(loader.state_dict())
    with pytest.raises(ExecutionError, match="state_dict"):
        iter(again)
    for other in (DataLoader(Numbers(22), batch_size=4, shuffle=True),
                  DataLoader(Numbers(), batch_size=5, shuffle=True)):  # fmt: skip
        shuffled = LOADERS["shuffled"]()
        next(iter(shuffled))
        other.set_state_dict(shuffled.state_dict())
        with pytest.raises(ExecutionError, match="not those"):
            iter(other)
    in_order = LOADERS["in order"]()
    passing = iter(in_order)
    for _ in range(6):
        next(passing)
    short = DataLoader(Numbers(8), batch_size=4)
    short.set_state_dict(in_order.state_dict())
    with pytest.raises(ExecutionError, match="2 batches now"):
        iter(short)


def test_a_sampler_may_know_its_own_state() -> None:
    loader = with_sampler(Remembering())
    passing = iter(loader)
    next(passing)
    state = loader.state_dict()
    rest = [ids(b) for b in passing]
    again = with_sampler(Remembering())
    again.set_state_dict(state)
    assert [ids(b) for b in again] == rest
    with pytest.raises(InvalidArgument, match="set_state_dict"):
        with_sampler(Shuffled()).set_state_dict(state)


@pytest.mark.parametrize(
    "state",
    [
        {},
        None,
        {"batches": -1, "order": 0, "start": None, "sampler": None},
        {"batches": 2, "order": 0, "start": None, "sampler": None},
        {"batches": 2, "order": 0, "start": {"numpy": {}, "rng": [1, 2]}, "sampler": None},
        {"batches": 2, "order": 0, "start": {"numpy": None}, "sampler": None},
    ],
)
def test_other_states_are_refused(state: Any) -> None:
    before = generators()
    with pytest.raises(InvalidArgument):
        LOADERS["shuffled"]().set_state_dict(state)
    assert generators() == before


@pytest.mark.parametrize("ending", [".safetensors", ".pdparams"])
def test_states_of_generators_are_saved(tmp_path: Any, ending: str) -> None:
    path = str(tmp_path / f"rng{ending}")
    bireme.seed(-(2**63))
    bireme.rand([3])
    bireme.save(bireme.get_rng_state(), path)
    want = bireme.rand([5]).numpy()
    bireme.seed(1)
    bireme.set_rng_state(bireme.load(path))
    np.testing.assert_array_equal(bireme.rand([5]).numpy(), want)
    bireme.device.set_rng_state(bireme.load(path))
    bireme.device.set_rng_state(bireme.load(path)[0])
    np.testing.assert_array_equal(bireme.rand([5]).numpy(), want)
    for wrong in ([], [1, 2], [(1, 2), (3, 4)], [("1", 2)], [(1, -2)], [(1,)], 7, None):
        with pytest.raises((TypeError, BiremeError)):
            bireme.set_rng_state(wrong)
