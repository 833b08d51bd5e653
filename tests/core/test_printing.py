"""Tensors print as the real ones do."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import bireme
from bireme.core import printing

ARRAYS = {
    "mixed": np.array([[0.1, -2.0], [3.0, 1e-9]], "float32"),
    "whole": np.arange(6.0).reshape(2, 3),
    "scalar": np.array(2.5, "float32"),
    "int": np.array([[1, -20], [300, 4]]),
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j, -0.5 - 3j], "complex64"),
    "special": np.array([np.nan, np.inf, -np.inf, 0.0, -0.0]),
    "long": np.arange(40.0) / 3,
    "large": np.arange(3000.0).reshape(3, 1000) / 7,
    "deep": np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5) - 60,
    "many": np.arange(8 * 9 * 20).reshape(8, 9, 20),
    "empty": np.zeros((0,)),
    "empty rows": np.zeros((2, 0)),
    "half": np.array([0.1, 2.0], "float16"),
    "bytes": np.array([1, 255], "uint8"),
}


@pytest.fixture(autouse=True)
def defaults(monkeypatch, paddle):
    monkeypatch.setattr(printing, "options", dict(printing.options))
    yield
    paddle.set_printoptions(8, 1000, 3, False, 80)


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"precision": 2},
        {"threshold": 5, "edgeitems": 1},
        {"sci_mode": True, "precision": 3},
        {"linewidth": 30},
    ],
    ids=str,
)
def test_as_paddle(paddle, name, options):
    for lib in (paddle, bireme):
        lib.set_printoptions(**options)
    assert repr(bireme.to_tensor(ARRAYS[name])) == repr(paddle.to_tensor(ARRAYS[name]))


@settings(max_examples=80, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from(["float32", "float64", "int64", "int8", "bool"]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9),
    )
)
def test_any_array(paddle, array):
    assert repr(bireme.to_tensor(array)) == repr(paddle.to_tensor(array))


def test_bfloat16_and_parameters(paddle):
    x = np.array([0.1, 2.0], ml_dtypes.bfloat16)
    theirs = paddle.to_tensor(x.astype("float32")).astype("bfloat16")
    assert repr(bireme.to_tensor(x)) == repr(theirs)
    assert "float8_e4m3fn" in repr(bireme.to_tensor([1.0]).astype("float8_e4m3fn"))


@pytest.mark.parametrize("bad", [{"precision": 1.5}, {"sci_mode": 1}, {"linewidth": "80"}])
def test_bad_options(bad):
    with pytest.raises(TypeError, match="set_printoptions"):
        bireme.set_printoptions(**bad)
