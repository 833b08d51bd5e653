"""Who may ask: bearer tokens from a file, and names that a browser may call this server by."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Collection

from bireme.core.errors import InvalidArgument
from bireme.serving.errors import Forbidden, Unauthorized


class Tokens:
    """The tokens in a file, one per line; lines that begin with # are comments."""

    def __init__(self, path: str | None):
        self._hashes: frozenset[bytes] | None = None
        if path is None:
            return
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file.read(1 << 20).splitlines()]
        tokens = [line for line in lines if line and not line.startswith("#")]
        if not tokens:
            raise InvalidArgument(f"[serve] {path} holds no token")
        # Hashes are compared, so that the time a comparison takes says nothing about a token.
        self._hashes = frozenset(_hash(t) for t in tokens)

    @property
    def wanted(self) -> bool:
        """Whether a token is needed at all."""
        return self._hashes is not None

    def check(self, header: str | None) -> None:
        """Raise unless the Authorization header has a known token."""
        if self._hashes is None:
            return
        kind, _, token = (header or "").partition(" ")
        if kind.lower() != "bearer" or _hash(token.strip()) not in self._hashes:
            raise Unauthorized("a token is needed: Authorization: Bearer ...")


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class Names:
    """The names that clients may call a server by: any, unless it listens on a loopback address."""

    def __init__(self, host: str, more: Collection[str]):
        self._checked = is_loopback(host)
        self._names = {"localhost", host.lower(), *[n.lower() for n in more]}

    def check(self, host: str | None, origin: str | None) -> None:
        """Raise for names that lead here by somebody else's doing, and for other sites' pages."""
        if self._checked and host is not None:
            name = _name(host)
            if name not in self._names and not is_loopback(name):
                raise Forbidden(f"this server is not called {name[:100]!r}")
        if origin is not None and origin.partition("://")[2] != (host or ""):
            raise Forbidden("pages of other sites are not answered")


def _name(host: str) -> str:
    """A Host header without its port."""
    name = host.lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0]


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine's own."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
