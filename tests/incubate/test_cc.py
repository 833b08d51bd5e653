"""paddle.incubate.cc: functions compiled for declared sizes and types.

The wheel's own compiler is for CUDA only, so results are compared with the plain function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bireme
import bireme.nn.functional as F
from bireme.incubate import cc
from bireme.incubate.cc import typing as types

N, K, M = types.DimVar("N", min=2), types.Dim("K"), types.DimVar(5)
T = types.DTypeVar("T", "float32", "float64")


def activated(
    x: types.Tensor([N, K], T), w: types.Tensor([K, M], T), b: types.Tensor([5], T)  # type: ignore
) -> Any:  # fmt: skip
    return cc.fuse.matmul(x, w, lambda out: F.relu(out + b), transpose_x=False)


def tensors(dtype: str, rows: int = 3, width: int = 4) -> list[bireme.Tensor]:
    rng = np.random.default_rng(rows)
    shapes = ((rows, width), (width, 5), (5,))
    return [bireme.to_tensor(rng.normal(size=s).astype(dtype)) for s in shapes]


@pytest.fixture(scope="module")
def compiled() -> Callable[..., Any]:
    return cc.compile(activated)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [2, 7])
def test_it_is_the_function(compiled: Any, dtype: str, rows: int) -> None:
    given = tensors(dtype, rows)
    made = compiled(*given)
    assert made.dtype == given[0].dtype
    np.testing.assert_allclose(made.numpy(), activated(*given).numpy(), rtol=1e-5)


def test_other_arguments_are_refused(compiled: Any) -> None:
    x, w, b = tensors("float32")
    with pytest.raises(TypeError, match=r"Received: float64, float32, float32; use one of"):
        compiled(x.astype("float64"), w, b)
    with pytest.raises(ValueError, match=r"x was declared as \[N, K\]. Received: shape \[1, 4\]"):
        compiled(x[:1], w, b)
    with pytest.raises(ValueError, match=r"w was declared as \[K, 5\].*'K': 4"):
        compiled(x, w[:3], b)
    with pytest.raises(TypeError, match="takes 3 tensors"):
        compiled(x, w)


def test_gradients_only_when_asked_for(compiled: Any) -> None:
    given = tensors("float32")
    given[1].stop_gradient = False
    assert compiled(*given).stop_gradient
    cc.compile(activated, train=True)(*given).sum().backward()
    w = given[1].detach()
    w.stop_gradient = False
    activated(given[0], w, given[2]).sum().backward()
    assert given[1].grad is not None
    assert w.grad is not None
    np.testing.assert_allclose(given[1].grad.numpy(), w.grad.numpy(), rtol=1e-5)


def test_what_cannot_be_compiled_says_so() -> None:
    with pytest.raises(TypeError, match=r"'x' of <lambda> must be annotated"):
        cc.compile(lambda x: x)
    with pytest.raises(ValueError, match="ap_path='mine'"):
        cc.compile(activated, ap_path="mine")
    with pytest.raises(ValueError, match="'PCC' or 'CINN'"):
        cc.compile(activated, compile_engine="GCC")
    with pytest.raises(ValueError, match="needs candidates"):
        types.DTypeVar("T")


def test_by_register() -> None:
    x = bireme.ones([2])
    with cc.fuse.by_register():
        y = x + 1
    assert y.tolist() == [2, 2]
