"""The ASGI application: who may ask, which handler answers, what is logged."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson

from bireme.serving.errors import (
    ClientGone,
    NotFound,
    Overloaded,
    ServingError,
    WrongMethod,
)
from bireme.serving.http import Http, Receive, Response, Send, json_response, send_response
from bireme.serving.lifecycle import Lifecycle
from bireme.serving.metrics import Metrics
from bireme.serving.settings import Settings
from bireme.serving.tokens import Names, Tokens

logger = logging.getLogger("bireme.serving")
access = logging.getLogger("bireme.serving.access")

Handler = Callable[[Http], Awaitable[Response]]

# What load balancers ask without a token, and the page, which has no data of its own.
_OPEN = ("/v2/health/live", "/v2/health/ready", "/", "/page.js", "/page.css")
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class App:
    """The server as an ASGI application. `handlers` are by the first part of a path."""

    def __init__(
        self,
        settings: Settings,
        lifecycle: Lifecycle,
        metrics: Metrics,
        handlers: Mapping[str, Handler],
    ):
        self._settings, self._lifecycle, self._metrics = settings, lifecycle, metrics
        self._handlers = handlers
        self._tokens = Tokens(settings.tokens)
        self._names = Names(settings.host, settings.hosts)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        start = time.perf_counter()
        http = Http(scope, receive, self._settings)
        try:
            await self._respond(http, send, start)
        finally:
            http.forget()

    async def _respond(self, http: Http, send: Send, start: float) -> None:
        response = await self._answer(http)
        response.headers["X-Request-ID"] = http.id
        if self._lifecycle.draining or (not http.read and http.method != "GET"):
            response.headers["Connection"] = "close"
        size, status = 0, response.status
        try:
            size = await send_response(send, response, self._settings.send_seconds)
        except TimeoutError:
            status = ClientGone.status  # nothing was taken for so long: the connection is dropped
            raise
        finally:
            self._log(http, status, size, time.perf_counter() - start)

    async def _answer(self, http: Http) -> Response:
        try:
            return await self._handled(http)
        except ServingError as e:
            return _error(http, e)
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("request %s failed", http.id)
            return _error(http, ServingError(f"an error inside the server; see request {http.id}"))

    async def _handled(self, http: Http) -> Response:
        self._names.check(http.headers.get("host"), http.headers.get("origin"))
        if http.path not in _OPEN:
            self._tokens.check(http.headers.get("authorization"))
        if http.method not in ("GET", "POST"):
            raise WrongMethod(f"{http.method[:20]!r} is not used here")
        first = http.path.split("/", 2)[1]
        if http.path == "/metrics":
            return Response(self._metrics.text(), kind=_TEXT)
        handler = self._handlers.get(first)
        if handler is None:
            raise NotFound(f"there is nothing at {http.path[:200]!r}")
        return await handler(http)

    def _log(self, http: Http, status: int, size: int, seconds: float) -> None:
        self._metrics.answered("http", str(status), seconds)
        if not self._settings.access_log:
            return
        client = http.scope.get("client") or ("", 0)
        line = {
            "time": time.time(),
            "id": http.id,
            "client": client[0],
            "method": http.method[:20],
            "path": http.path[:500],
            "model": http.model[:200],
            "status": status,
            "bytes": size,
            "seconds": round(seconds, 6),
        }
        access.info(orjson.dumps(line).decode())


def _error(http: Http, error: ServingError) -> Response:
    if http.path.startswith("/v1/"):
        kind = "invalid_request_error" if error.status < 500 else "server_error"
        body: Any = {"message": str(error), "type": kind, "param": None, "code": error.code.lower()}
    else:
        body = str(error)
    response = json_response({"error": body}, error.status)
    if isinstance(error, Overloaded):
        response.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    return response


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
