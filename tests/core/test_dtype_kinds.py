"""What kinds of numbers an op takes is checked where it is called, and once per combination."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme.core import dtype_kinds
from bireme.core.errors import TypeMismatch

BAD = [
    ("floor", [np.ones(2, np.complex64)], "x is complex64.*x.real()"),
    ("subtract", [np.ones(2, bool), np.ones(2, bool)], "x is bool.*x.astype.'int64'"),
    ("lgamma", [np.ones(2, np.complex64)], "only floats"),
    ("gcd", [np.ones(2, np.float32), np.ones(2, np.float32)], "only integers"),
    ("nan_to_num", [np.ones(2, np.int64)], "x.astype.'float32'"),
    ("maximum", [np.ones(2, np.complex64), np.ones(2, np.complex64)], "booleans, integers and"),
]


@pytest.mark.parametrize(("name", "arrays", "words"), BAD, ids=[b[0] for b in BAD])
def test_a_kind_that_is_not_taken_raises_at_the_call(
    name: str, arrays: list[Any], words: str
) -> None:
    tensors = [paddle.to_tensor(a) for a in arrays]
    with pytest.raises(TypeMismatch, match=words) as caught:
        getattr(paddle, name)(*tensors)
    assert f"[{name}]" in str(caught.value)
    assert "Received: " in str(caught.value)
    (paddle.ones([2]) + 1).numpy()  # nothing bad was recorded


def test_a_call_that_was_seen_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    check = dtype_kinds.check_kinds

    def watched(*args: Any) -> None:
        looked.append(args)
        check(*args)

    monkeypatch.setattr("bireme.core.op.check_kinds", watched)
    x = paddle.ones([3, 1, 7])
    paddle.floor(x)
    assert len(looked) == 1
    paddle.floor(x + 1)
    assert len(looked) == 1


def test_each_input_may_have_its_own_kinds() -> None:
    query = paddle.ones([1, 2, 1, 4])
    mask = paddle.ones([1, 1, 2, 2], "bool")
    out = paddle.nn.functional.scaled_dot_product_attention(query, query, query, mask)
    assert out.shape == [1, 2, 1, 4]
    with pytest.raises(TypeMismatch, match="query is bool"):
        paddle.nn.functional.scaled_dot_product_attention(*[query.astype("bool")] * 3)


def test_an_enum_of_integers_counts_as_an_integer():
    import enum

    class Width(enum.IntEnum):
        TWO = 2

    assert (paddle.to_tensor([1, 2]) * Width.TWO).dtype == paddle.int64


# (function, a dtype that the wheel refuses in eager code and in programs, how many tensors)
REFUSED = [
    ("addmm", "int32", 3), ("bmm", "int64", 2), ("mv", "int32", 2), ("trunc", "bool", 1),
    ("nanmedian", "bool", 1), ("histogram", "bool", 1), ("isclose", "int32", 2),
    ("nn.functional.relu6", "int32", 1), ("nn.functional.prelu", "int32", 2),
    ("nn.functional.smooth_l1_loss", "int64", 2), ("nn.functional.unfold", "int32", 1),
    ("linalg.cov", "int32", 1), ("linalg.matrix_power", "int32", 1), ("kthvalue", "bool", 1),
    ("topk", "bool", 1), ("matmul", "bool", 2),
]  # fmt: skip
_MORE = {"kthvalue": [1], "topk": [1], "linalg.matrix_power": [2], "nn.functional.unfold": [1]}


@pytest.mark.parametrize(("name", "dtype", "count"), REFUSED, ids=[r[0] for r in REFUSED])
def test_what_paddle_refuses_in_both_modes_is_refused(name: str, dtype: str, count: int) -> None:
    function: Any = paddle
    for part in name.split("."):
        function = getattr(function, part)
    given = [paddle.ones([2, 2]).astype(dtype) for _ in range(count)]
    for builtin in (TypeError, ValueError, RuntimeError):
        with pytest.raises(builtin, match=f"{dtype}, but only"):
            function(*given, *_MORE.get(name, []))


@pytest.mark.parametrize("name", ["all", "sum", "sin", "outer", "nn.functional.softplus"])
@pytest.mark.parametrize("given", [1, 2.0, True, np.ones(2, "float32")], ids=repr)
def test_numbers_and_arrays_alone_are_no_tensors(name: str, given: Any) -> None:
    function: Any = paddle
    for part in name.split("."):
        function = getattr(function, part)
    arguments = [given] * (2 if name == "outer" else 1)
    for builtin in (TypeError, ValueError, AttributeError):
        with pytest.raises(builtin, match="must be a Tensor"):
            function(*arguments)
