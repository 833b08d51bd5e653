"""Strangers that know a job's ports and not its secret: they connect and say what they like."""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from bireme.distributed import door

_HELD = 250  # silent connections per port


def _silent(sock: socket.socket) -> None:
    return


def _random_bytes(sock: socket.socket) -> None:
    sock.sendall(random.randbytes(random.randrange(1, 4096)))


def _huge_length(sock: socket.socket) -> None:
    sock.sendall(struct.pack("<Q", 1 << 62) + bytes(100))
    sock.sendall(struct.pack("!i", 0x7FFFFFFF) + bytes(100))


def _empty_messages(sock: socket.socket) -> None:
    sock.sendall(bytes(8))


def _a_pickle(sock: socket.socket) -> None:
    sock.sendall(struct.pack("<Q", 30) + b"cos\nsystem\n(S'touch hacked'\ntR.")


def _half_an_introduction(sock: socket.socket) -> None:
    sock.sendall(door._INTRODUCTION.pack(b"", b"post", 1, b"")[:-5])


def _a_wrong_proof(sock: socket.socket) -> None:
    sock.sendall(door._INTRODUCTION.pack(os.urandom(32), b"post", 1, os.urandom(32)))


def _what_it_heard(sock: socket.socket) -> None:
    heard = sock.recv(40)
    sock.sendall((heard * 3)[:88])


def _reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.sendall(b"ab")
    sock.close()


def _http(sock: socket.socket) -> None:
    sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + random.randbytes(64))


def _slow(sock: socket.socket) -> None:
    for byte in os.urandom(8):
        sock.sendall(bytes((byte,)))
        time.sleep(0.05)


HABITS: tuple[Callable[[socket.socket], None], ...] = (
    _silent, _random_bytes, _huge_length, _empty_messages, _a_pickle, _half_an_introduction,
    _a_wrong_proof, _what_it_heard, _reset, _http, _slow,
)  # fmt: skip


class Strangers:
    """Keep attacking all ports that `ports` finds, until `stop`."""

    def __init__(self, ports: Callable[[], list[int]], habits: Any = HABITS, pause: float = 0.0):
        self.count = 0
        self.met: set[int] = set()
        self._ports, self._habits, self._pause = ports, habits, pause
        self._held: list[socket.socket] = []
        self._over = threading.Event()
        self._known: list[int] = []
        self._threads = [threading.Thread(target=self._go_on, daemon=True) for _ in range(8)]
        for thread in self._threads:
            thread.start()

    def _go_on(self) -> None:
        while not self._over.is_set():
            if threading.current_thread() is self._threads[0] or not self._known:
                self._known = self._ports()
            for port in self._known * 5:
                self._call(port)
            self._over.wait(self._pause)

    def _call(self, port: int) -> None:
        try:
            sock = socket.create_connection(("127.0.0.1", port), timeout=5)
        except OSError:
            return
        self.count += 1
        self.met.add(port)
        with suppress(OSError):
            sock.settimeout(0.5)
            random.choice(self._habits)(sock)
        self._held.append(sock)
        while len(self._held) > _HELD * max(1, len(self.met)):
            with suppress(IndexError):
                self._held.pop(0).close()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        for sock in self._held:
            sock.close()


def ports_of(pid: int) -> list[int]:
    """The ports at which a process and its children listen."""
    inodes = set()
    for each in family(pid):
        with suppress(OSError):
            for name in os.listdir(f"/proc/{each}/fd"):
                with suppress(OSError):
                    link = os.readlink(f"/proc/{each}/fd/{name}")
                    if link.startswith("socket:["):
                        inodes.add(link[8:-1])
    ports = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}") as file:
            for line in file.readlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and fields[9] in inodes:
                    ports.add(int(fields[1].rpartition(":")[2], 16))
    return sorted(ports)


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError), open(f"/proc/{entry}/stat") as stat:
                parent = int(stat.read().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found
