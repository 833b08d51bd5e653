"""How many worker processes feed a loader fastest: measured, not guessed.

Off unless `paddle.incubate.autotune.set_config` turns it on. A loader is then tried with 0, 2, 4 …
workers over its first batches when it is made, as long as that helps.
"""

from __future__ import annotations

import copy
import os
import time
from typing import TYPE_CHECKING, Any

from bireme.core.errors import BiremeError
from bireme.io.sampler import BatchSampler

if TYPE_CHECKING:
    from bireme.io.dataloader import DataLoader

DEFAULT_STEPS = 500
_BETTER = 0.75  # more workers must take at most this share of the time to be worth it
_START = 2  # batches that wait for the workers to start

steps = 0  # how many batches are measured; 0 is off


def set_steps(count: int) -> None:
    """Measure with so many batches; 0 turns it off."""
    global steps
    steps = count


def best_workers(loader: DataLoader) -> int:
    """The number of workers with which this loader's first batches come fastest."""
    sampler = loader.batch_sampler
    if not steps or not isinstance(sampler, BatchSampler):
        return loader.num_workers  # nothing is known of the order, so nothing may be read twice
    size = sampler.batch_size
    rows = min(len(loader.dataset), size * steps)
    batches = [list(range(i, min(i + size, rows))) for i in range(0, rows, size)]
    best, least = 0, float("inf")
    for count in range(0, max(_processors() // 2, 1), 2):
        try:
            spent = _seconds(loader, batches, count)
        except BiremeError:  # what cannot go to another process stays in this one
            break
        if spent > least * _BETTER:
            break
        best, least = count, spent
    return best


def _processors() -> int:
    return os.cpu_count() or 1


def _seconds(loader: DataLoader, batches: list[Any], count: int) -> float:
    """The mean time of a batch with so many workers."""
    probe = copy.copy(loader)
    probe._use_workers(count)
    probe.batch_sampler, probe.persistent_workers, probe._pool = batches, False, None
    times = [time.perf_counter()]
    for _ in probe:
        times.append(time.perf_counter())
    kept = times[_START:] if len(times) > _START + 1 else times
    return (kept[-1] - kept[0]) / (len(kept) - 1)
