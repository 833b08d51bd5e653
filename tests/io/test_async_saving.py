"""Saving while the program goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bireme
from bireme.core.errors import InvalidArgument, TypeMismatch


def test_what_is_saved_are_the_contents_of_the_call(tmp_path: Path) -> None:
    net = bireme.nn.Linear(2, 3)
    before = net.weight.numpy()
    for ending in (".pdparams", ".safetensors"):
        bireme.async_save({"net": net.state_dict(), "steps": [1, 2]}, tmp_path / f"m{ending}")
    net.weight.set_value(np.zeros((2, 3), "float32"))
    bireme.clear_async_save_task_queue()
    for ending in (".pdparams", ".safetensors"):
        found = bireme.load(tmp_path / f"m{ending}")
        np.testing.assert_array_equal(found["net"]["weight"].numpy(), before)
        assert found["steps"] == [1, 2]


def test_a_failure_is_raised_where_somebody_waits(tmp_path: Path) -> None:
    bireme.async_save({"a": object()}, tmp_path / "a.safetensors")
    with pytest.raises(TypeMismatch, match="cannot save this value"):
        bireme.clear_async_save_task_queue()
    bireme.async_save({"a": 1}, tmp_path / "b.safetensors")
    bireme.async_save(bireme.ones([2]), tmp_path / "c.safetensors", sync_other_task=True)
    assert bireme.load(tmp_path / "b.safetensors") == {"a": 1}
    bireme.clear_async_save_task_queue()


def test_what_it_does_not_take(tmp_path: Path) -> None:
    with pytest.raises(TypeMismatch, match="a dict or a Tensor"):
        bireme.async_save([1], tmp_path / "a")
    with pytest.warns(UserWarning, match="no options"):
        bireme.async_save({}, tmp_path / "a", use_binary_format=True)
    bireme.clear_async_save_task_queue()
    bireme.enable_static()
    try:
        with pytest.raises(InvalidArgument, match="eager code"):
            bireme.async_save({}, tmp_path / "a")
    finally:
        bireme.disable_static()


def test_paths_that_are_none() -> None:
    with pytest.raises(ValueError, match="path must name a file"):
        bireme.save({}, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="there is no file"):
        bireme.jit.load("nowhere", model_filename="a", params_filename="b")
