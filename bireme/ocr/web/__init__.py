"""`bireme ocr serve`: a page on this machine that reads the files that are dropped on it.

It listens on 127.0.0.1 only, loads nothing from elsewhere, and keeps nothing.
"""

from __future__ import annotations

import base64
import io
import json
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from bireme.ocr.errors import OcrError
from bireme.ocr.image import package
from bireme.ocr.reader import Reader
from bireme.ocr.result import Document
from bireme.ocr.write.picture import images_of

HOST = "127.0.0.1"
MAX_BYTES = 64 << 20  # of a dropped file
MAX_PAGES = 50  # that are shown
SHOWN_SIDE = 1600  # pixels of a page's picture
SECONDS = 60  # without a byte from the browser
AT_ONCE = 2  # files that are read at the same time
FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Server(ThreadingHTTPServer):
    """The server; `reader` reads, a few files at once."""

    daemon_threads = True

    def __init__(self, reader: Reader, port: int):
        self.reader = reader
        self.turns = threading.BoundedSemaphore(AT_ONCE)
        super().__init__((HOST, port), _Handler)

    @property
    def hosts(self) -> tuple[str, str]:
        """What a browser may call this server. Other names were made to lead here by others."""
        port = self.server_address[1]
        return f"{HOST}:{port}", f"localhost:{port}"


class _Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = SECONDS

    def do_GET(self) -> None:
        found = FILES.get(self.path)
        if not self._is_for_us():
            return
        if found is None:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "there is no such page"})
            return
        name, kind = found
        self._send(HTTPStatus.OK, (Path(__file__).parent / name).read_bytes(), kind)

    def do_POST(self) -> None:
        if not self._is_for_us():
            return
        # A page of another site cannot set this header without asking, and is not answered.
        if self.path != "/read" or self.headers.get("X-Bireme") != "read":
            self._answer(HTTPStatus.NOT_FOUND, {"error": "POST a file's bytes to /read"})
            return
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            self._answer(HTTPStatus.LENGTH_REQUIRED, {"error": "Content-Length is missing"})
            return
        if not 0 <= length <= MAX_BYTES:
            self.close_connection = True
            self._answer(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                {"error": f"at most {MAX_BYTES >> 20} MiB are read"},
            )
            return
        data = self.rfile.read(length)
        if len(data) != length:
            self.close_connection = True
            return
        with self.server.turns:
            try:
                made = shown(self.server.reader, data)
            except OcrError as e:
                self._answer(HTTPStatus.UNPROCESSABLE_ENTITY, {"error": e.reason})
                return
        self._answer(HTTPStatus.OK, made)

    def _is_for_us(self) -> bool:
        if self.headers.get("Host") in self.server.hosts:
            return True
        self._answer(HTTPStatus.FORBIDDEN, {"error": f"open http://{self.server.hosts[0]}/"})
        return False

    def _answer(self, status: HTTPStatus, made: dict[str, Any]) -> None:
        self._send(status, json.dumps(made).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged: what people read is theirs."""


def shown(reader: Reader, data: bytes) -> dict[str, Any]:
    """What the page shows of a file: pictures, boxes, Markdown."""
    found = []
    for page, pixels in zip(reader.pages(data), images_of(data), strict=False):
        if len(found) == MAX_PAGES:
            break
        found.append((page, pixels))
    pages = [
        {
            "picture": _picture(pixels),
            "width": page.width,
            "height": page.height,
            "lines": [
                {"points": line.polygon, "text": line.text, "score": round(line.score, 3)}
                for line in page.lines
            ],
            "markdown": page.markdown,
            "html": page.html,
        }
        for page, pixels in found
    ]
    markdown = Document("", tuple(page for page, _ in found)).markdown
    return {"pages": pages, "markdown": markdown}


def _picture(pixels: np.ndarray) -> str:
    """A page as a data: address, small enough for a browser."""
    image = package("PIL.Image").fromarray(pixels)
    image.thumbnail((SHOWN_SIDE, SHOWN_SIDE))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def serve(reader: Reader, port: int) -> int:
    """Serve until Ctrl-C; returns the exit status."""
    try:
        server = Server(reader, port)
    except (OSError, OverflowError) as e:
        raise OcrError(f"port {port}", f"cannot be listened on: {e}") from None
    with server:
        sys.stderr.write(f"Open http://{server.hosts[0]}/ and drop a file. Ctrl-C ends it.\n")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0
