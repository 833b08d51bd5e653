"""Functions of paddle.base.core that programs call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme
from bireme.base import core


@pytest.mark.parametrize("order", [[], [5, 2, 7, 0, 4, 1, 6, 3]])
@pytest.mark.parametrize("limits", [[1], [40, 200], [100]])
def test_groups_of_gradients(paddle: Any, limits: list[int], order: list[int]) -> None:
    sizes, sparse = [3, 9, 4, 20, 1, 7, 30, 2], [i == 4 for i in range(8)]
    found = []
    for lib, door in ((paddle, paddle.base.core), (bireme, core)):
        tensors = [lib.ones([n], "float64" if n % 3 == 0 else "float32") for n in sizes]
        found.append(door.eager_assign_group_by_size(tensors, sparse, limits, order))
    assert found[0] == found[1]


def test_the_generator_of_the_host() -> None:
    generator = core.default_cpu_generator()
    bireme.seed(11)
    assert generator.get_state().current_seed() == 11


def test_tensors_of_arrays(paddle: Any) -> None:
    array = np.arange(3, dtype="int32")
    for options in ({}, {"name": "own", "stop_gradient": False, "persistable": True}):
        theirs, mine = (lib.Tensor(array.astype("float64"), **options) for lib in (paddle, bireme))
        assert mine.dtype.name == "float64"
        assert str(theirs.dtype) == "paddle.float64"
        assert (mine.stop_gradient, mine.persistable) == (theirs.stop_gradient, theirs.persistable)
        assert options.get("name") in (None, mine.name)
    assert bireme.Tensor(array, bireme.CPUPlace()).tolist() == [0, 1, 2]
    assert bireme.Tensor(array, zero_copy=True)._to("cpu", "float32").dtype is bireme.float32
