"""The end of a process whose compiler is still at work: at once, and otherwise as always."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time

import pytest

from bireme.host import leaving

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="elsewhere the compiler is waited for"
)

# A compilation that never ends, in native code, and a program that is repeated until it has begun.
BUSY = """
import atexit, ctypes, sys, threading, time
import bireme as paddle
from bireme.backends import xla_backend

begun = threading.Event()
def compile(*args, **kwargs):
    begun.set()
    SLEEP
xla_backend.XlaBackend.compile = compile
atexit.register(lambda: print("exit function", float(x.sum())))
x = paddle.ones([3, 3])
while not begun.is_set():
    float(((x @ x + 1) * 2 - 1).sum())
sys.stdout.write("last words, ")
ctypes.CDLL(None).printf(b"C's words\\n")
END
"""
ENDLESS = "ctypes.CDLL(None).sleep(1000)"
# The native call returns while Python finishes: its thread is ended then.
SHORT = "ctypes.CDLL(None).usleep(250_000 + COUNT * 7_000)"


def run(end: str, sleep: str = ENDLESS) -> subprocess.CompletedProcess[str]:
    root = str(pathlib.Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, "-c", BUSY.replace("END", end).replace("SLEEP", sleep)],
        env={**os.environ, "PYTHONPATH": root, "BIREME_COMPILE": "auto"},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("end", "status", "says"),
    [
        ("pass", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('wrong')", 1, "wrong\n"),
        ("raise KeyError('k')", 1, "KeyError: 'k'\n"),
    ],
)
def test_a_process_ends_though_a_compilation_does_not(end: str, status: int, says: str):
    began = time.perf_counter()
    done = run(end)
    assert time.perf_counter() - began < 50
    assert done.returncode == status
    for said in ("last words, ", "C's words\n", "exit function 9.0\n"):
        assert done.stdout.count(said) == 1
    assert done.stderr.endswith(says)
    assert bool(done.stderr) == bool(says)


def test_child_processes_end_so_too():
    ends = """
import multiprocessing, warnings
warnings.simplefilter("ignore")  # Python's on forks of processes with threads
def child():
    sys.exit(5)
process = multiprocessing.get_context('fork').Process(target=child)
process.start()
process.join()
sys.exit(process.exitcode + 1)
"""
    done = run(ends)
    assert (done.returncode, done.stderr) == (6, "")


@pytest.mark.parametrize("n", range(4))
def test_a_compiler_that_returns_while_python_finishes(n: int):
    done = run("time.sleep(0.15)", SHORT.replace("COUNT", str(n)))
    assert (done.returncode, done.stderr) == (0, "")


def test_systems_without_a_way_say_so(monkeypatch):
    monkeypatch.setattr(leaving.sys, "platform", "darwin")
    assert not leaving.without_waiting()
