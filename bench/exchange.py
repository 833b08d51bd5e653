"""Exchanges between two processes on CPUs, ours and torch's over Gloo taking turns.

    python -m bench.exchange [--peer PYTHON] [--rounds 3]

`PYTHON` is an interpreter with torch. Each process has one thread. A line has the medians of one
process: `all_reduce` of 64 MB, of 4 kB, and of eight arrays of 4 kB that are asked for together.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

_COMMON = """
import json, time
def median(call, times):
    call()
    took = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    return 1e3 * sorted(took)[times // 2]
large, one, eight = make(1 << 24), make(1 << 10), [make(1 << 10) for _ in range(8)]
found = {
    "64 MB": median(lambda: reduce([large]), 9),
    "4 kB": median(lambda: reduce([one]), 41),
    "8 x 4 kB": median(lambda: reduce(eight), 41),
}
if rank == 0:
    print(json.dumps(found), flush=True)
"""

_OURS = """
import numpy as np
import bireme as paddle
from bireme import distributed as dist
from bireme.distributed.communication.programs import ReduceOp, exchange
world = dist.init_parallel_env()
rank = dist.get_rank()
make = lambda size: paddle.to_tensor(np.random.rand(size).astype("float32"))._array()
reduce = lambda arrays: exchange("all_reduce", world, arrays, ReduceOp.SUM)
"""

_TORCH = """
import os, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
make = torch.rand
def reduce(arrays):
    for work in [dist.all_reduce(a, async_op=True) for a in arrays]:
        work.wait()
"""


def _ours(folder: str) -> str:
    script = Path(folder, "ours.py")
    script.write_text(_OURS + _COMMON)
    command = [sys.executable, "-m", "bireme.distributed.launch", "--nproc_per_node", "2"]
    command += ["--devices", "", "--log_dir", str(Path(folder, "log")), str(script)]
    subprocess.run(command, check=True, capture_output=True, env=_environment())
    return Path(folder, "log", "workerlog.0").read_text()


def _torch(folder: str, python: str) -> str:
    script = Path(folder, "torch_side.py")
    script.write_text(_TORCH + _COMMON)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [python, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-addr", "127.0.0.1", "--master-port", port]
    done = subprocess.run(
        [*command, str(script)], capture_output=True, text=True, env=_environment()
    )  # torch may abort after the last line, when its threads are torn down
    return done.stdout


def _environment() -> dict[str, str]:
    threads = {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", "GLOO_SOCKET_IFNAME": "lo"}
    return {**os.environ, **threads}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            sides = {"bireme": _ours(folder)}
            if options.peer:
                sides["torch"] = _torch(folder, options.peer)
            for side, text in sides.items():
                found = json.loads([x for x in text.splitlines() if x.startswith("{")][-1])
                figures = "  ".join(f"{k}: {v:8.2f} ms" for k, v in found.items())
                print(f"{side:8} {figures}", flush=True)


if __name__ == "__main__":
    main()
