"""What a training step costs: arithmetic, memory traffic, and messages between devices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from bireme.core.aval import Aval
from bireme.core.graph import Node


@dataclass(frozen=True)
class Hardware:
    """Speeds of one device and of its links, in operations or bytes per second and seconds."""

    flops: float
    memory: float
    link: float
    latency: float

    @staticmethod
    def of(kind: str) -> Hardware:
        """Round figures for a kind of device: what matters is how they relate."""
        if kind == "cpu":
            return Hardware(flops=5e10, memory=1e10, link=5e9, latency=2e-5)
        return Hardware(flops=6e13, memory=3e12, link=3e11, latency=1e-5)


@dataclass(frozen=True)
class Machine:
    """Hardware under data parallelism of `dp` and tensor parallelism of `mp`."""

    hardware: Hardware
    dp: int
    mp: int

    def work(self, flops: float, moved: float) -> float:
        """Time of an operation that computes and moves this much on one device."""
        return max(flops / self.hardware.flops, moved / self.hardware.memory)

    def gather(self, size: float, count: int) -> float:
        """Time to have all parts of `size` bytes on each of `count` devices."""
        if count == 1:
            return 0.0
        return size * (count - 1) / count / self.hardware.link + self.hardware.latency

    def reduce(self, size: float, count: int) -> float:
        """Time to have the sum of `count` devices' arrays of `size` bytes on each of them."""
        return 2 * self.gather(size, count)


def size_of(t: Aval) -> int:
    """Bytes."""
    return math.prod(t.shape) * t.dtype.itemsize


def flops_of(node: Node) -> float:
    """Multiplications and additions of a product; one per result of anything else."""
    call = node.call
    out = math.prod(call.outs[0].shape)
    name = call.op.name
    if name in ("linear", "matmul"):
        inner: Any = call.types[0]
        at = -2 if call.attrs.get("transpose_x") and len(inner.shape) > 1 else -1
        return 2.0 * out * inner.shape[at]
    if name == "attention":
        query: Any = call.types[0]
        key: Any = call.types[1]
        return 4.0 * math.prod(query.shape) * key.shape[1]
    if name.startswith("conv"):
        weight: Any = call.types[1]
        return 2.0 * out * math.prod(weight.shape[1:])
    return float(out)
