"""The settings of a server: where it listens, what it allows, and its limits."""

from __future__ import annotations

from dataclasses import dataclass

from bireme.core.errors import InvalidArgument


@dataclass(frozen=True)
class Settings:
    """How a server meets its clients.

    host, port: where HTTP listens; port 0 takes a free one.
    grpc_port: where gRPC listens; None: nowhere.
    model_control: whether clients may load and unload models.
    tokens: a file with one bearer token per line; without it anybody who can connect may ask.
    certificate, key: PEM files for TLS.
    hosts: more names that clients may call this server by; on a loopback address, only the names
        of this machine are allowed otherwise, so that no web page elsewhere can reach it.
    access_log: whether every request writes a line of JSON to the logger bireme.serving.access.
    lame_duck: seconds after SIGTERM in which the server still accepts requests while `ready` is
        false and answers ask clients to close their connections.
    drain: seconds that running requests have after that.
    body_bytes, header_bytes, connections: limits of HTTP and gRPC.
    receive_seconds: that a client has to send its headers, and between parts of its body. A body
        has as long in all, and a second more for each KiB that came.
    send_seconds: that a client has to take a part of its answer.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    grpc_port: int | None = None
    model_control: bool = False
    tokens: str | None = None
    certificate: str | None = None
    key: str | None = None
    hosts: tuple[str, ...] = ()
    access_log: bool = False
    lame_duck: float = 5.0
    drain: float = 30.0
    body_bytes: int = 64 << 20
    header_bytes: int = 64 << 10
    connections: int = 1024
    receive_seconds: float = 30.0
    send_seconds: float = 60.0

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise InvalidArgument("[serve] TLS needs both a certificate and a key")
        if not 0 <= self.port < 1 << 16 or not 0 <= (self.grpc_port or 0) < 1 << 16:
            raise InvalidArgument(
                f"[serve] ports are 0 to 65535. Received: {self.port}, {self.grpc_port}"
            )
        least = (self.body_bytes, self.header_bytes, self.connections, self.receive_seconds)
        if min(*least, self.send_seconds) <= 0 or min(self.lame_duck, self.drain) < 0:
            raise InvalidArgument("[serve] limits must be positive, and times not negative")
