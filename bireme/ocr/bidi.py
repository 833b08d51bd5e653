"""From the order in which characters stand to the one in which they are read.

A net reads a line from the left. Of a line in Arabic or Hebrew, numbers and foreign words alone run
that way; the rest is turned round. The rules are those of Unicode's UAX #9, backwards.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_BACKWARD = frozenset({"R", "AL"})
_NUMBERS = frozenset({"EN", "AN"})
_SEPARATORS = frozenset({"CS", "ES"})  # one between two digits belongs to their number
_TERMINATORS = frozenset({"ET"})  # so do signs beside it


def runs_backward(texts: Sequence[str]) -> bool:
    """Whether most letters are of scripts that are read from the right."""
    kinds = [unicodedata.bidirectional(t[0]) for t in texts]
    return sum(k in _BACKWARD for k in kinds) > sum(k == "L" for k in kinds)


def reading_order(texts: Sequence[str]) -> list[int]:
    """The places of characters, which stand from left to right, in the order of reading."""
    if not runs_backward(texts):
        return list(range(len(texts)))
    order: list[int] = []
    end = len(texts)
    forward = _forward([unicodedata.bidirectional(t[0]) for t in texts])
    while end:
        start = end - 1
        while start and forward[end - 1] and forward[start - 1]:
            start -= 1
        order += range(start, end)
        end = start
    return order


def _forward(kinds: Sequence[str]) -> list[bool]:
    """Which characters belong to a run from the left: a number, or words of other scripts."""
    made = [k == "L" or k in _NUMBERS for k in kinds]
    for i, kind in enumerate(kinds):
        beside = [j for j in (i - 1, i + 1) if 0 <= j < len(kinds) and kinds[j] in _NUMBERS]
        if (kind in _SEPARATORS and len(beside) == 2) or (kind in _TERMINATORS and beside):
            made[i] = True
    last = -1  # the last letter of a word of another script
    for i, kind in enumerate(kinds):
        if kind == "L":
            if last >= 0 and not any(k in _BACKWARD for k in kinds[last:i]):
                made[last:i] = [True] * (i - last)
            last = i
    return made
