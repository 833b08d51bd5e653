"""A process that comes later to its group's first exchange than Gloo would wait.
See test_patience.py. Argument: seconds."""

from __future__ import annotations

import sys
import time

import numpy as np

import bireme as paddle
from bireme import distributed as dist

dist.init_parallel_env()
if dist.get_rank() == 1:
    time.sleep(float(sys.argv[1]))
x = paddle.to_tensor(np.ones(3, "float32"))
dist.all_reduce(x)
assert x.numpy().tolist() == [2, 2, 2]
print(f"rank {dist.get_rank()}: met")
