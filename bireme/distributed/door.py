"""Connections that only a job's processes get.

Anybody who reaches a port may connect to it. Until the other side has proved that it knows the
job's secret, nothing that it says is interpreted: an introduction is 88 bytes, whatever they are,
and then they are right or the connection is closed. One thread serves all that have not proved it
yet, so that a silent one keeps nobody waiting; there are at most `_GUESTS` of them at a time, for
at most `_MANNERS` seconds each.

The listener says a random number; the guest answers with one of its own, with what it came for
and its rank, and with a keyed digest over all of these (HMAC-SHA256); the listener answers with
another digest. The secret itself is never sent, and no digest is good for a second time, for the
other direction or for another purpose.
"""

from __future__ import annotations

import errno
import hmac
import secrets
import selectors
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from bireme.distributed.job import DistributedError

SECRET = "BIREME_JOB_SECRET"
_MAGIC = b"bireme 1"
_NONCE = 32
_HELLO = struct.Struct(f"<8s{_NONCE}s")
_INTRODUCTION = struct.Struct(f"<{_NONCE}s16sq32s")
_REFUSED, _WELCOME = b"\x00", b"\x01"
_ANSWER = 1 + 32

_GUESTS = 128
_MANNERS = 20.0  # seconds for an introduction
_PATIENCE = 120.0  # seconds until a process that does not listen is given up
_REST = 0.1  # seconds without accepting when the system has no descriptors left
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PIECE = 1 << 26  # a message's memory is taken as it comes, not as its length says
ANY_SIZE = 1 << 40


class Link:
    """A connection to a process of the job; `rank` is the guest's, as it introduced itself."""

    def __init__(self, sock: socket.socket, rank: int):
        self._sock, self.rank = sock, rank
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # machines that vanish
        for name, seconds in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 8)):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)

    def send_bytes(self, *parts: Any) -> None:
        """One message, made of these parts."""
        views = [memoryview(p).cast("B") for p in parts]
        size = sum(v.nbytes for v in views)
        head = struct.pack("<Q", size)
        if size <= 1 << 16:
            self._sock.sendall(b"".join((head, *views)))
            return
        self._sock.sendall(head)
        for view in views:
            self._sock.sendall(view)

    def recv_bytes(self, limit: int = ANY_SIZE, timeout: float | None = None) -> bytearray:
        """The next message; EOFError when there is none to come."""
        until = None if timeout is None else time.monotonic() + timeout
        (size,) = struct.unpack("<Q", _exactly(self._sock, 8, until))
        if size > limit:
            raise OSError(f"a message of {size} bytes, where at most {limit} are expected")
        return _exactly(self._sock, size, until)

    def close(self) -> None:
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads
        self._sock.close()


def _exactly(sock: socket.socket, size: int, until: float | None) -> bytearray:
    got = bytearray(min(size, _PIECE))
    have = 0
    while have < size:
        if have == len(got):
            got += bytes(min(size - have, _PIECE))
        if until is not None:
            sock.settimeout(max(until - time.monotonic(), 0.001))
        with memoryview(got) as view:
            count = sock.recv_into(view[have:])
        if not count:
            raise EOFError("it closed the connection")
        have += count
    if until is not None:
        sock.settimeout(None)
    return got


class _Guest:
    """Somebody who has connected and has not introduced himself yet."""

    def __init__(self, sock: socket.socket, address: Any):
        self.sock, self.host = sock, address[0]
        self.nonce = secrets.token_bytes(_NONCE)
        self.said = b""
        self.until = time.monotonic() + _MANNERS


