"""What reading a damaged file may do: succeed, or raise one of our errors; soon and in peace."""

from __future__ import annotations

import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bireme.core.errors import BiremeError
from tests.convert.paddle.mutants import mutants
from tests.fuzz.formats import Format

SECONDS = 10.0  # for one small file, on a machine that does other things too
MEMORY = 4 << 30  # address space, beyond what the process has

# What no reader of a model does: start programs, open connections, delete or rename.
_FORBIDDEN = (
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen",
    "socket.connect", "socket.bind", "os.remove", "os.rename", "os.rmdir", "os.chmod",
    "shutil.rmtree", "pickle.find_class", "webbrowser.open", "ctypes.dlopen",
)  # fmt: skip


class ForbiddenEffect(BaseException):
    """Not an Exception: no handler in a reader may swallow it."""


class TooSlow(BaseException):
    pass


_watching = False
_reading = False


def watch_for_effects() -> None:
    """From now on, what a reader must not do raises while one reads."""
    global _watching
    if _watching:
        return
    _watching = True

    def hook(event: str, arguments: Any) -> None:
        if _reading and event in _FORBIDDEN:
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
    raise TooSlow(f"more than {SECONDS} s")


@dataclass
class Verdicts:
    """What became of many damaged files of one format."""

    format: Format
    taken: int = 0
    refused: int = 0
    slowest: float = 0.0
    broken: list[tuple[bytes, str]] = field(default_factory=list)

    def try_mutants(self, count: int, seed: int) -> Verdicts:
        """Read `count` damaged copies of the good file (and the good one itself)."""
        self.format.read(self.format.source)
        for data in mutants(self.format.source, count, seed, document=self.format.document):
            self.try_file(data)
        return self

    def try_file(self, data: bytes) -> None:
        global _reading
        before = signal.signal(signal.SIGALRM, _late)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        start = time.perf_counter()
        _reading = True
        try:
            self.format.read(data)
            self.taken += 1
        except BiremeError as e:
            self.refused += 1
            if not str(e).strip():
                self.broken.append((data, f"an error without a word: {type(e).__name__}"))
        except KeyboardInterrupt:
            raise
        except BaseException as e:
            where = traceback.extract_tb(e.__traceback__)[-1]
            why = f"{type(e).__name__}: {str(e)[:200]} at {where.filename}:{where.lineno}"
            self.broken.append((data, why))
        finally:
            _reading = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            self.slowest = max(self.slowest, time.perf_counter() - start)
