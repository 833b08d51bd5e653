"""The page at /: a chat with each language model, and a form for each other model."""

from __future__ import annotations

import functools
from pathlib import Path

from bireme.serving.errors import NotFound
from bireme.serving.http import Http, Response

_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


async def page(http: Http) -> Response:
    """The page's files."""
    found = _FILES.get(http.path)
    if found is None:
        raise NotFound(f"there is nothing at {http.path[:200]!r}")
    name, kind = found
    return Response(_read(name), 200, kind, dict(_HEADERS))


@functools.cache
def _read(name: str) -> bytes:
    return (Path(__file__).parent / "web" / name).read_bytes()
