"""A step that does not fit into the GPU's memory leaves everything as it was.
`python -m bench.gpu.scarce_memory`
Small steps train; then most of the memory is taken, and larger steps fail; then it is given back.
"""

from __future__ import annotations

import os
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.1")

import numpy as np

import bireme as paddle
from bireme import nn
from bireme.host import jax_door
from bireme.nn import functional as F


def main() -> int:
    paddle.seed(0)
    net = nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Dropout(0.1), nn.Linear(2048, 10))
    optimizer = paddle.optimizer.Adam(parameters=net.parameters())
    rng = np.random.default_rng(0)

    def step(rows: int) -> float:
        x = paddle.to_tensor(rng.normal(size=(rows, 64)).astype("float32"))
        loss = F.cross_entropy(net(x), paddle.to_tensor(rng.integers(0, 10, rows)))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return loss.item()

    def state() -> dict[str, bytes]:
        found = {k: v.numpy().tobytes() for k, v in net.state_dict().items()}
        found |= {k: v.numpy().tobytes() for k, v in optimizer.state_dict().items() if k[0] != "L"}
        return found | {"rng": repr(paddle.get_rng_state()).encode()}

    rows = 100_000
    for _ in range(3):
        step(64)
        step(rows)
    jax = jax_door.jax()
    device = jax.devices()[0]
    stats = device.memory_stats()
    began = time.perf_counter()
    for _ in range(1000):
        device.memory_stats()
    print(f"memory_stats: {(time.perf_counter() - began) * 1e3:.1f} us; {stats}")
    before = state()
    hog = []
    failures = 0
    for left in (64 << 20, 256 << 20, 700 << 20):
        hog.clear()
        while True:
            stats = device.memory_stats()
            if stats["bytes_limit"] - stats["bytes_in_use"] < left + (64 << 20):
                break
            try:
                hog.append(jax.block_until_ready(jax.numpy.zeros((64 << 20,), np.uint8)))
            except jax.errors.JaxRuntimeError:
                break
        try:
            step(rows)
        except MemoryError as error:
            print(f"{left >> 20} MiB left: {type(error).__name__}: {str(error)[-160:]}")
        else:
            print(f"{left >> 20} MiB left: it did fit")
            before = state()
            continue
        hog.clear()
        after = state()
        changed = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
        failures += bool(changed)
        print(f"changed: {changed}")
    hog.clear()
    print("goes on:", step(64), step(rows))
    print(f"{'FAILED' if failures else 'passed'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
