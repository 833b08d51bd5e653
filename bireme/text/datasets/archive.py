"""What the datasets share: members of archives, and numbers for words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import IO, Any

from bireme.core.errors import InvalidArgument


def line_pairs(file: IO[bytes]) -> Iterator[tuple[str, str]]:
    """The two columns of each line that has two, separated by a tab."""
    for line in file:
        columns = line.decode().strip().split("\t")
        if len(columns) == 2:
            yield columns[0], columns[1]


def by_frequency(counts: Mapping[Any, int], more_than: int, owner: str) -> dict[Any, int]:
    """Numbers for words: the most frequent first, equal ones in order, then `<unk>`."""
    kept = [(word, n) for word, n in counts.items() if n > more_than]
    if not kept:
        raise InvalidArgument(
            f"[{owner}] no word occurs more than {more_than} times; ask for a lower frequency"
        )
    ordered = sorted(kept, key=lambda item: (-item[1], _text(item[0])))
    numbers = {word: i for i, (word, _) in enumerate(ordered)}
    numbers["<unk>"] = len(numbers)
    return numbers


def _text(word: Any) -> str:
    return word.decode("latin-1") if isinstance(word, bytes) else word


def positive(owner: str, name: str, size: int) -> int:
    if not isinstance(size, int) or size <= 0:
        raise InvalidArgument(f"[{owner}] {name} must be a positive integer. Received: {size!r}")
    return size
