from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import bireme as paddle
from bireme.serving import Options, Server, Settings
from tests.serving.models import Broken, Echo, Twice, Words

Ask = Callable[..., tuple[int, dict[str, str], Any]]


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, paddle.nn.Layer]:
    """(the prefix of a saved net, the net)."""
    paddle.seed(1)
    nn = paddle.nn
    layer = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    layer.eval()
    path = str(tmp_path_factory.mktemp("net") / "net")
    paddle.jit.save(layer, path, [paddle.static.InputSpec([None, 4], name="x")])
    return path, layer


@pytest.fixture(scope="module")
def server(saved: tuple[str, paddle.nn.Layer]) -> Iterator[Server]:
    """A server on free ports with a few models."""
    models = {"net": saved[0], "echo": Echo, "words": Words, "twice": Twice, "broken": Broken}
    settings = Settings(
        port=0, grpc_port=0, model_control=True, body_bytes=1 << 20, header_bytes=4096
    )
    with Server(models, settings, Options(max_batch=4)) as made:
        yield made


def asker(server: Server) -> Ask:
    def ask(
        method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], Any]:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        try:
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            raw = answer.read()
        finally:
            connection.close()
        found = {k.lower(): v for k, v in answer.getheaders()}
        is_json = found.get("content-type") == "application/json" and raw
        return answer.status, found, json.loads(raw) if is_json else raw

    return ask


@pytest.fixture
def ask(server: Server) -> Ask:
    return asker(server)
