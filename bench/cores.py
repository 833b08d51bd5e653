"""How far apart the two cores are right now.

A virtual machine's cores may be moved between those of the host while it runs: at one time they
share a cache, at another they do not. Where threads hand small pieces of work to each other that
decides more than any engine does (MobileNetV3-small in onnxruntime: 1.1 ms or 1.9 ms), so turns of
different peers can be compared only if it was the same for both.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

from bench.processes import ROOT

# Two threads, each held to its core, write a number in turns; the least time of a round trip in 20
# parts, in seconds.
_SOURCE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

enum { PARTS = 20, TRIPS = 400 };
static _Alignas(64) atomic_long number;
static double best;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

// Somebody else may hold a core: then it is offered, instead of spinning through a time slice.
static void await(long wanted) {
  for (long spins = 1; atomic_load_explicit(&number, memory_order_acquire) != wanted; spins++)
    if (spins % 10000 == 0) sched_yield();
}

static void *ask(void *unused) {
  for (long part = 0, i = 0; part < PARTS; part++) {
    double start = now();
    for (long end = i + TRIPS; i < end; i++) {
      atomic_store_explicit(&number, 2 * i + 1, memory_order_release);
      await(2 * i + 2);
    }
    double each = (now() - start) / TRIPS;
    if (each < best) best = each;
  }
  return unused;
}

static void *answer(void *unused) {
  for (long i = 0; i < PARTS * TRIPS; i++) {
    await(2 * i + 1);
    atomic_store_explicit(&number, 2 * i + 2, memory_order_release);
  }
  return unused;
}

static void start_on(int core, void *(*work)(void *), pthread_t *thread) {
  cpu_set_t one;
  pthread_attr_t how;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  pthread_attr_init(&how);
  pthread_attr_setaffinity_np(&how, sizeof(one), &one);
  pthread_create(thread, &how, work, 0);
  pthread_attr_destroy(&how);
}

double round_trip(int first, int second) {
  pthread_t threads[2];
  best = 1e9;
  atomic_store(&number, 0);
  start_on(first, ask, &threads[0]);
  start_on(second, answer, &threads[1]);
  pthread_join(threads[0], 0);
  pthread_join(threads[1], 0);
  return best;
}
"""
FAR = 2.0  # times the shortest round trip that was seen
_shortest = [float("inf")]


def round_trip_ns() -> float:
    """A number from one core to the other and back; 0 without a C compiler or a second core."""
    measure = _compiled()
    trip = 0.0 if measure is None else measure() * 1e9
    _shortest[0] = min(_shortest[0], trip)
    return trip


def is_near(trip: float) -> bool:
    """Whether this round trip is about as short as the shortest so far."""
    return trip <= FAR * _shortest[0]


@cache
def _compiled() -> Callable[[], float] | None:
    compiler = shutil.which("cc")
    two = sorted(os.sched_getaffinity(0))[:2]
    if compiler is None or len(two) < 2:
        return None
    name = f"cores-{hashlib.sha256(_SOURCE.encode()).hexdigest()[:12]}.so"
    library = ROOT / ".bench" / name
    if not library.exists():
        _build(compiler, library)
    function = ctypes.CDLL(str(library)).round_trip
    function.restype = ctypes.c_double
    return lambda: function(*two)


def _build(compiler: str, library: Path) -> None:
    library.parent.mkdir(parents=True, exist_ok=True)
    part = library.with_suffix(f".{os.getpid()}")
    command = [compiler, "-O2", "-shared", "-fPIC", "-pthread", "-x", "c", "-", "-o", str(part)]
    subprocess.run(command, input=_SOURCE, text=True, check=True)
    part.replace(library)
