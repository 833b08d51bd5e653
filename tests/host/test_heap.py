"""What a loop keeps on the heap: one arena, little of its first runs, one run's scratch memory."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import bireme as paddle
from bireme.core import trace
from bireme.core.program import Program
from bireme.host import config, heap, thresholds

ARENAS = """
import ctypes, sys, threading
import bireme as paddle
from bireme.core import executor, stats
from bireme.host import heap
paddle.device.tune_process()
threading.Thread(target=lambda: [bytearray(100) for _ in range(10)]).start()
x = paddle.ones([64, 64])
for _ in range(6):
    for _ in range(20):
        x = x @ x * 0.01 + 1
    total = float(x.sum())
    executor.wait_for_compilation()
assert stats.compile_count() == 1
libc = heap.glibc()
libc.fopen.restype = ctypes.c_void_p
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.fclose.argtypes = [ctypes.c_void_p]
file = libc.fopen(sys.argv[1].encode(), b"w")
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(heap.glibc() is None, reason="needs glibc")
@pytest.mark.parametrize(("setting", "alone"), [("keep", True), ("off", False)])
def test_all_threads_share_one_arena(setting, alone, tmp_path):
    listing = tmp_path / "arenas.xml"
    subprocess.run(
        [sys.executable, "-c", ARENAS, str(listing)],
        env=os.environ | {"BIREME_HEAP": setting, "BIREME_COMPILE": "sync"},
        timeout=120,
        check=True,
    )
    assert (listing.read_text().count("<heap nr=") == 1) is alone


def _long_chain(x):
    for _ in range(20):
        x = x * 0.5 + 1
    return x


def test_the_heap_is_trimmed_before_the_first_runs_of_a_large_program(monkeypatch):
    trims = []
    monkeypatch.setattr(config, "compile_mode", "always")
    monkeypatch.setattr(heap, "release", lambda: trims.append(len(totals)))
    x = paddle.ones([3, 7])
    totals = []
    for _ in range(7):
        x = _long_chain(x)
        totals.append(x.numpy().sum())
    assert trims[:4] == [0, 1, 2, 3]
    assert len(trims) <= 5  # the first round may be a program of its own


def test_a_small_program_is_not_worth_a_trim(monkeypatch):
    monkeypatch.setattr(config, "compile_mode", "always")
    monkeypatch.setattr(heap, "release", lambda: pytest.fail("the heap was trimmed"))
    x = paddle.ones([3, 8])
    for _ in range(5):
        x = x * 0.5 + 1
        x.numpy()


@pytest.fixture
def unready(monkeypatch):
    """How many inputs of each call were still being computed; every program has scratch enough."""
    counts = []
    compile_ = Program._compiled

    def watched(program):
        executable = compile_(program)
        call = executable.call

        def watch(*inputs):
            counts.append(sum(not a.is_ready() for a in inputs if not isinstance(a, np.ndarray)))
            return call(*inputs)

        executable.call = watch
        return executable

    monkeypatch.setattr(config, "compile_mode", "always")
    monkeypatch.setattr(thresholds, "SCRATCH_THAT_WAITS", 1)
    monkeypatch.setattr(Program, "_compiled", watched)
    return counts


def test_a_run_with_much_scratch_memory_waits_for_the_one_before(unready):
    x = paddle.ones([700, 700])
    for _ in range(4):
        for _ in range(8):
            x = paddle.tanh(x @ x) * 0.01
        trace.flush()
    assert unready == [0] * 4


def test_a_captured_step_waits_too(unready):
    layer = paddle.nn.Linear(700, 700)
    optimizer = paddle.optimizer.SGD(0.1, parameters=layer.parameters())
    x = paddle.ones([700, 700])

    @paddle.jit.to_static
    def step(x):
        y = x
        for _ in range(4):
            y = layer(y)
        y.mean().backward()
        optimizer.step()
        optimizer.clear_grad()

    for _ in range(8):
        step(x)
        trace.flush()
    assert len(unready) >= 8
    assert sum(unready) == 0
