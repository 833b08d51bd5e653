"""Children that save without end are killed at random moments, while others read."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import time
import traceback
from dataclasses import dataclass, field

from bireme.io import atomic
from tests.kills.savers import Saver, run_child


@dataclass
class Tally:
    """What a campaign saw."""

    kills: int = 0
    saves: int = 0
    reads: int = 0
    old: int = 0
    new: int = 0
    left: int = 0  # kills that left temporary files or a mark, until the next save
    most: int = 0
    broken: list[str] = field(default_factory=list)


def leftovers(folder: str) -> list[str]:
    return [n for n in os.listdir(folder) if atomic.is_ours(n)]


class Reader:
    """A process that loads all the time, and wants whole versions that never become older."""

    def __init__(self, saver: Saver, folder: str):
        here, there = os.pipe()
        self.asked, wanted = os.pipe()[::-1]
        self._answers = here
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.asked)
            _read_without_end(saver, folder, wanted, there)
        os.close(there)
        os.close(wanted)

    def finish(self) -> tuple[int, str | None]:
        """(how many loads, what was wrong with the last)."""
        os.close(self.asked)
        with os.fdopen(self._answers, "rb") as file:
            count, error = json.loads(file.read())
        os.waitpid(self.pid, 0)
        return count, error


def _read_without_end(saver: Saver, folder: str, asked: int, answer: int) -> None:
    count, error = 0, None
    try:
        last = 0
        while not select.select([asked], [], [], 0)[0]:
            n = saver.load(folder)
            count += 1
            if n < last:
                raise AssertionError(f"{n} was read after {last}")
            last = n
    except BaseException:
        error = traceback.format_exc()
    finally:
        os.write(answer, json.dumps([count, error]).encode())
        os._exit(0)


def _start(saver: Saver, folder: str, first: int) -> tuple[list[int], int]:
    """(the processes of a job that saves version `first` and on, where it tells how far it is)."""
    told, tells = os.pipe()
    lines = socket.socketpair() if saver.ranks == 2 else (None, None)
    pids = []
    for rank in range(saver.ranks):
        pid = os.fork()
        if pid == 0:
            os.close(told)
            other = lines[1 - rank]
            if other is not None:
                other.close()
            run_child(saver, folder, rank, lines[rank], first, tells)
        pids.append(pid)
    os.close(tells)
    for line in lines:
        if line is not None:
            line.close()
    return pids, told


def _kill_one(
    pids: list[int], told: int, saves: int, delay: float, chance: random.Random
) -> tuple[int, float]:
    """Let a job begin `saves` saves, wait a moment more, kill a process of it. Returns how many
    saves were done, and how many seconds the last one took that was seen from end to end."""
    begun = done = 0
    last = start = 0.0
    while begun < saves:
        word = os.read(told, 1)
        if not word:
            break  # it ended by itself, which its exit code tells
        if word == b"b":
            begun, start = begun + 1, time.perf_counter()
        else:
            done, last = done + 1, time.perf_counter() - start
    time.sleep(delay)
    chosen = chance.randrange(len(pids))
    os.kill(pids[chosen], signal.SIGKILL)
    while word := os.read(told, 4096):
        done += word.count(b"d")
    os.close(told)
    for i, pid in enumerate(pids):
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) not in ((-signal.SIGKILL,) if i == chosen else (3,)):
            raise AssertionError(f"a saver ended by itself: {os.waitstatus_to_exitcode(status)}")
    return done, last


def run(saver: Saver, folder: str, kills: int, seed: int) -> Tally:
    """Kill a saver so many times; after each kill the real loader must find the last complete
    version or the one that was being saved."""
    chance, tally = random.Random(seed), Tally()
    pids, told = _start(saver, folder, 1)
    there, pace = _kill_one(pids, told, 2, 0, chance)
    # A save has its files and a mark. One that was killed after its mark waits for the next one's
    # end, which may be killed too.
    bound = 2 * (len(os.listdir(folder)) + 1)
    reader = Reader(saver, folder)
    try:
        for _ in range(kills):
            pids, told = _start(saver, folder, there + 1)
            # Half of the kills come late in a save, when the files change places. How late that
            # is depends on what else the machine does: a fifth of the saves should be done.
            share = chance.random() if chance.random() < 0.5 else 0.8 + chance.random() / 3
            done = _kill_one(pids, told, 1, share * pace, chance)[0]
            pace *= 0.93 if done else 1.02
            left = leftovers(folder)
            found = saver.load(folder)
            tally.kills, tally.saves = tally.kills + 1, tally.saves + done
            tally.left += bool(left)
            tally.most = max(tally.most, len(left))
            if not there + done <= found <= there + done + 1:
                tally.broken.append(f"version {found} was there after {there + done}")
            if len(left) > bound:
                tally.broken.append(f"kills left {left}")
            tally.new += found == there + done + 1
            tally.old += found == there + done
            there = found
    except Exception:
        tally.broken.append(traceback.format_exc())
    finally:
        tally.reads, error = reader.finish()
    if error is not None:
        tally.broken.append(f"a reader failed:\n{error}")
    if saver.ranks == 1:  # a job would have to be stopped between two saves
        saver.save(folder, there + 1)
        if leftovers(folder):
            tally.broken.append(f"a whole save left {leftovers(folder)}")
    return tally
