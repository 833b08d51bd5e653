"""Load, overload, swaps, tokens and the end: with gates instead of clocks."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme.core.errors import BiremeError, InvalidArgument
from bireme.serving import Options, Server, Settings
from bireme.serving.cli import shapes_in, table
from tests.serving.conftest import asker
from tests.serving.models import Echo, Gate
from tests.serving.test_rest import X, tensor

INFER = {"inputs": [tensor()]}


def save(layer: paddle.nn.Layer, path: Path, shape: list[int | None]) -> str:
    layer.eval()
    paddle.jit.save(layer, str(path), [paddle.static.InputSpec(shape, name="x")])
    return str(path)


def until(condition: Any) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_requests_that_come_while_a_batch_runs_share_the_next() -> None:
    gate = Gate()
    with Server({"gate": gate}, Settings(port=0), Options(max_batch=8)) as server:
        ask = asker(server)
        with ThreadPoolExecutor(4) as threads:
            first = threads.submit(ask, "POST", "/v2/models/gate/infer", INFER)
            gate.entered.acquire(timeout=60)
            others = [threads.submit(ask, "POST", "/v2/models/gate/infer", INFER) for _ in range(3)]
            until(lambda: server.models.get("gate").waiting[0] == 3)
            gate.open.set()
            answers = [f.result(60) for f in [first, *others]]
    assert [a[0] for a in answers] == [200] * 4
    assert all(a[2]["outputs"][0]["data"] == (2 * X).reshape(-1).tolist() for a in answers)
    assert gate.rows == [2, 6]


def test_overload_of_one_model_is_refused_and_starves_no_other() -> None:
    gate = Gate()
    models = {"gate": gate, "echo": Echo}
    with Server(models, Settings(port=0), Options(max_batch=1, queue_requests=2)) as server:
        ask = asker(server)
        one = {"inputs": [tensor(X[:1])]}
        with ThreadPoolExecutor(3) as threads:
            waiting = [threads.submit(ask, "POST", "/v2/models/gate/infer", one)]
            gate.entered.acquire(timeout=60)
            waiting += [threads.submit(ask, "POST", "/v2/models/gate/infer", one) for _ in "ab"]
            until(lambda: server.models.get("gate").waiting[0] == 2)
            status, headers, _ = ask("POST", "/v2/models/gate/infer", one)
            assert status == 429
            assert int(headers["retry-after"]) >= 1
            assert ask("POST", "/v2/models/echo/infer", one)[0] == 200
            late = {**one, "parameters": {"timeout": 1}}
            assert ask("POST", "/v2/models/gate/infer", late)[0] in (429, 504)
            gate.open.set()
            assert [f.result(60)[0] for f in waiting] == [200] * 3
    assert gate.rows == [1, 1, 1]


def test_a_request_whose_client_hangs_up_never_runs() -> None:
    gate = Gate()
    with Server({"gate": gate}, Settings(port=0), Options(max_batch=2)) as server:
        ask = asker(server)
        body = json.dumps(INFER)
        with ThreadPoolExecutor(1) as threads:
            first = threads.submit(ask, "POST", "/v2/models/gate/infer", INFER)
            gate.entered.acquire(timeout=60)
            gone = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            gone.request("POST", "/v2/models/gate/infer", body)
            until(lambda: server.models.get("gate").waiting[0] == 1)
            gone.close()
            until(lambda: server.models.get("gate").waiting[0] == 0)
            gate.open.set()
            assert first.result(60)[0] == 200
    assert gate.rows == [2]


def test_versions_swap_and_a_failing_one_leaves_the_old(tmp_path: Path) -> None:
    def version(number: int, scale: float) -> None:
        layer = paddle.nn.Linear(4, 1)
        layer.weight.set_value(np.full((4, 1), scale, np.float32))
        layer.bias.set_value(np.zeros(1, np.float32))
        (tmp_path / "m" / str(number)).mkdir(parents=True)
        save(layer, tmp_path / "m" / str(number) / "net", [None, 4])

    version(1, 1.0)
    (tmp_path / "m" / "serve.toml").write_text("max_batch = 2\n")
    settings = Settings(port=0, model_control=True)
    with Server({"m": str(tmp_path / "m")}, settings) as server:
        ask = asker(server)

        def answer() -> tuple[str, list[float]]:
            found = ask("POST", "/v2/models/m/infer", INFER)[2]
            return found["model_version"], found["outputs"][0]["data"]

        assert answer() == ("1", [6.0, 22.0])
        assert server.models.get("m").sizes == (1, 2)
        (tmp_path / "m" / "2").mkdir()
        (tmp_path / "m" / "2" / "net.json").write_text("{}")
        status, _, found = ask("POST", "/v2/repository/models/m/load")
        assert status == 400
        assert "could not be loaded" in found["error"]
        row = ask("POST", "/v2/repository/index", {})[2][0]
        assert (row["version"], row["state"]) == ("1", "READY")
        assert row["reason"]
        assert answer() == ("1", [6.0, 22.0])
        (tmp_path / "m" / "2" / "net.json").unlink()
        (tmp_path / "m" / "2").rmdir()
        version(3, 2.0)
        wrong: list[Any] = []
        stop = threading.Event()

        def load() -> None:
            while not stop.is_set():
                number, data = answer()
                if data != {"1": [6.0, 22.0], "3": [12.0, 44.0]}[number]:
                    wrong.append((number, data))

        thread = threading.Thread(target=load)
        thread.start()
        assert ask("POST", "/v2/repository/models/m/load")[0] == 200
        assert answer() == ("3", [12.0, 44.0])
        stop.set()
        thread.join()
        assert wrong == []


class Mixing(paddle.nn.Layer):
    """Rows that know each other: nothing may be added to a batch."""

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return x - x.mean(0, keepdim=True)


def test_rows_that_know_each_other_are_not_batched(tmp_path: Path) -> None:
    path = save(Mixing(), tmp_path / "mixing", [None, 4])
    with Server({"m": path}, Settings(port=0), Options(max_batch=4)) as server:
        assert not server.models.get("m").signature.batched
        found = server.predict("m", x=X)
        np.testing.assert_allclose(next(iter(found.values())), X - X.mean(0), rtol=1e-6)
        status, _, answer = asker(server)(
            "POST", "/v2/models/m/infer", {"inputs": [tensor(np.zeros((3, 4), np.float32))]}
        )
        assert status == 400
        assert "was compiled for" in answer["error"]


def test_open_sizes_are_declared(tmp_path: Path) -> None:
    path = save(paddle.nn.ReLU(), tmp_path / "relu", [None, 2, None])
    server = Server({"m": path}, Settings(port=0))
    with pytest.raises(InvalidArgument, match="--shape x="):
        server.load()
    shapes = shapes_in(["x=2x3", "x=2x5"])
    with Server({"m": path}, Settings(port=0), Options(max_batch=2, shapes=shapes)) as server:
        for size in (3, 5):
            x = np.ones((1, 2, size), np.float32)
            assert next(iter(server.predict("m", x=x).values())).shape == (1, 2, size)
        with pytest.raises(BiremeError, match="was compiled for"):
            server.predict("m", x=np.ones((1, 2, 4), np.float32))


def test_tokens(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("# ours\nsecret\n")
    settings = Settings(port=0, tokens=str(tmp_path / "tokens"))
    with Server({"echo": Echo}, settings) as server:
        ask = asker(server)
        assert ask("GET", "/v2/health/live")[0] == 200
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
            assert ask("GET", "/v2", headers=header)[0] == 401
            assert ask("GET", "/metrics", headers=header)[0] == 401
        good = {"Authorization": "Bearer secret"}
        assert ask("POST", "/v2/models/echo/infer", INFER, good)[0] == 200
        assert ask("POST", "/v2/repository/models/echo/load", {}, good)[0] == 403


def test_the_access_log(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level("INFO", "bireme.serving.access"),
        Server({"echo": Echo}, Settings(port=0, access_log=True)) as server,
    ):
        asker(server)("POST", "/v2/models/echo/infer", INFER, {"X-Request-ID": "log me"})
    line = json.loads(caplog.messages[0])
    assert (line["id"], line["model"], line["status"]) == ("log me", "echo", 200)


def test_names_ports_and_options_are_checked(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "serve.toml").write_text("max_bach = 2\n")
    with pytest.raises(InvalidArgument, match="max_bach"):
        Server({"m": str(tmp_path / "m")}).load()
    with pytest.raises(InvalidArgument, match="two models"):
        Server(["a/net", "b/net"])
    with pytest.raises(InvalidArgument, match="certificate"):
        Settings(certificate="x")
    with pytest.raises(BiremeError):
        Server({"m": str(tmp_path / "nothing")}).load()
    with pytest.raises(InvalidArgument, match="3x224x224"):
        shapes_in(["x"])


PROGRAM = """
import sys, numpy as np
sys.path.insert(0, sys.argv[1])
from bireme.serving import Server, Settings
from tests.serving.models import Echo
server = Server({"echo": Echo}, Settings(port=0, lame_duck=0.3))
server.load()
import threading, time
def tell():
    while not server.lifecycle.started: time.sleep(0.01)
    print(server.port, flush=True)
threading.Thread(target=tell).start()
server.run()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_sigterm_answers_every_request_that_was_sent_whole() -> None:
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(root)], stdout=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    port = int(process.stdout.readline())
    wrong: list[str] = []
    answered = threading.Semaphore(0)

    def client() -> None:
        body = json.dumps(INFER)
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                connection.connect()
            except ConnectionRefusedError:
                return
            try:
                while True:
                    connection.request("POST", "/v2/models/echo/infer", body)
                    answer = connection.getresponse()
                    if json.loads(answer.read())["outputs"] != [tensor(name="y")]:
                        wrong.append("another answer")
                    answered.release()
                    if answer.getheader("Connection") == "close":
                        break
            except Exception as e:
                wrong.append(repr(e))
                return
            finally:
                connection.close()

    threads = [threading.Thread(target=client) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        assert answered.acquire(timeout=60)
    process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join(60)
    assert process.wait(60) == 0
    process.stdout.close()
    assert wrong == []


def test_the_command_says_what_is_served() -> None:
    with Server({"echo": Echo}, Settings(port=0, grpc_port=0), Options(max_batch=4)) as server:
        text = table(server)
    assert f"HTTP  {server.url}/" in text
    assert "echo   1        1/2/4  x FP32[-1, 4]" in text
