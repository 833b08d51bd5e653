"""The page in the browser, without a browser."""

from __future__ import annotations

import http.client
import io
import json
import threading
from collections.abc import Iterator

import pytest

from bireme.ocr import Reader
from bireme.ocr.web import MAX_BYTES, Server
from tests.ocr.pages import TEXT, page


@pytest.fixture(scope="module")
def server(reader: Reader) -> Iterator[Server]:
    with Server(reader, 0) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(
    server: Server, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    try:
        connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
        answer = connection.getresponse()
        assert "default-src 'self'" in str(answer.getheader("Content-Security-Policy"))
        return answer.status, answer.read()
    finally:
        connection.close()


def picture() -> bytes:
    file = io.BytesIO()
    page(TEXT).save(file, "PNG")
    return file.getvalue()


def test_the_page_and_its_parts_load_nothing_from_elsewhere(server: Server) -> None:
    for path in ("/", "/page.js", "/page.css"):
        status, body = ask(server, "GET", path)
        assert status == 200
        assert b"https://" not in body
        assert b"http://" not in body.replace(b"http://www.w3.org/2000/svg", b"")
    assert ask(server, "GET", "/../cli.py")[0] == 404


def test_a_file_is_read(server: Server) -> None:
    status, body = ask(server, "POST", "/read", picture(), X_Bireme="read")
    found = json.loads(body)
    assert status == 200
    assert [line["text"] for line in found["pages"][0]["lines"]] == list(TEXT)
    assert found["markdown"] == " ".join(TEXT)
    assert found["pages"][0]["picture"].startswith("data:image/jpeg;base64,")


def test_what_is_refused(server: Server) -> None:
    assert ask(server, "POST", "/read", b"nothing", X_Bireme="read")[0] == 422
    assert ask(server, "POST", "/read", picture())[0] == 404  # another site's page
    assert ask(server, "GET", "/", Host="evil.example")[0] == 403
    too_long = {"X_Bireme": "read", "Content_Length": str(MAX_BYTES + 1)}
    assert ask(server, "POST", "/read", b"", **too_long)[0] == 413
