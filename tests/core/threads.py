"""Threads that share tensors, and threads that train. `python -m tests.core.threads 1000` runs a
thousand short trainings in each of eight threads and compares them with the same run alone.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import bireme as paddle
from bireme import nn
from bireme.host import config
from bireme.nn import functional as F

THREADS = 8
WIDTHS = (3, 4, 5, 4, 6, 3, 4, 5)  # some threads train nets of one width, others have their own


@contextmanager
def switching_often(interval: float = 1e-6) -> Iterator[None]:
    """Python changes between threads whenever it may."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def in_threads(tasks: list[Callable[[], Any]]) -> list[Any]:
    """The results of the tasks, each in a thread of its own; raises what the first one raised."""
    results: list[Any] = [None] * len(tasks)
    errors: list[BaseException] = []
    start = threading.Barrier(len(tasks))

    def run(i: int) -> None:
        try:
            start.wait()
            results[i] = tasks[i]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(tasks))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return results


def train(width: int, seed: int, steps: int = 4) -> list[bytes]:
    """A short training from fixed weights; the losses and the last weights."""
    rng = np.random.default_rng(seed)
    net = nn.Sequential(nn.Linear(width, width + 1), nn.Tanh(), nn.Linear(width + 1, 3))
    for p in net.parameters():
        p.set_value(rng.normal(size=p.shape).astype("float32"))
    optimizer = paddle.optimizer.Adam(1e-2, parameters=net.parameters())
    found = []
    for _ in range(steps):
        x = paddle.to_tensor(rng.normal(size=(4, width)).astype("float32"))
        loss = F.cross_entropy(net(x), paddle.to_tensor(rng.integers(0, 3, 4)))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        found.append(loss.numpy().tobytes())
    return found + [p.numpy().tobytes() for p in net.parameters()]


def trainings(thread: int, count: int) -> list[list[bytes]]:
    return [train(WIDTHS[thread], 1000 * thread + i) for i in range(count)]


def shared_layers() -> Callable[[int], list[bytes]]:
    """A function that reads the same frozen layers, in an order that its argument says."""
    paddle.seed(3)
    layers = [nn.Linear(4, 4) for _ in range(5)]
    for layer in layers:
        layer.eval()
    x = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)

    def read(order: int) -> list[bytes]:
        chosen = np.random.default_rng(order).permutation(len(layers))
        with paddle.no_grad():
            out = paddle.to_tensor(x)
            for i in chosen:
                out = layers[i](out) + layers[chosen[0]].weight.sum()
            return [out.numpy().tobytes()]

    return read


def compare(count: int) -> int:
    """How many trainings and readings differ from the same alone."""
    alone = [trainings(t, count) for t in range(THREADS)]
    read = shared_layers()
    alone += [[read(o) for o in range(t, t + count)] for t in range(THREADS)]
    with switching_often():
        together = in_threads([lambda t=t: trainings(t, count) for t in range(THREADS)])
        together += in_threads(
            [lambda t=t: [read(o) for o in range(t, t + count)] for t in range(THREADS)]
        )
    pairs = [p for x, y in zip(alone, together, strict=True) for p in zip(x, y, strict=True)]
    return sum(a != b for a, b in pairs)


def main(count: int = 1000) -> int:
    """In each tier by itself: the two round differently."""
    wrong = 0
    for mode in ("never", "always"):
        config.compile_mode = mode
        wrong += compare(count)
        print(mode, f"{wrong} wrong so far", flush=True)
    print(f"{4 * THREADS * count - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
