"""Bytes from one process of a job to another: what send/recv, objects and calls travel over.

Each process listens at its endpoint. Who connects has to prove knowledge of the job's secret
(`BIREME_JOB_SECRET`, made by the launcher) before anything it says is read (door.py): objects are
pickled, and unpickling runs code. A reader per process sorts messages into mailboxes, so a sender
never waits for a receiver.
"""

from __future__ import annotations

import io
import os
import pickle
import queue
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core import dtype as dt
from bireme.distributed.door import SECRET, Door, Link, connect
from bireme.distributed.environment import ParallelEnv
from bireme.distributed.job import DistributedError, PartnerLost, is_local
from bireme.io import by_value

if TYPE_CHECKING:
    from bireme.distributed.communication.group import Group

_POLL = 0.5
_PURPOSE = b"post"


def secret(what: str) -> bytes:
    """The job's secret, which no process outside of it knows."""
    found = os.environ.get(SECRET, "")
    if len(found) < 16:
        raise DistributedError(
            f"[{what}] processes exchange tensors and objects only with those that share a secret. "
            "Start the program with `python -m bireme.distributed.launch`, which makes one, or set "
            f"{SECRET} to the same random text of at least 16 characters on all of them"
        )
    return found.encode()


class _Pickler(pickle.Pickler):
    """Knows where the library's functions are: `paddle.add` is not what its module holds."""

    def reducer_override(self, obj: object) -> Any:
        if isinstance(obj, FunctionType):
            return by_value.library_name(obj) or NotImplemented
        return NotImplemented


def pickled(obj: object) -> bytes:
    """An object as bytes, for a process of the same job."""
    out = io.BytesIO()
    _Pickler(out).dump(obj)
    return out.getvalue()


def endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise DistributedError(f"an endpoint is host:port. Received: {text!r}")
    return host, int(port)


class Post:
    """This process's mailboxes and its connections to the others."""

    def __init__(self, rank: int, endpoints: list[str], key: bytes):
        self.rank, self.endpoints, self.key = rank, endpoints, key
        self.boxes: dict[tuple[int, bytes], queue.SimpleQueue[bytes]] = {}
        self.gone: dict[int, str] = {}  # ranks whose connection ended
        self.lock = threading.Lock()
        self.outgoing: dict[int, queue.SimpleQueue[Any]] = {}
        host, port = endpoint(endpoints[rank])
        address = ("127.0.0.1" if is_local(host) else host, port)
        self.door = Door(address, key, _PURPOSE, self._welcome)

    def _start(self, function: Callable[..., None], *arguments: Any) -> None:
        threading.Thread(target=function, args=arguments, daemon=True).start()

    def _welcome(self, link: Link) -> None:
        if link.rank == self.rank or not 0 <= link.rank < len(self.endpoints):
            link.close()
        else:
            self._start(self._read, link)

    def _read(self, link: Link) -> None:
        why = "it closed the connection"
        try:
            while True:
                message = link.recv_bytes()
                size = message[0] + 1
                if len(message) < size:
                    raise OSError("a message is shorter than the name of its mailbox")
                self.box(link.rank, bytes(message[1:size])).put(bytes(memoryview(message)[size:]))
        except EOFError:
            pass
        except IndexError:
            why = "it sent an empty message, which no process of the job does"
        except Exception as e:
            why = str(e) or type(e).__name__
        finally:
            self.gone[link.rank] = why
            link.close()

    def box(self, source: int, name: bytes) -> queue.SimpleQueue[bytes]:
        with self.lock:
            return self.boxes.setdefault((source, name), queue.SimpleQueue())

    def send(self, to: int, name: bytes, payload: bytes | memoryview) -> Future[None]:
        """Send in the background, in order; the Future says when it is with the system."""
        done: Future[None] = Future()
        if to == self.rank:
            self.box(to, name).put(bytes(payload))
            done.set_result(None)
            return done
        with self.lock:
            waiting = self.outgoing.get(to)
            if waiting is None:
                waiting = self.outgoing[to] = queue.SimpleQueue()
                self._start(self._write, to, waiting)
        waiting.put((name, payload, done))
        return done

    def _write(self, to: int, waiting: queue.SimpleQueue[Any]) -> None:
        link = None
        while True:
            name, payload, done = waiting.get()
            try:
                if link is None:
                    link = connect(endpoint(self.endpoints[to]), self.key, _PURPOSE, self.rank)
                link.send_bytes(bytes((len(name),)), name, payload)
                done.set_result(None)
            except Exception as e:
                if link is not None:
                    link.close()  # part of a message may be out: nothing can follow it
                done.set_exception(
                    e
                    if isinstance(e, DistributedError)
                    else DistributedError(f"[send] process {to} cannot be reached: {e}")
                )

    def receive(self, source: int, name: bytes, timeout: float | None = None) -> bytes:
        """The next message of a process; raises if it is gone without having sent one."""
        box = self.box(source, name)
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return box.get(timeout=_POLL)
            except queue.Empty:
                if source in self.gone and box.empty():
                    raise PartnerLost(
                        f"[recv] process {source} has ended: {self.gone[source]}"
                    ) from None
                if until is not None and time.monotonic() > until:
                    raise DistributedError(
                        f"[recv] nothing came from process {source} within {timeout} s"
                    ) from None


