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

# Two threads write a number in turns; the least time of a round trip in 20 parts, in seconds.
_SOURCE = r"""
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { PARTS = 20, TRIPS = 400 };
static _Alignas(64) atomic_long number;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void *answer(void *unused) {
  for (long i = 0; i < PARTS * TRIPS; i++) {
    while (atomic_load_explicit(&number, memory_order_acquire) != 2 * i + 1) {}
    atomic_store_explicit(&number, 2 * i + 2, memory_order_release);
  }
  return unused;
}

double round_trip(void) {
  pthread_t other;
  double best = 1e9;
  atomic_store(&number, 0);
  if (pthread_create(&other, 0, answer, 0)) return -1;
  for (long part = 0, i = 0; part < PARTS; part++) {
    double start = now();
    for (long end = i + TRIPS; i < end; i++) {
      atomic_store_explicit(&number, 2 * i + 1, memory_order_release);
      while (atomic_load_explicit(&number, memory_order_acquire) != 2 * i + 2) {}
    }
    double each = (now() - start) / TRIPS;
    if (each < best) best = each;
  }
  pthread_join(other, 0);
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
    if compiler is None or len(os.sched_getaffinity(0)) < 2:
        return None
    name = f"cores-{hashlib.sha256(_SOURCE.encode()).hexdigest()[:12]}.so"
    library = ROOT / ".bench" / name
    if not library.exists():
        _build(compiler, library)
    function = ctypes.CDLL(str(library)).round_trip
    function.restype = ctypes.c_double
    return function


def _build(compiler: str, library: Path) -> None:
    library.parent.mkdir(parents=True, exist_ok=True)
    part = library.with_suffix(f".{os.getpid()}")
    command = [compiler, "-O2", "-shared", "-fPIC", "-pthread", "-x", "c", "-", "-o", str(part)]
    subprocess.run(command, input=_SOURCE, text=True, check=True)
    part.replace(library)
