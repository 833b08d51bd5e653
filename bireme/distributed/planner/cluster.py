"""Devices and the links between them: what is simulated, and what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bireme.core.errors import InvalidArgument


@dataclass(frozen=True)
class Device:
    """Speeds of one device, in operations or bytes per second, and its memory in bytes.

    `peak` is the rate by which a plan's MFU is counted, for numbers of two bytes. Of it large
    products reach the share `products`, and attention `attention`. `half` is the size of a
    product's smallest dimension at which half of that is left.
    """

    name: str
    peak: float
    peak_single: float  # for numbers of four bytes
    memory: float
    bandwidth: float
    products: float = 0.82
    attention: float = 0.45
    half: float = 100.0
    launch: float = 3e-6  # of one op
    reserved: float = 0.0  # memory that the runtime and its libraries take

    def work(
        self, flops: float, moved: float, itemsize: int, share: float, dims: Sequence[float] = ()
    ) -> float:
        """Seconds of an op that computes this many operations and moves this many bytes."""
        rate = (self.peak if itemsize <= 2 else self.peak_single) * share
        for d in dims:
            rate *= d / (d + self.half)
        return max(flops / rate, moved / self.bandwidth) + self.launch


@dataclass(frozen=True)
class Link:
    """Bytes per second that a device sends, and the seconds that a message takes at least."""

    bandwidth: float
    latency: float


@dataclass(frozen=True)
class Group:
    """Devices that exchange: how many, and how far apart their numbers are."""

    count: int
    stride: int = 1


@dataclass(frozen=True)
class Cluster:
    """`count` equal devices in nodes of `node`; `inner` links join those of a node, `outer` links
    the nodes (each device has one).

    >>> Cluster.h100(16).nodes
    2
    """

    device: Device
    count: int
    node: int
    inner: Link
    outer: Link
    overlap: float = 0.0  # the share of gradients' and stages' messages that computing hides

    def __post_init__(self) -> None:
        if self.count < 1 or self.node < 1 or (self.count > self.node and self.count % self.node):
            raise InvalidArgument(
                f"[Cluster] {self.count} devices do not fill nodes of {self.node}; use a multiple"
            )

    @property
    def nodes(self) -> int:
        return max(1, self.count // self.node)

    @classmethod
    def h100(cls, count: int) -> Cluster:
        """H100 SXM with 80 GB: nodes of 8 with NVLink, and 400 Gb/s of InfiniBand a device."""
        device = Device("H100", 989e12, 495e12, 80e9, 2.35e12, reserved=3e9)
        return cls(device, count, 8, Link(370e9, 8e-6), Link(45e9, 2e-5), 0.8)

    @classmethod
    def h200(cls, count: int) -> Cluster:
        """H200: an H100 with 141 GB of faster memory."""
        found = cls.h100(count)
        return replace(
            found, device=replace(found.device, name="H200", memory=141e9, bandwidth=3.2e12)
        )

    @classmethod
    def a100(cls, count: int) -> Cluster:
        """A100 SXM with 80 GB: nodes of 8 with NVLink, and 200 Gb/s of InfiniBand a device."""
        device = Device("A100", 312e12, 156e12, 80e9, 1.4e12, reserved=3e9)
        return cls(device, count, 8, Link(230e9, 8e-6), Link(22e9, 2e-5), 0.8)

    # --- collectives ----------------------------------------------------------------------

    def is_inside(self, group: Group) -> bool:
        """Whether all devices of such a group share a node."""
        return group.count * group.stride <= self.node

    def _path(self, group: Group) -> tuple[float, float]:
        """(bytes per second, seconds before the first byte) of a ring over the group."""
        if self.is_inside(group):
            return self.inner.bandwidth, self.inner.latency * math.log2(max(2, group.count))
        together = max(1, self.node // group.stride)  # of a node, in this group
        rate = min(self.inner.bandwidth, self.outer.bandwidth * together)
        nodes = max(2, group.count // together)
        wait = self.outer.latency * math.log2(nodes)
        return rate, wait + self.inner.latency * math.log2(max(1, together))

    def gather(self, size: float, group: Group) -> float:
        """Seconds until all parts of `size` bytes are on each device; also those of a
        reduce-scatter."""
        if group.count == 1 or size <= 0:
            return 0.0
        rate, wait = self._path(group)
        return size * (group.count - 1) / group.count / rate + wait

    def reduce(self, size: float, group: Group) -> float:
        """Seconds until each device has the sum of all devices' `size` bytes."""
        return 2 * self.gather(size, group)

    def exchange(self, size: float, group: Group) -> float:
        """Seconds of an all-to-all in which each device has `size` bytes."""
        if group.count == 1 or size <= 0:
            return 0.0
        rate, wait = self._path(group)
        if not self.is_inside(group):
            # What leaves the node takes the device's own link, however many share the group.
            together = max(1, self.node // group.stride)
            away = size * (group.count - together) / group.count
            return away / self.outer.bandwidth + wait
        return size * (group.count - 1) / group.count / rate + wait

    def send(self, size: float, stride: int) -> float:
        """Seconds of a message to the device that is `stride` further."""
        link = self.inner if 2 * stride <= self.node else self.outer
        return size / link.bandwidth + link.latency
