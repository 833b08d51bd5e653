"""Clients that mean harm, or are slow, or are many."""

from __future__ import annotations

import json
import select
import socket

from bireme.serving import Options, Server, Settings
from tests.serving import hostile
from tests.serving.conftest import asker
from tests.serving.models import Echo


def test_a_few_hostile_requests() -> None:
    with Server({"echo": Echo}, Settings(port=0, body_bytes=1 << 20), Options(max_batch=4)) as made:
        statuses = hostile.campaign(made.port, 400)
        ask = asker(made)
        assert ask("GET", "/v2/health/ready")[0] == 200
    assert statuses[400] > 50
    assert statuses[200] > 20


def _connected(server: Server, data: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.port), timeout=120)
    client.sendall(data)
    return client


def test_slow_clients_are_refused() -> None:
    """One stops inside its headers, one inside its body; a third is served meanwhile."""
    head = b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: localhost\r\n"
    settings = Settings(port=0, receive_seconds=0.5)
    with (
        Server({"echo": Echo}, settings, Options(max_batch=1)) as made,
        _connected(made, head) as one,
        _connected(made, head + b"Content-Length: 100\r\n\r\n{") as other,
    ):
        # In one piece: between two, a busy machine may take longer than the clients' time.
        body = json.dumps(hostile.INFER).encode()
        with _connected(made, head + b"Content-Length: %d\r\n\r\n" % len(body) + body) as good:
            assert good.recv(100).startswith(b"HTTP/1.1 200")
        assert one.recv(100).startswith(b"HTTP/1.1 408")
        assert other.recv(100).startswith(b"HTTP/1.1 408")


def test_a_body_in_drops_is_refused() -> None:
    """Each of its bytes comes in time, and all of them never would."""
    head = b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: localhost\r\n"
    settings = Settings(port=0, receive_seconds=1.0)
    with (
        Server({"echo": Echo}, settings, Options(max_batch=1)) as made,
        _connected(made, head + b"Content-Length: 100000\r\n\r\n") as client,
    ):
        for _ in range(200):
            if select.select([client], [], [], 0.1)[0]:
                break
            client.sendall(b" ")
        else:
            raise AssertionError("it may drip for ever")
        assert client.recv(100).startswith(b"HTTP/1.1 408")


def test_connections_have_a_limit() -> None:
    settings = Settings(port=0, connections=3)
    with Server({"echo": Echo}, settings, Options(max_batch=1)) as made:
        kept = [_connected(made, b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n") for _ in range(3)]
        for client in kept:
            assert client.recv(100).startswith(b"HTTP/1.1 200")
        with _connected(made, b"") as late:
            assert late.recv(100).startswith(b"HTTP/1.1 503")
        for client in kept:
            client.close()
