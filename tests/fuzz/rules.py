"""What reading a damaged file may do: succeed, or raise the one class of error for bad files; with
work and memory in proportion to the file, and nothing else done."""

from __future__ import annotations

import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.formats import Format
from tests.fuzz.structure import one

CPU_SECONDS = 10.0  # for one small file, whatever else the machine does
MEMORY = 4 << 30  # address space, beyond what the process has
GROWTH = 256 << 20, 64  # by how much the most memory ever used may grow: this, and so many files

# What no reader does: start programs, open connections, delete or rename.
_FORBIDDEN = (
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen",
    "socket.connect", "socket.bind", "pickle.find_class", "webbrowser.open", "ctypes.dlopen",
)  # fmt: skip
_WRITING = ("os.remove", "os.rename", "os.rmdir", "os.chmod", "shutil.rmtree")


class ForbiddenEffect(BaseException):
    """Not an Exception: no handler in a reader may swallow it."""


class TooSlow(BaseException):
    pass


_watching = False
_forbidden: tuple[str, ...] = ()


def watch_for_effects() -> None:
    """From now on, what a reader must not do raises while one reads."""
    global _watching
    if _watching:
        return
    _watching = True

    def hook(event: str, arguments: Any) -> None:
        if event in _forbidden:
            raise ForbiddenEffect(f"{event}{arguments!r:.200}")

    sys.addaudithook(hook)


@contextmanager
def limited_memory() -> Iterator[None]:
    """An allocation far beyond the file's size fails instead of filling the machine."""
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _late(number: int, frame: Any) -> None:
    raise TooSlow(f"more than {CPU_SECONDS} s of processor time")


def most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@dataclass
class Verdicts:
    """What became of many damaged files of one format."""

    format: Format
    taken: int = 0
    refused: int = 0
    slowest: float = 0.0
    broken: list[tuple[bytes, str]] = field(default_factory=list)

    def try_mutants(
        self,
        count: int,
        seed: int,
        start: int = 0,
        note: Callable[[int, bytes], None] | None = None,
    ) -> Verdicts:
        """Read `count` damaged copies of the good file (and the good one itself), from number
        `start` on; `note` is told each one before it is read."""
        self.format.read(self.format.source)
        for number in range(start, count):
            rng = random.Random(seed * 1_000_003 + number)
            data = one(self.format.source, self.format.mutate, rng)
            if note is not None:
                note(number, data)
            self.try_file(data)
        return self

    def try_file(self, data: bytes) -> None:
        global _forbidden
        before = signal.signal(signal.SIGPROF, _late)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        start, memory = time.process_time(), most_memory()
        _forbidden = _FORBIDDEN if self.format.writes else _FORBIDDEN + _WRITING
        try:
            self.format.read(data)
            self.taken += 1
        except self.format.errors as e:
            self.refused += 1
            if not str(e).strip():
                self.broken.append((data, f"an error without a word: {type(e).__name__}"))
        except KeyboardInterrupt:
            raise
        except BaseException as e:
            where = traceback.extract_tb(e.__traceback__)[-1]
            own = [f for f in traceback.extract_tb(e.__traceback__) if "bireme/" in f.filename]
            ours = f", from {own[-1].filename}:{own[-1].lineno}" if own else ""
            why = f"{type(e).__name__}: {str(e)[:200]} at {where.filename}:{where.lineno}{ours}"
            self.broken.append((data, why))
        finally:
            _forbidden = ()
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
            self.slowest = max(self.slowest, time.process_time() - start)
        grown = most_memory() - memory
        if grown > GROWTH[0] + GROWTH[1] * len(data):
            self.broken.append((data, f"it took {grown >> 20} MiB for a file of {len(data)} bytes"))
