"""The native library's build: a process of its own, one at a time, whole or not at all.

The compilers here are shell scripts, so that the tests decide when and how one ends.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from bireme.host import background
from bireme.kernels.native import builder, building

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
ROOT = pathlib.Path(__file__).parents[2]
# $d is the test's folder: each call is logged, and held until the gate is there.
SCRIPT = """#!/bin/sh
d={folder}
echo "$@" >> $d/log
touch $d/started
while [ ! -e $d/gate ]; do sleep 0.02; done
{then}
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "cache").mkdir(mode=0o700)
    (tmp_path / "one.cc").write_text('extern "C" int one() { return 1; }')
    return tmp_path


def compiler(place: pathlib.Path, then: str = 'exec g++ "$@"', held: bool = False) -> str:
    path = place / "compiler.sh"
    path.write_text(SCRIPT.format(folder=place, then=then))
    path.chmod(0o755)
    if not held:
        (place / "gate").touch()
    return str(path)


def call(place: pathlib.Path, command: str) -> tuple[Any, ...]:
    """Arguments of `building.opened`."""
    sources = [[command, "-fPIC", "-c", str(place / "one.cc")]]
    return place / "cache" / "bireme_kernels_x.so", sources, [command, "-shared"], []


def plan(place: pathlib.Path, command: str) -> str:
    target, sources, link, libraries = call(place, command)
    said = {"target": str(target), "sources": sources, "link": link, "libraries": libraries}
    return json.dumps({**said, "timeout": 60})


def calls(place: pathlib.Path) -> int:
    log = place / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def until(condition: Any) -> None:
    end = time.monotonic() + 300  # far beyond what a busy machine needs
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def files(place: pathlib.Path) -> list[str]:
    return sorted(p.name for p in (place / "cache").iterdir())


ENDS_EARLY = """
import os, pathlib, time
from bireme.host import background
from bireme.kernels import native
future = background.submit(native.load)
while not os.path.exists({started!r}):
    time.sleep(0.02)
print("done")
"""


def test_a_program_that_ends_leaves_the_build_to_the_next_one(tmp_path):
    """At exit nothing is waited for and nothing printed; the library is there later, alone."""
    library = 'case "$*" in *-shared*) out=; for a; do [ "$p" = -o ] && out=$a; p=$a; done;'
    library += " echo a library > $out;; esac"
    command = compiler(tmp_path, library, held=True)
    env = {**os.environ, "CXX": command, "BIREME_CACHE_DIR": str(tmp_path / "cache")}
    env["PYTHONPATH"] = str(ROOT)
    # The gate stays shut: this returns only if neither the exit nor the pipes wait for the builder.
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", ENDS_EARLY.format(started=str(tmp_path / "started"))],
        env=env, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    (tmp_path / "gate").touch()
    folder = tmp_path / "cache" / "native"
    until(lambda: not [p for p in folder.iterdir() if p.suffix in (".note", ".tmp")])
    assert sorted(p.suffix for p in folder.iterdir()) == [".lock", ".so"]
    assert builder.is_whole(next(folder.glob("*.so")))


def test_a_job_that_waits_is_dropped_at_exit(place, monkeypatch):
    monkeypatch.setattr(background, "_stopping", threading.Event())
    background._stopping.set()
    with pytest.raises(background.Stopped):
        building.opened(*call(place, compiler(place, held=True)))
    (place / "gate").touch()
    until(lambda: files(place) == ["bireme_kernels_x.lock", "bireme_kernels_x.so"])
    monkeypatch.undo()
    assert building.opened(*call(place, compiler(place))).one() == 1
    assert calls(place) == 2


