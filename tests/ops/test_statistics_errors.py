"""What histograms and places refuse, in our words and in Paddle's classes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import bireme


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: bireme.histogramdd(x, bins=[3.4, 4.5]),
        lambda x: bireme.histogramdd(x, density=10),
        lambda x: bireme.histogramdd(x, weights=bireme.ones([3])),
        lambda x: bireme.histogramdd(x, weights=bireme.ones([4], "float64")),
        lambda x: bireme.put_along_axis(x, bireme.ones([1, 1]), 1.0, 0),
    ],
)
@pytest.mark.parametrize("kind", [TypeError, ValueError, AssertionError])
def test_a_wrong_argument(ask: Callable, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"^\[(histogramdd|put_along_axis)\]"):
        ask(bireme.ones([4, 2]))
