"""A job whose second process ends with status 5 while the first one waits for it."""

from __future__ import annotations

import sys
import threading

import bireme as paddle
from bireme import distributed as dist


def hooks() -> list[object]:
    return [sys.exit, sys.excepthook, sys.unraisablehook, threading.excepthook]


before = hooks()
dist.init_parallel_env()
assert hooks() == before, "joining a job replaces nothing in sys"
x = paddle.ones([3])
dist.all_reduce(x)
if dist.get_rank() == 1:
    print("the second process gives up")
    sys.exit(5)
dist.all_reduce(x)