def test_processes_that_start_at_once_build_once(place):
    command = compiler(place, held=True)
    target, *rest = call(place, command)
    code = (
        "import pathlib\nfrom bireme.kernels.native import building\n"
        f"print(building.opened(pathlib.Path({str(target)!r}), *{rest!r}).one())"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    several = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    until(lambda: (place / "started").exists())
    (place / "gate").touch()
    assert [p.communicate()[0] for p in several] == ["1\n"] * 4
    assert calls(place) == 2  # one source, and the link
    assert files(place) == ["bireme_kernels_x.lock", "bireme_kernels_x.so"]


def test_a_killed_builder_blocks_nobody(place):
    command = compiler(place, held=True)
    started = [sys.executable, "-I", "-S", builder.__file__, plan(place, command)]
    process = subprocess.Popen(started)
    until(lambda: (place / "started").exists())
    assert subprocess.run(started, check=False).returncode == builder.BUSY
    process.send_signal(signal.SIGKILL)
    process.wait()
    (place / "gate").touch()
    target = place / "cache" / "bireme_kernels_x.so"
    assert builder.read_note(target)["reason"] == builder.INTERRUPTED
    assert building.opened(*call(place, command)).one() == 1
    assert files(place) == ["bireme_kernels_x.lock", "bireme_kernels_x.so"]


def test_builds_that_are_always_killed_are_given_up(place):
    command = compiler(place, "kill -9 $PPID; exit 1")  # the builder is the script's parent
    for _ in range(building._TRIES):
        with pytest.raises(building.BuildFailed, match="interrupted"):
            building.opened(*call(place, command))
    seen = calls(place)
    assert seen == building._TRIES
    with pytest.raises(building.BuildFailed, match="interrupted"):
        building.opened(*call(place, command))
    assert calls(place) == seen


def test_a_failure_is_remembered_for_an_hour(place):
    command = compiler(place, "echo no such header; exit 1")
    for _ in range(2):
        with pytest.raises(building.BuildFailed, match=r"failed: no such header .*is removed"):
            building.opened(*call(place, command))
    assert calls(place) == 1
    assert files(place) == ["bireme_kernels_x.lock", "bireme_kernels_x.note"]
    note = place / "cache" / "bireme_kernels_x.note"
    note.write_text(json.dumps(json.loads(note.read_text()) | {"time": time.time() - 3700}))
    assert building.opened(*call(place, compiler(place))).one() == 1
    assert not note.exists()


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"reason": 1, "tries": "x", "time": []}'])
def test_a_note_that_cannot_be_read_is_none(place, content):
    (place / "cache" / "bireme_kernels_x.note").write_text(content)
    assert building.opened(*call(place, compiler(place))).one() == 1


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "unsealed", "writable"])
def test_a_library_that_is_not_whole_is_built_again(place, damage):
    target, *rest = call(place, compiler(place))
    builder.build(json.loads(plan(place, rest[0][0][0])))
    content = target.read_bytes()
    if damage == "writable":
        target.chmod(0o777)
    else:
        target.write_bytes({
            "cut": content[: len(content) // 2], "empty": b"",
            "flipped": content[:999] + bytes([content[999] ^ 1]) + content[1000:],
            "unsealed": content[: -builder._END],
        }[damage])  # fmt: skip
    assert building.opened(target, *rest).one() == 1
    assert calls(place) == 4
    assert target.read_bytes() == content


def test_a_compiler_that_hangs_is_stopped_with_all_it_started(place):
    script = f"sleep 1000 & echo $! > {place}/pid; wait"
    command = compiler(place, script)
    with pytest.raises(builder.BuildFailed, match=r"took over 1 s"):
        builder.run_compiler([command], timeout=1)
    pid = (place / "pid").read_text().strip()

    def gone() -> bool:  # or left over as a zombie, where nobody collects those
        stat = pathlib.Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().split()[2] == "Z"

    until(gone)


def test_a_compiler_that_is_killed_or_missing(place):
    with pytest.raises(builder.BuildFailed, match="killed by signal 9"):
        builder.run_compiler([compiler(place, "kill -9 $$")], timeout=60)
    with pytest.raises(builder.BuildFailed, match="cannot be started: No such file"):
        builder.run_compiler([str(place / "nothing")], timeout=60)


def test_without_room_no_compiler_is_started(place, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    for _ in range(2):
        with pytest.raises(building.BuildFailed, match=r"no room in .*No space left"):
            building.opened(*call(place, compiler(place)))
    assert calls(place) == 0
    assert files(place) == ["bireme_kernels_x.lock"]


def test_old_libraries_and_builds_are_removed(place):
    folder = place / "cache"
    names = ["bireme_kernels_old.so", "bireme_kernels_old.lock", "bireme_cuda_old.so", "theirs.so"]
    for name in (*names, "bireme_kernels_young.so"):
        (folder / name).touch()
    (folder / "bireme_kernels_old.tmp").mkdir()
    (folder / "bireme_kernels_old.tmp" / "0.o").touch()
    long_ago = time.time() - 31 * 24 * 3600
    for name in (*names, "bireme_kernels_old.tmp"):
        os.utime(folder / name, (long_ago, long_ago))
    assert building.opened(*call(place, compiler(place))).one() == 1
    kept = ["bireme_kernels_x.lock", "bireme_kernels_x.so", "bireme_kernels_young.so", "theirs.so"]
    assert files(place) == sorted(kept)
