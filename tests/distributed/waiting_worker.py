"""A process of a job that says that it has joined, and then waits to be ended."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from bireme import distributed as dist

dist.init_parallel_env()
dist.barrier()
(Path(sys.argv[1]) / str(dist.get_rank())).write_text(str(os.getpid()))
while True:
    time.sleep(60)
