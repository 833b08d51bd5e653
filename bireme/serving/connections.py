"""HTTP connections with limits: how many, how large headers are, how long they may take."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bireme.serving.settings import Settings

_REFUSALS = {
    431: b"Request Header Fields Too Large",
    408: b"Request Timeout",
    503: b"Service Unavailable",
}


def limited(settings: Settings) -> type[HttpToolsProtocol]:
    """Uvicorn's protocol with the limits of these settings."""

    class Limited(HttpToolsProtocol):
        _headers = 0
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > settings.connections:
                self._refuse(503)
                return
            self._expect_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            if self.cycle is None or self.cycle.response_complete:
                # Between requests: what comes is headers, in however small pieces.
                self._headers += len(data)
                if self._timer is None:
                    self._expect_headers()
                if self._headers > settings.header_bytes and not self._has_headers(data):
                    self._refuse(431)
                    return
            super().data_received(data)

        def _has_headers(self, data: bytes) -> bool:
            """Whether the headers end within the limit; a body may follow in the same piece."""
            room = settings.header_bytes - (self._headers - len(data))
            return data.find(b"\r\n\r\n", 0, max(room, 0) + 4) >= 0

        def on_headers_complete(self) -> None:
            self._stop_timer()
            self._headers = 0
            super().on_headers_complete()

        def _expect_headers(self) -> None:
            self._timer = self.loop.call_later(settings.receive_seconds, self._refuse, 408)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _refuse(self, status: int) -> None:
            self._stop_timer()
            if self.transport.is_closing():
                return
            line = b"HTTP/1.1 %d %s\r\n" % (status, _REFUSALS[status])
            self.transport.write(line + b"connection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()

    return Limited
