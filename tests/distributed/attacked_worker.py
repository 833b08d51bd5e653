"""One of two processes that exchange all kinds of messages until the file in argv[1] is there."""

from __future__ import annotations

import os
import sys

import bireme as paddle
from bireme import distributed as dist

rpc = dist.rpc
me = dist.get_rank()
rpc.init_rpc(f"worker{me}")
dist.init_parallel_env()
rounds, over = 0, False
while not over:
    rounds += 1
    x = paddle.ones([3]) * (me + 1)
    dist.all_reduce(x)
    assert x.tolist() == [3, 3, 3]
    if me == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
    said: list = []
    dist.all_gather_object(said, (me, os.path.exists(sys.argv[1])))
    assert [number for number, _ in said] == [0, 1]
    over = said[0][1]
    assert rpc.rpc_sync(f"worker{1 - me}", max, args=(rounds, 0)) == rounds
rpc.shutdown()
print("all rounds agree")