class Door:
    """Listens at an address; `welcome` is given a Link to each process that has proved to be one.

    `welcome` is called in the door's thread, which serves the next guest when it returns.
    """

    def __init__(
        self, address: tuple[str, int], key: bytes, purpose: bytes, welcome: Callable[[Link], None]
    ):
        self._key, self._purpose, self._welcome = key, purpose, welcome
        self._listener = _listener(address)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._guests: dict[socket.socket, _Guest] = {}  # oldest first
        self._rest_until = 0.0
        self._wake, woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(woken, selectors.EVENT_READ, woken)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._serve, name="bireme-door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take nobody any more; those who were welcomed stay."""
        self._wake.close()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _serve(self) -> None:
        try:
            while True:
                for found, _ in self._selector.select(self._patience()):
                    if found.data is None:
                        self._accept()
                    elif isinstance(found.data, _Guest):
                        self._hear(found.data)
                    else:
                        return found.data.close()
                self._look_at_the_clock()
        finally:
            for guest in list(self._guests.values()):
                self._drop(guest)
            self._selector.close()
            self._listener.close()

    def _patience(self) -> float | None:
        oldest = next(iter(self._guests.values()), None)
        times = [] if oldest is None else [oldest.until]
        if self._rest_until:
            times.append(self._rest_until)
        return max(min(times) - time.monotonic(), 0) if times else None

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        for guest in [g for g in self._guests.values() if g.until <= now]:
            self._drop(guest)
        if self._rest_until and self._rest_until <= now:
            self._rest_until = 0.0
            self._selector.register(self._listener, selectors.EVENT_READ, None)

    def _accept(self) -> None:
        try:
            sock, address = self._listener.accept()
        except OSError as e:  # also that of a connection which is gone again
            if e.errno in _EXHAUSTED:
                for guest in list(self._guests.values())[: max(1, len(self._guests) // 2)]:
                    self._drop(guest)
                self._selector.unregister(self._listener)
                self._rest_until = time.monotonic() + _REST
            return
        if len(self._guests) >= _GUESTS:
            crowd = Counter(g.host for g in self._guests.values()).most_common(1)[0][0]
            self._drop(next(g for g in self._guests.values() if g.host == crowd))
        guest = self._guests[sock] = _Guest(sock, address)
        try:
            sock.setblocking(False)
            self._selector.register(sock, selectors.EVENT_READ, guest)
            sock.send(_HELLO.pack(_MAGIC, guest.nonce))
        except OSError:
            self._drop(guest)

    def _hear(self, guest: _Guest) -> None:
        if self._guests.get(guest.sock) is not guest:
            return  # dropped since
        try:
            more = guest.sock.recv(_INTRODUCTION.size - len(guest.said))
        except BlockingIOError:
            return
        except OSError:
            more = b""
        guest.said += more
        if not more:
            self._drop(guest)
        elif len(guest.said) == _INTRODUCTION.size:
            self._judge(guest)

    def _judge(self, guest: _Guest) -> None:
        nonce, _, rank, proof = _INTRODUCTION.unpack(guest.said)
        about = _about(guest.nonce, nonce, self._purpose, rank)
        if not hmac.compare_digest(proof, _digest(self._key, b"guest", about)):
            with suppress(OSError):
                guest.sock.send(_REFUSED + bytes(_ANSWER - 1))
            self._drop(guest)
            return
        try:
            guest.sock.send(_WELCOME + _digest(self._key, b"door", about))
            self._selector.unregister(guest.sock)
            del self._guests[guest.sock]
            link = Link(guest.sock, rank)
        except OSError:
            self._drop(guest)
            return
        try:
            self._welcome(link)
        except Exception:  # no thread could be started for it
            link.close()

    def _drop(self, guest: _Guest) -> None:
        self._guests.pop(guest.sock, None)
        with suppress(KeyError, ValueError):
            self._selector.unregister(guest.sock)
        guest.sock.close()


def _about(door: bytes, guest: bytes, purpose: bytes, rank: int) -> bytes:
    return struct.pack(f"<{_NONCE}s{_NONCE}s16sq", door, guest, purpose, rank)


def _digest(key: bytes, who: bytes, about: bytes) -> bytes:
    return hmac.digest(key, who + b"\x00" + about, "sha256")


def _listener(address: tuple[str, int]) -> socket.socket:
    made = None
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        # Ports are held for the job by its launcher (see launch/meeting.py).
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
        made.listen(1024)
        made.setblocking(False)
    except OSError as e:
        if made is not None:
            made.close()
        raise DistributedError(f"cannot listen at {address[0]}:{address[1]}: {e}") from e
    return made


def connect(
    address: tuple[str, int],
    key: bytes,
    purpose: bytes,
    rank: int,
    patience: float | None = None,
) -> Link:
    """A connection to a process that may still be on its way."""
    until = time.monotonic() + (_PATIENCE if patience is None else patience)
    while True:
        try:
            return _introduced(address, key, purpose, rank, until)
        except (OSError, EOFError) as e:  # also one that turned guests away because of a crowd
            if time.monotonic() > until:
                raise DistributedError(
                    f"no process answers at {address[0]}:{address[1]}: {e}"
                ) from e
            time.sleep(0.05)


def _introduced(
    address: tuple[str, int], key: bytes, purpose: bytes, rank: int, until: float
) -> Link:
    until = min(until, time.monotonic() + _MANNERS)
    sock = socket.create_connection(address, max(until - time.monotonic(), 0.1))
    try:
        if sock.getsockname() == sock.getpeername():
            # The system chose the port itself as the sender's: there is no listener.
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens there")
        magic, theirs = _HELLO.unpack(_exactly(sock, _HELLO.size, until))
        if magic != _MAGIC:
            raise DistributedError(
                f"what listens at {address[0]}:{address[1]} is another program, or a job of "
                "another version"
            )
        nonce = secrets.token_bytes(_NONCE)
        about = _about(theirs, nonce, purpose, rank)
        proof = _digest(key, b"guest", about)
        sock.sendall(_INTRODUCTION.pack(nonce, purpose, rank, proof))
        answer = _exactly(sock, _ANSWER, until)
        wanted = _WELCOME + _digest(key, b"door", about)
        if not hmac.compare_digest(bytes(answer), wanted):
            raise DistributedError(
                f"the process at {address[0]}:{address[1]} does not have this job's {SECRET}"
            )
        return Link(sock, rank)
    except BaseException:
        sock.close()
        raise
