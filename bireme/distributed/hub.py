"""A meeting point for processes that are not (yet) a job: each says something, all hear it."""

from __future__ import annotations

import queue
import time

from bireme.distributed import door, wire
from bireme.distributed.door import Link
from bireme.distributed.environment import _number
from bireme.distributed.job import DistributedError, is_local

_PURPOSE = b"hub"
_LIMIT = 1 << 26  # bytes that a process may say


class Hub:
    """Process 0 listens at `address`; the others connect to it and stay connected."""

    def __init__(self, rank: int, world: int, address: str, key: bytes):
        self.rank, self.world = rank, world
        self._links: dict[int, Link] = {}
        host, port = wire.endpoint(address)
        if rank != 0:
            self._links[0] = door.connect((host, port), key, _PURPOSE, rank)
            return
        arrived: queue.SimpleQueue[Link] = queue.SimpleQueue()
        local = ("127.0.0.1" if is_local(host) else host, port)
        listening = door.Door(local, key, _PURPOSE, arrived.put)
        try:
            self._gather(arrived)
        except BaseException:
            self.close()
            raise
        finally:
            listening.close()

    def _gather(self, arrived: queue.SimpleQueue[Link]) -> None:
        patience = _number("FLAGS_stop_check_timeout", 300)
        until = time.monotonic() + patience
        while len(self._links) < self.world - 1:
            try:
                link = arrived.get(timeout=max(until - time.monotonic(), 0))
            except queue.Empty:
                missing = [r for r in range(1, self.world) if r not in self._links]
                raise DistributedError(
                    f"process {', '.join(map(str, missing))} of {self.world} did not come within "
                    f"{patience} s (FLAGS_stop_check_timeout). Are all of them running?"
                ) from None
            if link.rank in self._links or not 0 < link.rank < self.world:
                link.close()
                raise DistributedError(f"two processes call themselves {link.rank} of {self.world}")
            self._links[link.rank] = link

    def exchange(self, payload: bytes) -> list[bytes]:
        """What all processes say, in the order of their ranks."""
        try:
            if self.rank != 0:
                self._links[0].send_bytes(payload)
                return [self._heard(0) for _ in range(self.world)]
            said = [payload, *[self._heard(r) for r in range(1, self.world)]]
            for link in self._links.values():
                for text in said:
                    link.send_bytes(text)
            return said
        except (EOFError, OSError) as e:
            raise DistributedError(f"a process of this meeting has ended: {e}") from e

    def _heard(self, rank: int) -> bytes:
        return bytes(self._links[rank].recv_bytes(_LIMIT))

    def close(self) -> None:
        for link in self._links.values():
            link.close()
