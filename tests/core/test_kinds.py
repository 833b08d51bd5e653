"""What kinds of numbers an op takes is checked where it is called, and once per combination."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme.core import kinds
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
    check = kinds.check_kinds

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
