"""`python -m tests.fuzz [COUNT] [FORMAT ...]`: COUNT damaged files over all formats.

Reading one must succeed or raise the error for bad files, with work and memory in proportion to
the file, and run nothing. A child process reads, so that a crash or a stall is seen and named; it
goes on behind the file that ended it. A file that breaks a rule is kept under `.fuzz/`.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KEEP = Path(".fuzz")
LARGEST = 1 << 24  # bytes of a damaged file
STALL = 300  # seconds without another file until the child is taken to hang


def child(folder: str, count: int, seed: int, begin: str, chosen: list[str]) -> None:
    """Read; what is read now is in the file `now`, what is done in lines of standard output."""
    import warnings

    from tests.fuzz.formats import formats
    from tests.fuzz.rules import Verdicts, limited_memory, watch_for_effects

    inner = tempfile.mkdtemp(dir=folder)
    known = formats(Path(inner))
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        raise SystemExit(f"no formats {unknown}. There are: {', '.join(known)}")
    names = chosen or list(known)
    whole = sum(known[n].share for n in names)
    at, first = begin.rsplit(":", 1) if begin else (names[0], "0")
    with open(os.path.join(folder, "now"), "r+b") as file:
        now = mmap.mmap(file.fileno(), LARGEST + 512)
    watch_for_effects()
    warnings.simplefilter("error", RuntimeWarning)
    for name in names[names.index(at) :]:
        share = round(count * known[name].share / whole)

        def note(number: int, data: bytes, name: str = name) -> None:
            head = json.dumps([name, number, len(data)]).encode().ljust(512)
            now[: 512 + len(data[:LARGEST])] = head + data[:LARGEST]

        begun = time.process_time()
        with limited_memory():
            start = int(first) if name == at else 0
            verdicts = Verdicts(known[name]).try_mutants(share, seed, start, note)
        seconds = time.process_time() - begun
        kept = []
        for i, (data, why) in enumerate(verdicts.broken[:20]):
            KEEP.mkdir(exist_ok=True)
            path = KEEP / f"{name.replace(' ', '').replace('/', '')}-{start}-{i}"
            path.write_bytes(data)
            kept.append(f"  {path}: {why}")
        print(
            f"{name}: {share - start} files, {verdicts.taken} readable, {verdicts.refused} "
            f"refused, {len(verdicts.broken)} broke a rule; slowest "
            f"{verdicts.slowest * 1e3:.0f} ms, {seconds:.0f} s",
            *kept, sep="\n", flush=True,
        )  # fmt: skip


def main(count: int, seed: int, chosen: list[str]) -> int:
    broken, begin = 0, ""
    with tempfile.TemporaryDirectory() as folder:
        now = Path(folder, "now")
        now.write_bytes(bytes(LARGEST + 512))
        while True:
            command = [sys.executable, "-m", "tests.fuzz", "--child", folder, str(count)]
            process = subprocess.Popen(
                [*command, str(seed), begin, *chosen], stdout=subprocess.PIPE, text=True
            )
            status, stalled = _wait(process, now)
            broken += int(stalled)
            if status == 0:
                return 1 if broken or (KEEP.exists() and any(KEEP.iterdir())) else 0
            if status > 0 and not stalled:
                return status
            with open(now, "rb") as file:
                name, number, size = json.loads(file.read(512))
                data = file.read(size)
            why = "it hangs" if stalled else signal.Signals(-status).name
            KEEP.mkdir(exist_ok=True)
            path = KEEP / f"{name.replace(' ', '')}-{number}-crash"
            path.write_bytes(data)
            print(f"{name}: file {number}: {why}: {path}", flush=True)
            broken += 1
            begin = f"{name}:{number + 1}"


def _wait(process: subprocess.Popen[str], now: Path) -> tuple[int, bool]:
    """(the child's status, whether it was ended because it hung)."""
    import threading

    def show() -> None:
        for line in process.stdout or ():
            print(line, end="", flush=True)

    reader = threading.Thread(target=show)
    reader.start()
    last, since, stalled = b"", time.monotonic(), False
    while process.poll() is None:
        time.sleep(0.5)
        with open(now, "rb") as file:
            head = file.read(512)
        if head != last:
            last, since = head, time.monotonic()
        elif time.monotonic() - since > STALL:
            stalled = True
            process.kill()
    reader.join()
    return process.wait(), stalled


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["--child"]:
        child(words[1], int(words[2]), int(words[3]), words[4], words[5:])
    else:
        number = int(words.pop(0)) if words and words[0].isdigit() else 50_000
        sys.exit(main(number, 1, words))
