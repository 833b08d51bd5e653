"""Programs that turn raw lines into the slots of a data feed, one line of text per sample."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bireme.core.errors import InvalidArgument, TypeMismatch


class DataGenerator:
    """Override `generate_sample(line)`: it returns a function that yields samples, each a list of
    (name, values). `generate_batch(samples)` may be overridden as well."""

    def __init__(self) -> None:
        self.batch_size_ = 32
        self._slots: list[tuple[str, str]] | None = None

    def set_batch(self, batch_size: int) -> None:
        """How many samples `generate_batch` is given."""
        self.batch_size_ = batch_size

    def generate_sample(self, line: str | None) -> Callable[[], Iterable[Any]]:
        raise TypeMismatch(f"[{type(self).__name__}] must override generate_sample(line)")

    def generate_batch(self, samples: list[Any]) -> Callable[[], Iterable[Any]]:
        return lambda: iter(samples)

    def run_from_stdin(self) -> None:
        """Read lines from the standard input and write slots to the standard output."""
        self._run(sys.stdin)

    def run_from_memory(self) -> None:
        """Write the slots that `generate_sample(None)` makes."""
        self._run([None])

    def _run(self, lines: Iterable[Any]) -> None:
        for text in self.lines(lines):
            sys.stdout.write(text)

    def lines(self, lines: Iterable[Any]) -> Iterator[str]:
        """The text of all samples of these lines."""
        waiting: list[Any] = []
        for line in lines:
            for sample in self.generate_sample(line)():
                if sample is None:
                    continue
                waiting.append(sample)
                if len(waiting) == self.batch_size_:
                    yield from self._texts(waiting)
                    waiting = []
        if waiting:
            yield from self._texts(waiting)

    def _texts(self, samples: list[Any]) -> Iterator[str]:
        for sample in self.generate_batch(samples)():
            yield self._gen_str(sample)

    def _gen_str(self, line: Any) -> str:
        raise TypeMismatch("use MultiSlotDataGenerator or MultiSlotStringDataGenerator")

    def _checked(self, line: Any) -> list[Any]:
        given = list(line) if isinstance(line, zip) else line
        if not isinstance(given, list | tuple) or not all(
            isinstance(s, list | tuple) and len(s) == 2 and isinstance(s[0], str) for s in given
        ):
            raise InvalidArgument(
                "[generate_sample] a sample is a list of (name, values), such as "
                f"[('words', [19, 26]), ('label', [1])]. Received: {given!r:.100}"
            )
        return list(given)


class MultiSlotStringDataGenerator(DataGenerator):
    """Values are strings already; nothing about them is checked."""

    def _gen_str(self, line: Any) -> str:
        parts = [" ".join([str(len(v)), *v]) for _, v in self._checked(line)]
        return " ".join(parts) + "\n"


class MultiSlotDataGenerator(DataGenerator):
    """Values are numbers. All samples must have the same slots with the same kinds of numbers."""

    def _gen_str(self, line: Any) -> str:
        parts: list[str] = []
        kinds: list[tuple[str, str]] = []
        for name, values in self._checked(line):
            if not isinstance(values, list) or not values:
                raise InvalidArgument(
                    f"[generate_sample] slot {name!r} needs a list of at least one number; pad it"
                )
            if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
                raise InvalidArgument(f"[generate_sample] slot {name!r} has other than numbers")
            kinds.append((name, "float" if any(isinstance(v, float) for v in values) else "uint64"))
            parts.append(" ".join(map(str, [len(values), *values])))
        if self._slots is None:
            self._slots = kinds
        if [n for n, _ in kinds] != [n for n, _ in self._slots]:
            raise InvalidArgument(
                f"[generate_sample] the slots were {[n for n, _ in self._slots]} before. Received: "
                f"{[n for n, _ in kinds]}"
            )
        self._slots = [
            (name, "float" if "float" in (a, b) else "uint64")
            for (name, a), (_, b) in zip(kinds, self._slots, strict=True)
        ]
        return " ".join(parts) + "\n"
