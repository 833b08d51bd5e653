"""What handlers see of HTTP: a request whose body is read within limits, and a response."""

from __future__ import annotations

import asyncio
import uuid
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import orjson

from bireme.serving.errors import BadRequest, ClientGone, TooLarge, TooSlow
from bireme.serving.settings import Settings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_PIECE = 1 << 16
# A client that sends its body more slowly has `receive_seconds` for it in all: a byte now and then
# would hold its connection for ever.
_LEAST_BYTES_A_SECOND = 1024


@dataclass(slots=True)
class Response:
    """An answer: whole, or in pieces as they come."""

    body: bytes | AsyncIterator[bytes] = b""
    status: int = 200
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


def json_response(document: object, status: int = 200) -> Response:
    """A document as JSON."""
    return Response(orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY), status)


class Http:
    """One request."""

    __slots__ = ("_receive", "_settings", "_watch", "headers", "id", "method", "model", "path",
                 "read", "scope")  # fmt: skip

    def __init__(self, scope: Mapping[str, Any], receive: Receive, settings: Settings):
        self.scope, self._receive, self._settings = scope, receive, settings
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        given = self.headers.get("x-request-id", "")
        plain = 0 < len(given) <= 128 and given.isascii() and given.isprintable()
        self.id = given if plain else uuid.uuid4().hex
        self.model = ""
        self.read = False  # whether the whole body was read
        self._watch: asyncio.Task[None] | None = None

    def query(self) -> dict[str, str]:
        """The parameters after the path."""
        found = parse_qs(self.scope["query_string"].decode("latin-1"), max_num_fields=100)
        return {name: values[-1] for name, values in found.items()}

    async def body(self) -> bytes:
        """The whole body, unpacked if it is compressed."""
        limit = self._settings.body_bytes
        length = self.headers.get("content-length")
        if length is not None and (not length.isdecimal() or int(length) > limit):
            raise TooLarge(f"a body has at most {limit} bytes. Received: {length[:30]}")
        try:
            parts = await self._parts(limit)
        except TimeoutError:
            raise TooSlow("the rest of the body did not come in time") from None
        self.read = True
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        return _unpacked(whole, self.headers.get("content-encoding", "identity"), limit)

    async def _parts(self, limit: int) -> list[bytes]:
        """The body as it comes: no part may take too long, nor all of them together."""
        parts, size, more = [], 0, True
        seconds, now = self._settings.receive_seconds, asyncio.get_running_loop().time
        last = now() + seconds
        async with asyncio.timeout(seconds) as patience:
            while more:
                patience.reschedule(min(now() + seconds, last + size / _LEAST_BYTES_A_SECOND))
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone("the client has gone before its request was whole")
                part = message.get("body", b"")
                size += len(part)
                if size > limit:
                    raise TooLarge(f"a body has at most {limit} bytes")
                parts.append(part)
                more = message.get("more_body", False)
        return parts

    async def json(self) -> object:
        """The body's document; an empty body is an empty object."""
        return parsed(await self.body())

    def watch(self, gone: Callable[[], None]) -> None:
        """Call `gone` when the client closes its connection."""

        async def wait() -> None:
            while (await self._receive())["type"] != "http.disconnect":
                pass
            gone()

        self._watch = asyncio.get_running_loop().create_task(wait())

    def forget(self) -> None:
        """The answer is there: nobody needs to know whether the client waits."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None


def parsed(body: bytes | memoryview) -> object:
    """A JSON document."""
    if not len(body):
        return {}
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as e:
        raise BadRequest(f"the body is no JSON: {e}") from None


def _unpacked(body: bytes, encoding: str, limit: int) -> bytes:
    encoding = encoding.lower()
    if encoding == "identity":
        return body
    if encoding not in ("gzip", "deflate"):
        raise BadRequest(f"the Content-Encoding {encoding[:30]!r} is neither gzip nor deflate")
    machine = zlib.decompressobj(31 if encoding == "gzip" else 15)
    try:
        found = machine.decompress(body, limit + 1)
    except zlib.error as e:
        raise BadRequest(f"the body is not {encoding}: {e}") from None
    if len(found) > limit:
        raise TooLarge(f"an unpacked body has at most {limit} bytes")
    if not machine.eof:
        raise BadRequest(f"the {encoding} body is not whole")
    return found


async def send_response(send: Send, response: Response, seconds: float) -> int:
    """Send an answer; returns its bytes. A client that takes nothing for so long is left."""
    headers = [(b"content-type", response.kind.encode())]
    headers += [(n.encode("latin-1"), v.encode("latin-1")) for n, v in response.headers.items()]
    body = response.body
    if isinstance(body, bytes):
        headers.append((b"content-length", str(len(body)).encode()))
        start = {"type": "http.response.start", "status": response.status, "headers": headers}
        await send(start)
        if len(body) <= _PIECE:
            await send({"type": "http.response.body", "body": body})
            return len(body)
        for at in range(0, len(body), _PIECE):
            piece = body[at : at + _PIECE]
            last = at + _PIECE >= len(body)
            async with asyncio.timeout(seconds):
                await send({"type": "http.response.body", "body": piece, "more_body": not last})
        return len(body)
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    size = 0
    async for piece in body:
        size += len(piece)
        async with asyncio.timeout(seconds):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
    return size
