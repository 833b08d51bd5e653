"""paddle._C_ops: kernels by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme
from bireme import _C_ops


def test_every_name_is_there() -> None:
    for name in _C_ops._WHERE:
        assert callable(getattr(_C_ops, name)), name
    with pytest.raises(AttributeError, match="no_such_kernel"):
        _C_ops.no_such_kernel


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("relu", ()), ("sigmoid", ()), ("scale", (2.0, 1.0, True)), ("softmax", (0,)),
        ("transpose", ([1, 0],)), ("reshape", ([-1],)),
        ("gelu", (True,)), ("p_norm", (2.0, 1, 1e-12, True, False)),
        ("slice", ([1], [0], [1], [1], [1])),
        ("split_with_num", (3, 1)), ("tile", ([2, 1],)),
        ("leaky_relu", (0.1,)), ("elu", (0.5,)), ("hardshrink", (0.4,)), ("expand", ([2, 2, 3],)),
    ],
)  # fmt: skip
def test_as_in_paddle(paddle: Any, name: str, rest: tuple[Any, ...]) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3)).astype("float32")
    found = []
    for lib, ops in ((paddle, paddle._C_ops), (bireme, _C_ops)):
        made = getattr(ops, name)(lib.to_tensor(x), *rest)
        parts = made if isinstance(made, list | tuple) else [made]
        found.append([p.numpy() for p in parts if p is not None and p.numel() > 0])
    assert len(found[0]) == len(found[1])
    for want, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_filling_in_place() -> None:
    x = bireme.ones([2, 2])
    _C_ops.full_(x, [2, 2], 3.0)
    assert x.sum().item() == 12
