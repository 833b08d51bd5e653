"""`x.size` is a number, and a call of it gives the shape, as in Paddle."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

import bireme
from bireme.host import config
from bireme.profiler import count_compiles


@pytest.mark.parametrize("shape", [[], [0], [3], [2, 3], [2, 0, 4]])
def test_as_in_paddle(paddle, shape):
    for x in (bireme.zeros(shape), paddle.zeros(shape)):
        assert x.size == int(np.prod(shape))
        assert x.size() == shape
        assert [x.size(i) for i in range(-len(shape), len(shape))] == [*shape, *shape]
        assert isinstance(x.size, int)


def test_a_dimension_that_is_not_there():
    with pytest.raises(IndexError):
        bireme.ones([2]).size(1)


def test_it_is_a_number_everywhere():
    x = bireme.arange(6, dtype="float32").reshape([2, 3])
    assert (x.sum() / x.size).item() == 2.5
    assert (x.size * x).sum().item() == 90
    assert bireme.zeros([x.size]).shape == [6]
    assert x.reshape([x.size]).shape == [6]
    assert bireme.full([2], x.size).numpy().tolist() == [6, 6]
    assert json.dumps({"n": x.size}) == '{"n": 6}'
    assert (repr(x.size), x.size + 1, range(x.size)[-1]) == ("6", 7, 5)
    assert copy.deepcopy(x.size) == pickle.loads(pickle.dumps(x.size)) == 6
    assert copy.deepcopy(x.size)() == [2, 3]


def test_sizes_that_change_do_not_recompile(monkeypatch):
    monkeypatch.setattr(config, "compile_mode", "always")
    y = bireme.ones([2, 3])
    (y * bireme.zeros([2]).size).numpy()
    with count_compiles() as compiles:
        for n in range(3, 9):
            assert (y * bireme.zeros([n]).size).numpy().sum() == 6 * n
    assert compiles == [0]
