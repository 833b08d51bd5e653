"""A checkpoint goes on in an optimizer that has made no step yet."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import distributed as dist
from bireme import nn
from bireme.core.errors import InvalidArgument
from bireme.optimizer.optimizer import owner_of


def made(seed: int, kind: str) -> tuple[Any, Any]:
    paddle.seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return model, getattr(paddle.optimizer, kind)(0.05, parameters=model.parameters())


def step(model, optimizer, number: int) -> float:
    x = paddle.to_tensor(np.random.RandomState(number).randn(6, 4).astype("float32"))
    loss = (model(x) ** 2).mean()
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    return loss.item()


@pytest.mark.parametrize("kind", ["AdamW", "Momentum"])
@pytest.mark.parametrize("nested", [True, False])
def test_a_fresh_optimizer_goes_on(tmp_path: Path, kind: str, nested: bool) -> None:
    with paddle.utils.unique_name.guard():
        model, optimizer = made(0, kind)
        for i in range(4):
            step(model, optimizer, i)
        state = {"model": model.state_dict(), "opt": optimizer.state_dict()}
    if nested:
        dist.save_state_dict(state, tmp_path)
    else:
        dist.save_state_dict(state["model"], tmp_path / "model")
        dist.save_state_dict(state["opt"], tmp_path / "opt")
    want = [step(model, optimizer, i) for i in range(4, 8)]
    with paddle.utils.unique_name.guard():  # the names of a new process
        other, fresh = made(1, kind)
        state = {"model": other.state_dict(), "opt": fresh.state_dict()}
        assert not state["opt"]  # as in Paddle
        if nested:
            dist.load_state_dict(state, tmp_path)
        else:
            dist.load_state_dict(state["model"], tmp_path / "model")
            dist.load_state_dict(state["opt"], tmp_path / "opt")
        got = [step(other, fresh, i) for i in range(4, 8)]
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_model_alone_needs_no_state(tmp_path: Path) -> None:
    with paddle.utils.unique_name.guard():
        model, optimizer = made(0, "Adam")
        step(model, optimizer, 0)
    state = {"model": model.state_dict(), "opt": optimizer.state_dict()}
    dist.save_state_dict(state, tmp_path)
    fresh, _ = made(1, "Adam")
    dist.load_state_dict({"model": fresh.state_dict()}, tmp_path)
    np.testing.assert_array_equal(fresh[0].weight.numpy(), model[0].weight.numpy())


def test_an_empty_dict_of_what_was_saved_raises(tmp_path: Path) -> None:
    dist.save_state_dict({"opt": {"moment": paddle.ones([2])}}, tmp_path)
    with pytest.raises(InvalidArgument, match="'opt' is empty"):
        dist.load_state_dict({"opt": {}}, tmp_path)


def test_a_state_is_an_ordinary_dict(tmp_path: Path) -> None:
    model, optimizer = made(0, "Adam")
    step(model, optimizer, 0)
    state = optimizer.state_dict()
    assert type(state) is OrderedDict
    assert owner_of(state) is optimizer
    assert owner_of(dict(state)) is None
    paddle.save({"opt": state}, str(tmp_path / "m.pdopt"))
    assert list(paddle.load(str(tmp_path / "m.pdopt"))["opt"]) == list(state)
