"""Training steps of a large table of which few rows are looked up, ours and torch's taking turns.

    python -m bench.rows [--peer PYTHON] [--rows 10000000] [--steps 12] [--rounds 3]

`PYTHON` is an interpreter with torch. Each process has one core and one thread, and trains with
sparse gradients: SGD, Adagrad, and Adam of the rows in use. A line has the median of the steps'
wall and processor times after the first two, and the process's peak memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

WIDTH, BATCH = 16, (4096, 26)

_COMMON = """
import json, resource, sys, time
import numpy as np
name, rows, steps, width, *batch = sys.argv[1], *map(int, sys.argv[2:])
draws = np.random.default_rng(0)
walls, cpus = [], []
for _ in range(steps):
    ids = take(draws.integers(0, rows, batch))
    wall, cpu = time.perf_counter(), time.process_time()
    step(ids)
    walls.append(time.perf_counter() - wall)
    cpus.append(time.process_time() - cpu)
print(json.dumps({
    "wall": 1e3 * float(np.median(walls[2:])),
    "cpu": 1e3 * float(np.median(cpus[2:])),
    "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
}))
"""

_OURS = """
import sys
import bireme as paddle
name, rows, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[4])
table = paddle.nn.Embedding(rows, width, sparse=True)
make = {
    "sgd": paddle.optimizer.SGD,
    "adagrad": paddle.optimizer.Adagrad,
    "adam": lambda *a, **k: paddle.optimizer.Adam(*a, **k, lazy_mode=True),
}[name]
optimizer = make(0.01, parameters=table.parameters())
take = paddle.to_tensor
def step(ids):
    (table(ids) ** 2).sum().backward()
    optimizer.step()
    optimizer.clear_grad()
    paddle.device.synchronize()
"""

_TORCH = """
import sys
import torch
torch.set_num_threads(1)
name, rows, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[4])
table = torch.nn.Embedding(rows, width, sparse=True)
make = {
    "sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "adam": torch.optim.SparseAdam,
}[name]
optimizer = make(table.parameters(), lr=0.01)
take = torch.as_tensor
def step(ids):
    (table(ids) ** 2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def _run(python: str, code: str, arguments: list[str]) -> dict[str, float]:
    core = sorted(os.sched_getaffinity(0))[0]
    found = subprocess.run(
        ["taskset", "-c", str(core), python, "-W", "ignore", "-c", code + _COMMON, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"},
    )
    return json.loads(found.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    sides = [("bireme", sys.executable, _OURS)]
    if options.peer:
        sides.append(("torch", options.peer, _TORCH))
    for name in ("sgd", "adagrad", "adam"):
        arguments = [name, *map(str, (options.rows, options.steps, WIDTH, *BATCH))]
        for _ in range(options.rounds):
            for side, python, code in sides:
                found = _run(python, code, arguments)
                print(
                    f"{name:8} {side:7} {found['wall']:7.1f} ms wall {found['cpu']:7.1f} ms cpu "
                    f"{found['peak']:6.2f} GB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
