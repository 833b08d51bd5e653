"""What state a server is in: starting, ready, draining."""

from __future__ import annotations


class Lifecycle:
    """The server's own part of `live` and `ready`."""

    def __init__(self) -> None:
        self.live = True
        self.started = self.draining = False

    @property
    def ready(self) -> bool:
        """Whether new clients should come."""
        return self.started and not self.draining
