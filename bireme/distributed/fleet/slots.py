"""Lines of text into examples: `2 7 9  1 0.5` is a slot of two numbers and a slot of one.

The format is that of `fleet.MultiSlotDataGenerator`: for each slot the count of its values, then
the values. An example is one array per slot; a batch joins its examples' arrays.
"""

from __future__ import annotations

import io
import math
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.errors import ExecutionError, FileFormatError, InvalidArgument
from bireme.io.foreign import read_whole, reading

if TYPE_CHECKING:
    from bireme.core.tensor import Tensor


@dataclass(frozen=True)
class Slot:
    """One variable of the program: its name, its shape (-1: found by counting) and its type."""

    name: str
    shape: tuple[int, ...]
    dtype: Any

    @staticmethod
    def of(variable: Tensor) -> Slot:
        if variable.dtype not in (dt.float32, dt.int64):
            raise InvalidArgument(
                f"[dataset] variables are of float32 or int64. Received: {variable.name!r} of "
                f"{variable.dtype.name}"
            )
        sizes = [d if isinstance(d, int) else -1 for d in variable._value.aval.shape]
        # The batch is what is counted; another open size would leave two unknowns.
        if sum(d < 0 for d in sizes) > 1:
            raise InvalidArgument(f"[dataset] {variable.name!r} has more than one open size")
        return Slot(variable.name, tuple(sizes), variable.dtype.numpy)

    def joined(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """The values of a batch in the variable's shape."""
        values = np.concatenate(parts)
        known = math.prod([d for d in self.shape if d >= 0])
        if values.size % max(known, 1) or (values.size != known and -1 not in self.shape):
            raise FileFormatError(
                f"[dataset] the {values.size} values of a batch for {self.name!r} do not fill its "
                f"shape {list(self.shape)}"
            )
        return values.reshape(self.shape)


@dataclass
class Example:
    values: list[np.ndarray]
    line_id: str = ""
    content: str = ""


@dataclass
class Format:
    """How a line is read."""

    slots: list[Slot] = field(default_factory=list)
    line_ids: bool = False  # the line begins with `1 id`
    contents: bool = False  # then comes `1 text`

    def parse(self, line: str, where: str) -> Example:
        words = iter(line.split())

        def take(slot: str) -> list[str]:
            try:
                count = int(next(words))
                if count < 1:
                    raise FileFormatError(
                        f"[dataset] {where}: slot {slot!r} has {count} values; write a padding "
                        "value where there is none"
                    )
                return [next(words) for _ in range(count)]
            except StopIteration:
                raise FileFormatError(
                    f"[dataset] {where}: the line ends inside slot {slot!r}"
                ) from None

        try:
            made = Example([])
            if self.line_ids:
                made.line_id = take("line id")[0]
            if self.contents:
                made.content = take("content")[0]
            made.values = [np.array(take(s.name), s.dtype) for s in self.slots]
        except FileFormatError:
            raise
        except ValueError as e:
            raise FileFormatError(f"[dataset] {where}: not a number: {e}") from None
        rest = list(words)
        if rest:
            raise FileFormatError(
                f"[dataset] {where}: {len(rest)} words are left after the last slot"
            )
        return made

    def batches(self, examples: Iterable[Example], size: int) -> Iterator[dict[str, np.ndarray]]:
        """Feeds of `size` examples; the last one may be smaller."""
        waiting: list[Example] = []
        for example in examples:
            waiting.append(example)
            if len(waiting) == size:
                yield self._feed(waiting)
                waiting = []
        if waiting:
            yield self._feed(waiting)

    def _feed(self, examples: list[Example]) -> dict[str, np.ndarray]:
        columns = zip(*[e.values for e in examples], strict=True)
        return {s.name: s.joined(c) for s, c in zip(self.slots, columns, strict=True)}


@dataclass
class Source:
    """Where lines come from: files, by a command that fetches one and one that they run through."""

    pipe_command: str = "cat"
    download_command: str = "cat"
    name: str = ""  # of a remote file system
    user: str = ""

    def lines(self, path: str) -> list[str]:
        if path.startswith(("hdfs:", "afs:")) and self.download_command == "cat":
            settings = [f"-Dfs.default.name={self.name}", f"-Dhadoop.job.ugi={self.user}"]
            fetch = shlex.join(["hadoop", "fs", *settings, "-text", path])
        elif self.download_command != "cat":
            fetch = f"{self.download_command} {shlex.quote(path)}"
        elif self.pipe_command == "cat":
            with reading("dataset", path):
                text = io.StringIO(read_whole(path, "dataset").decode("utf-8"))
            return [line for line in text if line.strip()]
        else:
            fetch = f"cat {shlex.quote(path)}"
        command = fetch if self.pipe_command == "cat" else f"{fetch} | ({self.pipe_command})"
        # Commands of a pipeline are what these settings hold, so a shell runs them.
        done = subprocess.run(
            f"set -o pipefail; {command}",
            shell=True,
            executable="/bin/bash",
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ExecutionError(
                f"[dataset] `{command}` failed with status {done.returncode}: {done.stderr[-500:]}"
            )
        return [line for line in done.stdout.splitlines() if line.strip()]