_post: Post | None = None
_post_lock = threading.Lock()


def start() -> None:
    """Listen, where the job has a secret; without one, messages are refused when they are used."""
    env = ParallelEnv()
    if len(os.environ.get(SECRET, "")) >= 16 and len(env.trainer_endpoints) == env.world_size:
        post("init_parallel_env")


def post(what: str) -> Post:
    global _post
    with _post_lock:
        if _post is None:
            env = ParallelEnv()
            key = secret(what)
            endpoints = env.trainer_endpoints
            if env.world_size == 1 and endpoints in ([], [""]):
                endpoints = ["127.0.0.1:0"]
            if len(endpoints) != env.world_size:
                raise DistributedError(
                    f"[{what}] PADDLE_TRAINER_ENDPOINTS must name host:port of all "
                    f"{env.world_size} processes. Received: {','.join(endpoints)!r}"
                )
            _post = Post(env.rank, endpoints, key)
        return _post


class Departure:
    """A message on its way."""

    def __init__(self, done: Future[None]):
        self._done = done

    def wait(self, timeout: float | None = None) -> bool:
        self._done.result(timeout)
        return True

    def is_completed(self) -> bool:
        return self._done.done()

    synchronize = wait


class Arrival:
    """A message to come; `take` is given its array, in the thread that waits for it."""

    def __init__(self, source: int, group: Group, take: Callable[[np.ndarray], None]):
        self._post = post("recv")
        self._source, self._name, self._take = source, _tensor_box(group.id), take
        self._timeout: float | None = group.timeout
        # Arrivals of one mailbox are served in the order in which they were asked for.
        line = _lines.setdefault((source, group.id), [])
        line.append(self)
        self._line = line
        self._over = False

    def wait(self, timeout: float | None = None) -> bool:
        limit = self._timeout if timeout is None else timeout
        while not self._over:
            message = self._post.receive(self._source, self._name, limit)
            self._line[0]._serve(message)
        return True

    def _serve(self, message: bytes) -> None:
        self._line.pop(0)
        self._over = True
        self._take(_unpacked(message))

    def is_completed(self) -> bool:
        while not self._over and not self._post.box(self._source, self._name).empty():
            self._line[0]._serve(self._post.receive(self._source, self._name))
        return self._over

    synchronize = wait


_lines: dict[tuple[int, int], list[Arrival]] = {}


def _tensor_box(group: int) -> bytes:
    return b"tensor %d" % group


def send_array(to: int, group: int, array: np.ndarray) -> Departure:
    """Send an array to a process; it arrives in the group's mailbox there."""
    return Departure(post("send").send(to, _tensor_box(group), packed(array)))


def packed(array: np.ndarray) -> bytes:
    """An array as its type in words, then its bytes. Nothing of it is pickled."""
    head = " ".join([dt.as_dtype(array.dtype).name, *map(str, array.shape)]).encode()
    return b"".join((struct.pack("<H", len(head)), head, np.ascontiguousarray(array).tobytes()))


def _unpacked(message: bytes) -> np.ndarray:
    (size,) = struct.unpack_from("<H", message)
    name, *shape = message[2 : 2 + size].decode().split()
    flat = np.frombuffer(message, dt.as_dtype(name).numpy, offset=2 + size)
    return flat.reshape([int(s) for s in shape])
