"""A meeting point for processes that are not (yet) a job: each says something, all hear it."""

from __future__ import annotations

import struct
from typing import Any

from bireme.distributed import wire
from bireme.distributed.job import DistributedError, is_local


class Hub:
    """Process 0 listens at `address`; the others connect to it and stay connected."""

    def __init__(self, rank: int, world: int, address: str, key: bytes):
        self.rank, self.world = rank, world
        host, port = wire.endpoint(address)
        if rank != 0:
            self._links = {0: wire.connect((host, port), key)}
            self._links[0].send_bytes(struct.pack("<q", rank))
            return
        listener = wire.listen(("127.0.0.1" if is_local(host) else host, port))
        self._links: dict[int, Any] = {}
        while len(self._links) < world - 1:
            link = listener.accept()
            if wire.admit(link, key):
                (said,) = struct.unpack("<q", link.recv_bytes(8))
                if said in self._links or not 0 < said < world:
                    raise DistributedError(f"two processes call themselves {said} of {world}")
                self._links[said] = link
        listener.close()

    def exchange(self, payload: bytes) -> list[bytes]:
        """What all processes say, in the order of their ranks."""
        try:
            if self.rank != 0:
                self._links[0].send_bytes(payload)
                return [self._links[0].recv_bytes() for _ in range(self.world)]
            said = [payload, *[self._links[r].recv_bytes() for r in range(1, self.world)]]
            for link in self._links.values():
                for text in said:
                    link.send_bytes(text)
            return said
        except (EOFError, OSError) as e:
            raise DistributedError(f"a process of this meeting has ended: {e}") from e

    def close(self) -> None:
        for link in self._links.values():
            link.close()
