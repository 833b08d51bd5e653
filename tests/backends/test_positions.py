"""Positions out of range, which are contents: the NumPy tier names the op and the line."""

from __future__ import annotations

import pytest

import bireme
import bireme.nn.functional as F
from bireme.host import config


@pytest.fixture(autouse=True)
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "compile_mode", "never")


@pytest.mark.parametrize("kind", [IndexError, ValueError])
def test_a_row_that_is_not_there(kind: type[Exception]) -> None:
    made = F.embedding(bireme.to_tensor([0, 9]), bireme.ones([3, 4]))
    with pytest.raises(kind, match=r"\[embedding\] 'x' holds 9.*test_positions.py:\d+.*int64\[2\]"):
        made.numpy()


def test_a_class_that_is_not_there() -> None:
    loss = F.cross_entropy(bireme.ones([3, 4]), bireme.to_tensor([0, 1, 9]))
    with pytest.raises(IndexError, match=r"\[cross_entropy\] 'label' holds 9.*positions.py:\d+"):
        loss.item()
