"""The Open Inference Protocol over REST: every address, and what strangers send."""

from __future__ import annotations

import gzip
import json
import socket
import time
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import profiler
from bireme.serving import Server
from tests.serving.conftest import Ask

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def tensor(array: np.ndarray = X, name: str = "x", datatype: str = "FP32") -> dict[str, Any]:
    data = array.reshape(-1).tolist()
    return {"name": name, "datatype": datatype, "shape": list(array.shape), "data": data}


def binary(document: Any, *parts: bytes) -> tuple[bytes, dict[str, str]]:
    header = json.dumps(document).encode()
    return b"".join([header, *parts]), {"Inference-Header-Content-Length": str(len(header))}


def test_health_and_metadata(ask: Ask) -> None:
    assert ask("GET", "/v2/health/live")[0] == 200
    assert ask("GET", "/v2/health/ready")[0] == 200
    assert ask("GET", "/v2/models/net/ready")[0] == 200
    assert "binary_tensor_data" in ask("GET", "/v2")[2]["extensions"]
    about = ask("GET", "/v2/models/net/versions/1")[2]
    assert about["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert about["outputs"][0]["shape"] == [-1, 3]
    config = ask("GET", "/v2/models/net/config")[2]
    assert config["max_batch_size"] == 4
    assert config["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}]
    rows = ask("POST", "/v2/repository/index", {})[2]
    assert {"name": "echo", "version": "1", "state": "READY", "reason": ""} in rows


def test_json_and_binary_data(ask: Ask) -> None:
    document = {"id": "7", "inputs": [tensor()]}
    status, _, found = ask("POST", "/v2/models/echo/infer", document)
    assert status == 200
    assert found["id"] == "7"
    assert found["outputs"] == [tensor(name="y")]

    given = {**tensor(), "parameters": {"binary_data_size": X.nbytes}}
    del given["data"]
    wanted = {"name": "y", "parameters": {"binary_data": True}}
    for more in ({"outputs": [wanted]}, {"parameters": {"binary_data_output": True}}):
        body, headers = binary({"inputs": [given], **more}, X.tobytes())
        status, got, raw = ask("POST", "/v2/models/echo/infer", body, headers)
        assert status == 200
        length = int(got["inference-header-content-length"])
        assert json.loads(raw[:length])["outputs"][0]["parameters"]["binary_data_size"] == X.nbytes
        assert raw[length:] == X.tobytes()


def test_compressed_requests(ask: Ask) -> None:
    body = gzip.compress(json.dumps({"inputs": [tensor()]}).encode())
    headers = {"Content-Encoding": "gzip"}
    assert ask("POST", "/v2/models/echo/infer", body, headers)[0] == 200
    assert ask("POST", "/v2/models/echo/infer", body[:-9], headers)[0] == 400
    bomb = gzip.compress(bytes(64 << 20))
    assert ask("POST", "/v2/models/echo/infer", bomb, headers)[0] == 413


def test_strings(ask: Ask) -> None:
    given = {"name": "s", "datatype": "BYTES", "shape": [2], "data": ["ab", "ü"]}
    found = ask("POST", "/v2/models/words/infer", {"inputs": [given]})[2]["outputs"]
    assert [o["data"] for o in found] == [[2, 2], ["AB", "ü"]]


def test_results_are_the_models_own_and_nothing_compiles(
    ask: Ask, server: Server, saved: tuple[str, paddle.nn.Layer]
) -> None:
    generator = np.random.default_rng(0)
    inputs = [generator.normal(size=(n, 4)).astype(np.float32) for n in (1, 2, 3, 4)]
    wanted = [saved[1](paddle.to_tensor(x)).numpy() for x in inputs]
    model: Any = server.models.get("net")._model
    ((_, engine),) = model._predictor._shared.engines.values()
    programs = engine.compiled
    with profiler.count_compiles() as compiles:
        for x, want in zip(inputs, wanted, strict=True):
            found = ask("POST", "/v2/models/net/infer", {"inputs": [tensor(x)]})[2]["outputs"][0]
            assert found["shape"] == [len(x), 3]
            np.testing.assert_allclose(
                np.reshape(found["data"], (-1, 3)), want, rtol=1e-5, atol=1e-6
            )
    assert compiles[0] == 0
    assert engine.compiled == programs == 3  # for 1, 2 and 4 rows


def test_a_python_model_calls_another(ask: Ask) -> None:
    found = ask("POST", "/v2/models/twice/infer", {"inputs": [tensor()]})[2]["outputs"][0]
    assert found["data"] == (2 * X).reshape(-1).tolist()


def test_statistics(ask: Ask) -> None:
    before = ask("GET", "/v2/models/echo/stats")[2]["model_stats"][0]
    ask("POST", "/v2/models/echo/infer", {"inputs": [tensor()]})
    after = ask("GET", "/v2/models/echo/stats")[2]["model_stats"][0]
    assert after["inference_count"] == before["inference_count"] + 2
    assert after["execution_count"] == before["execution_count"] + 1
    success = after["inference_stats"]["success"]
    assert success["count"] == before["inference_stats"]["success"]["count"] + 1
    assert success["ns"] > 0
    assert len(ask("GET", "/v2/models/stats")[2]["model_stats"]) >= 4
    assert b'bireme_rows_total{model="echo",version=' in ask("GET", "/metrics")[2]


def test_loading_and_unloading(ask: Ask) -> None:
    assert ask("POST", "/v2/repository/models/words/unload", {})[0] == 200
    assert ask("GET", "/v2/models/words/ready")[0] == 503
    assert ask("POST", "/v2/models/words/infer", {"inputs": []})[0] == 503
    assert ask("GET", "/v2/health/ready")[0] == 200
    assert ask("POST", "/v2/repository/models/words/load")[0] == 200
    assert ask("GET", "/v2/models/words/ready")[0] == 200
    assert ask("POST", "/v2/repository/models/none/load")[0] == 404
    config = {"parameters": {"config": "{}"}}
    assert ask("POST", "/v2/repository/models/words/load", config)[0] == 400


@pytest.mark.parametrize(
    "document",
    [
        {}, [], {"inputs": {}}, {"inputs": [1]}, {"inputs": [{}]}, {"inputs": [tensor(), tensor()]},
        {"inputs": [tensor(name="z")]}, {"inputs": [tensor(datatype="FP64")]},
        {"inputs": [tensor(X[:, :3])]}, {"inputs": [tensor(X[0])]}, {"inputs": [tensor(X[:0])]},
        {"inputs": [tensor(np.zeros((5, 4), np.float32))]},
        {"inputs": [{**tensor(), "shape": [1, 99999999999]}]},
        {"inputs": [{**tensor(), "parameters": {"binary_data_size": 8}}]},
        {"inputs": [{**tensor(), "parameters": {"shared_memory_region": "a"}}]},
        {"inputs": [tensor()], "outputs": [{"name": "none"}]},
        {"inputs": [tensor()], "outputs": [{"name": "y", "parameters": {"classification": 2}}]},
        {"inputs": [tensor()], "parameters": {"sequence_id": 3}},
        {"inputs": [tensor()], "parameters": {"timeout": -1}},
        {"inputs": [tensor()], "parameters": {"priority": "high"}},
        {"inputs": [tensor()], "parameters": 3}, {"inputs": [tensor()], "id": 3},
    ],
)  # fmt: skip
def test_wrong_requests_are_the_clients_fault(ask: Ask, document: Any) -> None:
    status, _, found = ask("POST", "/v2/models/echo/infer", document)
    assert status == 400
    assert isinstance(found["error"], str)


def test_wrong_addresses_methods_and_bodies(ask: Ask) -> None:
    for method, path, wanted in (
        ("GET", "/v2/models/none", 404), ("GET", "/v2/models/echo/versions/9", 404),
        ("GET", "/v2/nothing", 404), ("GET", "/nothing", 404),
        ("GET", "/v2/models/echo/infer", 405),
        ("PUT", "/v2", 405), ("POST", "/v2/health/live", 405), ("GET", "/v2/models//ready", 404),
    ):  # fmt: skip
        assert ask(method, path)[0] == wanted, path
    assert ask("POST", "/v2/models/echo/infer", b"{")[0] == 400
    assert ask("POST", "/v2/models/echo/infer", b"[" * 5000)[0] == 400
    assert ask("POST", "/v2/models/echo/infer", bytes(2 << 20))[0] == 413
    for length in ("x", "-1", "0", "999"):
        headers = {"Inference-Header-Content-Length": length}
        assert ask("POST", "/v2/models/echo/infer", b"{}", headers)[0] == 400
    assert ask("POST", "/v2/models/echo/infer", b"{}", {"Content-Encoding": "br"})[0] == 400


def test_a_model_that_raises_says_so_and_the_others_go_on(ask: Ask) -> None:
    status, _, found = ask("POST", "/v2/models/broken/infer", {"inputs": [tensor()]})
    assert (status, found["error"]) == (500, "'broken' failed: KeyError: 'inside'")
    assert ask("POST", "/v2/models/echo/infer", {"inputs": [tensor()]})[0] == 200


def test_request_ids_and_the_names_of_this_server(ask: Ask, server: Server) -> None:
    assert ask("GET", "/v2", headers={"X-Request-ID": "mine"})[1]["x-request-id"] == "mine"
    assert len(ask("GET", "/v2", headers={"X-Request-ID": "x" * 200})[1]["x-request-id"]) == 32
    assert ask("GET", "/v2", headers={"Host": "evil.example"})[0] == 403
    assert ask("GET", "/v2", headers={"Origin": "http://evil.example"})[0] == 403
    assert ask("GET", "/v2", headers={"Origin": f"http://127.0.0.1:{server.port}"})[0] == 200


def test_headers_have_a_limit(server: Server) -> None:
    for piece in (b"A: " + b"a" * 10000 + b"\r\n", b"A: b\r\n" * 2000):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
            client.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n" + piece)
            try:
                answer = client.recv(100)
            except ConnectionResetError:
                continue
            assert answer.startswith(b"HTTP/1.1 431")


def test_a_client_that_has_gone_is_forgotten(server: Server, ask: Ask) -> None:
    body = json.dumps({"inputs": [tensor()]}).encode()
    head = b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    for cut in (10, len(body) // 2):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
            client.sendall(head % len(body) + body[:cut])
    assert ask("POST", "/v2/models/echo/infer", {"inputs": [tensor()]})[0] == 200
    end = time.monotonic() + 60
    while any(v.waiting != (0, 0) for v in server.models.all()):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_page_and_its_files(ask: Ask) -> None:
    for path, kind in (
        ("/", "text/html"),
        ("/page.js", "text/javascript"),
        ("/page.css", "text/css"),
    ):
        status, headers, body = ask("GET", path)
        assert status == 200
        assert headers["content-type"].startswith(kind)
        assert len(body) > 200
        assert b"http://" not in body  # nothing from elsewhere
        assert b"https://" not in body
