"""One server for every model: `bireme serve` and `Server`.

    from bireme.serving import Server

    with Server({"net": "folder/net"}) as server:
        print(server.url)

Speaks the Open Inference Protocol over REST and gRPC. Needs the extra `serving`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bireme.serving.errors import ServingError
from bireme.serving.options import Options
from bireme.serving.settings import Settings

if TYPE_CHECKING:
    from bireme.serving.server import Server as Server

__all__ = ["Options", "Server", "ServingError", "Settings"]


def __getattr__(name: str) -> object:
    if name == "Server":  # it needs the extra, and the command line does not want to pay for it
        from bireme.serving.server import Server

        return Server
    raise AttributeError(f"module 'bireme.serving' has no attribute {name!r}")
