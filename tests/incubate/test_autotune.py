"""`paddle.incubate.autotune`: switches that do something."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

import bireme as paddle
from bireme.core import kernels
from bireme.core.errors import InvalidArgument
from bireme.io import BatchSampler, DataLoader, Dataset, tuning

set_config = paddle.incubate.autotune.set_config


@pytest.fixture(autouse=True)
def as_before():
    off = set(kernels._off)
    yield
    kernels._off.clear()
    kernels._off.update(off)
    tuning.set_steps(0)


class Rows(Dataset):
    def __getitem__(self, i):
        return np.float32(i)

    def __len__(self):
        return 40


def test_kernels_are_switched():
    set_config({"kernel": {"enable": False}})
    assert kernels.names()
    assert set(kernels.names()) <= set(kernels.settings())
    set_config({"kernel": {"enable": True}})
    assert not set(kernels.names()) & set(kernels.settings())
    set_config()
    assert tuning.steps == tuning.DEFAULT_STEPS


def test_a_file_and_what_has_no_effect(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"dataloader": {"enable": True, "tuning_steps": 7}}))
    set_config(str(path))
    assert tuning.steps == 7
    set_config({"dataloader": {"enable": False}})
    assert tuning.steps == 0
    with pytest.warns(UserWarning, match="tuning_range"):
        set_config({"kernel": {"tuning_range": [1, 5]}})
    with pytest.warns(UserWarning, match="layout"):
        set_config({"layout": {"enable": False}})


@pytest.mark.parametrize(
    ("config", "message"),
    [({"kernels": {}}, "maps kernel"), ({"kernel": {"enable": 1}}, "must be a bool"),
     ({"dataloader": {"tuning_steps": 0}}, "above 0"), ({"layout": {"on": True}}, "layout has")],
)  # fmt: skip
def test_bad_config(config, message):
    with pytest.raises(InvalidArgument, match=message):
        set_config(config)


def test_bad_file(tmp_path):
    with pytest.raises(InvalidArgument, match="cannot be read"):
        set_config(str(tmp_path / "none.json"))


@pytest.mark.parametrize(
    ("costs", "wanted"), [([4, 2, 1, 0.9], 4), ([1, 2, 3, 4], 0), ([4, 2, 1.9, 0.1], 2)]
)
def test_the_fastest_number_of_workers(monkeypatch, costs, wanted):
    """Workers are added while that takes a quarter of the time off."""
    tried = []

    def seconds(loader, batches, count):
        tried.append(count)
        assert batches == [[0, 1, 2, 3], [4, 5, 6, 7]]
        return costs[count // 2]

    monkeypatch.setattr(tuning, "_seconds", seconds)
    monkeypatch.setattr(tuning, "_processors", lambda: 16)
    set_config({"dataloader": {"enable": True, "tuning_steps": 2}})
    loader = DataLoader(Rows(), batch_size=4, num_workers=1)
    assert loader.num_workers == wanted
    assert loader.use_shared_memory == (wanted > 0)
    assert tried[0] == 0


def test_measuring_leaves_the_loader_alone(monkeypatch):
    monkeypatch.setattr(tuning, "_processors", lambda: 2)
    set_config({"dataloader": {"enable": True, "tuning_steps": 3}})
    loader = DataLoader(Rows(), batch_size=8)
    assert [b.shape for b in loader] == [[8]] * 5
    started = time.perf_counter()
    assert 0 < tuning._seconds(loader, [[0], [1], [2]], 0) < time.perf_counter() - started


def test_samplers_of_the_user_are_not_read_twice(monkeypatch):
    monkeypatch.setattr(tuning, "_seconds", lambda *a: pytest.fail("measured"))
    set_config({"dataloader": {"enable": True}})

    class Own:
        def __iter__(self):
            return iter([[0, 1]])

        def __len__(self):
            return 1

    assert DataLoader(Rows(), batch_sampler=Own(), num_workers=3).num_workers == 3


def test_what_cannot_be_sent_stays_here(monkeypatch):
    class Local(Rows):
        pass

    monkeypatch.setattr(tuning, "_processors", lambda: 8)
    set_config({"dataloader": {"enable": True, "tuning_steps": 2}})
    sampler = BatchSampler(Local(), batch_size=4)
    assert DataLoader(Local(), batch_sampler=sampler).num_workers == 0
