"""The thread that compiles, at the end of its process."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading

import pytest

from bireme.host import background

LATE = """
import atexit, threading
import bireme as paddle
from bireme.host import background

x = paddle.ones([3, 3])
def f():
    return float(((x @ x + 1) * 2 - 1).sum())
atexit.register(lambda: print("at exit", f(), f()))  # after the thread has ended
gate = threading.Event()
background.submit(gate.wait)
for _ in range(40):  # its program waits behind the gate, and is dropped
    f()
atexit.register(gate.set)
"""


def test_exit_functions_compute_although_programs_were_dropped():
    root = str(pathlib.Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", LATE],
        env={**os.environ, "PYTHONPATH": root, "BIREME_COMPILE": "auto"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("at exit 63.0 63.0\n", "")


def test_a_pause_ends_with_the_process(monkeypatch):
    background.pause(0)
    monkeypatch.setattr(background, "_stopping", threading.Event())
    threading.Timer(0.1, background._stopping.set).start()
    with pytest.raises(background.Stopped):
        background.pause(1000)


DROPPED = """
import bireme as paddle
from bireme.host import background, jax_door

real = jax_door.jax
def jax():  # the program ends while JAX is imported
    background._stopping.wait()
    module = real()
    module.stages.Lowered.compile = lambda *args, **kwargs: print("compiled")
    return module
jax_door.jax = jax
x = paddle.ones([3, 3])
for _ in range(40):
    float(((x @ x + 1) * 2 - 1).sum())
print("done")
"""


def test_a_job_at_hand_is_dropped_between_its_stages():
    """Importing JAX and lowering take seconds; XLA is not begun after the end of the program."""
    root = str(pathlib.Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", DROPPED],
        env={**os.environ, "PYTHONPATH": root, "BIREME_COMPILE": "auto"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("done\n", "")
