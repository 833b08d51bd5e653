"""`base.io.DataLoader.from_generator`, as in the wheel."""

from __future__ import annotations

import numpy as np
import pytest
from bireme.base.io import DataLoader

import bireme
from bireme import static
from bireme.base.reader import DataLoader as Same
from bireme.core.errors import InvalidArgument

SAMPLES = [(float(i), i) for i in range(5)]


def _set(loader, kind: str, drop_last: bool = True):
    if kind == "sample":
        return loader.set_sample_generator(lambda: iter(SAMPLES), 2, drop_last=drop_last)
    if kind == "list":
        return loader.set_sample_list_generator(lambda: iter([SAMPLES[:2], SAMPLES[2:]]))
    batch = (np.ones((2, 3), "float32"), np.arange(2))
    return loader.set_batch_generator(lambda: iter([batch, batch]))


@pytest.mark.parametrize("kind", ["sample", "list", "batch"])
def test_batches_are_the_wheels(paddle, kind):
    ours = _set(DataLoader.from_generator(capacity=2), kind)
    real = _set(paddle.base.io.DataLoader.from_generator(capacity=2, return_list=True), kind)
    for _ in range(2):  # each pass begins anew
        got = [[(t.numpy(), str(t.dtype).split(".")[-1]) for t in batch] for batch in ours()]
        want = [[(t.numpy(), str(t.dtype).split(".")[-1]) for t in batch] for batch in real()]
        assert len(got) == len(want)
        for mine, other in zip(got, want, strict=True):
            for (a, kind_a), (b, kind_b) in zip(mine, other, strict=True):
                np.testing.assert_array_equal(a, b)
                assert kind_a == kind_b


def test_the_last_samples_are_kept_when_asked_for():
    loader = _set(DataLoader.from_generator(capacity=2), "sample", drop_last=False)
    assert [len(batch[0]) for batch in loader] == [2, 2, 1]


def test_samples_of_one_value():
    loader = DataLoader.from_generator(capacity=2)
    loader.set_sample_generator(lambda: iter([1.0, 2.0]), 2)
    [[batch]] = list(loader)
    assert batch.numpy().tolist() == [1.0, 2.0]


def test_feeds_of_a_program():
    bireme.enable_static()
    try:
        x = static.data("x", [-1, 2])
        doubled = x * 2
        loader = DataLoader.from_generator([x], capacity=2)
        loader.set_batch_generator(lambda: iter([np.ones((3, 2), "float32")]))
        [[out]] = [static.Executor().run(feed=d, fetch_list=[doubled]) for d in loader]
        np.testing.assert_array_equal(out, np.full((3, 2), 2.0))
    finally:
        bireme.disable_static()


def test_what_is_missing_is_said():
    assert Same is DataLoader
    with pytest.raises(InvalidArgument, match="capacity"):
        DataLoader.from_generator()
    with pytest.raises(InvalidArgument, match="iterable=False"):
        DataLoader.from_generator(capacity=1, iterable=False)
    with pytest.raises(InvalidArgument, match="batch_size"):
        DataLoader.from_generator(capacity=1).set_sample_generator(lambda: iter([]), 0)
    with pytest.raises(AssertionError, match="set_batch_generator"):
        iter(DataLoader.from_generator(capacity=1))
