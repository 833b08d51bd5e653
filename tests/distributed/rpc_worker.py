"""One of two workers that call each other; see test_launch.py."""

from __future__ import annotations

import os

import numpy as np

import bireme as paddle
from bireme import distributed as dist
from bireme.distributed import door
from bireme.distributed.job import DistributedError

rpc = dist.rpc
me = dist.get_rank()
rpc.init_rpc(f"worker{me}")
other = f"worker{1 - me}"


class Unsendable(Exception):
    def __init__(self, a, b):
        super().__init__(a)


def divide(a, b):
    return a / b


def strange():
    raise Unsendable(1, 2)


infos = rpc.get_all_worker_infos()
assert [w.name for w in infos] == ["worker0", "worker1"]
assert rpc.get_worker_info(f"worker{me}") == rpc.get_current_worker_info() == infos[me]
assert rpc.rpc_sync(other, os.getpid) != os.getpid()
assert rpc.rpc_sync(other, divide, args=(6,), kwargs={"b": 3}) == 2
answers = [rpc.rpc_async(other, divide, (i, 2)) for i in range(20)]
assert [a.wait() for a in answers] == [i / 2 for i in range(20)]
x = rpc.rpc_sync(other, paddle.add, (paddle.ones([2]), paddle.ones([2])))
np.testing.assert_array_equal(x.numpy(), [2, 2])
for call, error in (
    (lambda: rpc.rpc_sync(other, divide, (1, 0)), ZeroDivisionError),
    (lambda: rpc.rpc_sync(other, strange), RuntimeError),
    (lambda: rpc.rpc_sync("nobody", divide, (1, 1)), ValueError),
):
    try:
        call()
    except error:
        continue
    raise AssertionError(error)
if me == 0:  # a stranger is turned away before anything it sends is read
    ip, port = infos[1].ip, infos[1].port
    try:
        door.connect((ip, port), b"a guess at the secret", b"rpc", 0)
    except DistributedError:
        pass
    else:
        raise AssertionError("a stranger was let in")
rpc.shutdown()
print("calls agree")
