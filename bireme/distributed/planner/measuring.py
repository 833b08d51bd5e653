"""What the devices of a mesh can do, measured: products, memory, and messages between them."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from bireme.distributed.mesh import ProcessMesh
from bireme.distributed.planner.cluster import Cluster, Device, Link
from bireme.host import jax_door

_TRIES = 5


def measured(mesh: ProcessMesh) -> Cluster:
    """The mesh's devices as a cluster of one node. Takes about a second, once per process.

    All devices are measured at the same time: those of one host share its processor.
    """
    return _measured(tuple(mesh.process_ids))


@lru_cache(maxsize=8)
def _measured(numbers: tuple[int, ...]) -> Cluster:
    jax = jax_door.jax()
    devices = [jax.devices()[i] for i in numbers]
    count = len(devices)
    spec = jax.sharding.PartitionSpec
    line = jax.sharding.Mesh(np.array(devices), ("x",))
    cut = jax.sharding.NamedSharding(line, spec("x"))
    host = devices[0].platform == "cpu"
    wide = 384 if host else 4096
    a = jax.device_put(np.full((count, wide, wide), 1e-3, np.float32), cut)
    products = jax.jit(lambda a: a @ a @ a @ a @ a, out_shardings=cut)
    peak = 4 * 2.0 * wide**3 / _best(products, a)
    small = jax.device_put(np.full((count, 64, 64), 1e-3, np.float32), cut)
    chain = jax.jit(lambda a: _chain(a, 32), out_shardings=cut)
    launch = max(1e-7, _best(chain, small) / 32 - 2.0 * 64**3 / peak)
    long = jax.device_put(np.ones((count, 2**19 if host else 2**26), np.float32), cut)
    stream = jax.jit(lambda a: a * 2.0 + 1.0, out_shardings=cut)
    bandwidth = 2.0 * long.nbytes / count / _best(stream, long)
    link = Link(bandwidth, launch)
    if count > 1:
        link = _link(jax, line, cut, count, host)
    memory = _memory(devices[0], count if host else 1)
    name = str(devices[0].device_kind)
    device = Device(name, peak, peak, memory, bandwidth, 1.0, 0.5, 8.0, launch)
    return Cluster(device, count, count, link, link)


def _chain(a: Any, times: int) -> Any:
    for _ in range(times):
        a = a @ a
    return a


def _link(jax: Any, line: Any, cut: Any, count: int, host: bool) -> Link:
    """Bandwidth and latency from sums over all devices of two sizes."""
    whole = jax.sharding.NamedSharding(line, jax.sharding.PartitionSpec())
    sums = jax.jit(lambda a: a.sum(0), out_shardings=whole)
    few, many = 2**10, 2**19 if host else 2**24
    seconds = [
        _best(sums, jax.device_put(np.ones((count, n), np.float32), cut)) for n in (few, many)
    ]
    moved = 2.0 * 4 * (many - few) * (count - 1) / count
    bandwidth = moved / max(1e-9, seconds[1] - seconds[0])
    return Link(bandwidth, seconds[0] / 2 / math.log2(max(2, count)))


def _best(function: Callable[[Any], Any], argument: Any) -> float:
    """The shortest of a few runs, in seconds."""
    function(argument).block_until_ready()
    found = math.inf
    for _ in range(_TRIES):
        start = time.perf_counter()
        function(argument).block_until_ready()
        found = min(found, time.perf_counter() - start)
    return found


def _memory(device: Any, sharers: int) -> float:
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return float(stats["bytes_limit"])
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) / sharers
