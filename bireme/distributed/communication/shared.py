"""Exchanges between processes of one machine through memory that they share.

Gloo sends what it exchanges through the kernel's sockets. Here each process of a group has a desk,
some memory that the others see: it lays its arrays there piece by piece, every process reduces a
part of what lies on all desks, and takes the results of the others. Who comes next is told by
messages (wire.py), which also put the memory's contents in order, and which a partner that is gone
does not send. A desk is a file without a name, so nothing is left behind by processes that are
killed.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bireme.distributed import job, wire
from bireme.distributed.communication.group import Group
from bireme.distributed.communication.reduce_op import ReduceOp
from bireme.distributed.environment import ParallelEnv
from bireme.distributed.job import DistributedError
from bireme.distributed.wire import endpoint

_DESK = 8 << 20  # bytes of one process's memory; it stays in the processor's cache
_TOKEN = 64  # bytes at its head, by which the others know that it is the right one

_REDUCE = {
    ReduceOp.SUM: np.add,
    ReduceOp.MAX: np.maximum,
    ReduceOp.MIN: np.minimum,
    ReduceOp.PROD: np.multiply,
    ReduceOp.AVG: np.add,
}


class Room:
    """The desks of a group's processes, as this one sees them."""

    def __init__(self, group: Group):
        self.ranks = list(group.ranks)
        self.me = group.rank
        self.timeout = group.timeout
        self._post = wire.post("exchange")
        self._box = b"room " + ",".join(map(str, self.ranks)).encode()[-200:]
        self.desks: list[np.ndarray] = []
        self._maps: list[mmap.mmap] = []
        self.lock = threading.Lock()
        self.failed = False  # an exchange ended half-way, and messages of it may be waiting
        self.is_open = self._open()
        self._left = False  # whether the others have still to take results of the last exchange

    def _open(self) -> bool:
        """Make the desks known to each other; False where they are not all on one machine."""
        token = secrets.token_bytes(_TOKEN)
        mine = -1
        said = b"none"
        with contextlib.suppress(OSError, AttributeError):
            mine = os.memfd_create("bireme", os.MFD_CLOEXEC)
            os.posix_fallocate(mine, 0, _TOKEN + _DESK)  # a lack of memory shows here
            os.pwrite(mine, token, 0)
            said = b"%d %d " % (os.getpid(), mine) + token.hex().encode()
        try:
            for rank, where in zip(self.ranks, self._all_say(said), strict=True):
                with contextlib.suppress(OSError, ValueError):
                    self._see(mine if rank == self.ranks[self.me] else -1, where)
            seen = len(self.desks) == len(self.ranks)
            return all(s == b"yes" for s in self._all_say(b"yes" if seen else b"no"))
        finally:
            if mine >= 0:
                os.close(mine)

    def _see(self, own: int, where: bytes) -> None:
        if where == b"none":
            return
        pid, number, token = where.split()
        path = f"/proc/{int(pid)}/fd/{int(number)}"
        file = os.dup(own) if own >= 0 else os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(file).st_size != _TOKEN + _DESK:
                return
            if os.pread(file, _TOKEN, 0).hex().encode() != token:
                return  # another process has that number here
            memory = mmap.mmap(file, _TOKEN + _DESK)
        finally:
            os.close(file)
        self._maps.append(memory)
        self.desks.append(np.frombuffer(memory, np.uint8, _DESK, _TOKEN))

    def _all_say(self, mine: bytes) -> list[bytes]:
        """What every process says, by rank; returns when all have said something."""
        self._say(mine)
        return self._hear(mine)

    def _say(self, mine: bytes) -> None:
        for i, rank in enumerate(self.ranks):
            if i != self.me:
                self._post.send(rank, self._box, mine)

    def _hear(self, mine: bytes) -> list[bytes]:
        return [
            mine if i == self.me else self._post.receive(rank, self._box, self.timeout)
            for i, rank in enumerate(self.ranks)
        ]

    def _next(self, what: bytes) -> None:
        """Wait until all processes have come as far as this one, in the same exchange."""
        heard = self._all_say(what)
        if len(set(heard)) > 1:
            shown = "".join(
                f"\n  process {r}: {h.decode(errors='replace')}"
                for r, h in zip(self.ranks, heard, strict=True)
            )
            raise DistributedError(
                "all processes of a group must call the same collectives in the same order, with "
                f"the same types. They called:{shown}"
            )

    def _enter(self) -> None:
        """Before this process's desk gets new contents."""
        if self._left:
            self._hear(b"")
            self._left = False

    def _leave(self) -> None:
        """This process has taken what it wanted; the others may write onto their desks."""
        self._say(b"")
        self._left = True

    def all_reduce(self, arrays: Sequence[np.ndarray], op: int, what: bytes) -> list[np.ndarray]:
        """The reduction of all processes' arrays, which are of one type."""
        kind = arrays[0].dtype
        results = [_aligned(a.shape, kind) for a in arrays]
        given, taken = [a.reshape(-1) for a in arrays], [r.reshape(-1) for r in results]
        room = _DESK // kind.itemsize
        total, count = sum(a.size for a in given), len(self.ranks)
        desks = [d[: room * kind.itemsize].view(kind) for d in self.desks]
        for start in range(0, total, room):
            size = min(room, total - start)
            ends = [size * i // count for i in range(count + 1)]
            self._enter()
            _lay(given, start, size, desks[self.me])
            self._next(what)
            own = slice(ends[self.me], ends[self.me + 1])
            # Nobody else reads this part of this process's desk.
            desks[self.me][own] = reduced([d[own] for d in desks], op)
            self._next(b"reduced")
            for i, desk in enumerate(desks):
                _take(taken, start + ends[i], desk[ends[i] : ends[i + 1]])
            self._leave()
        return results

    def _passed(
        self, flat: list[np.ndarray], what: bytes, take: Callable[[int, int, np.ndarray], None]
    ) -> None:
        """Lay bytes onto this desk, piece by piece; `take(rank, start, piece)` sees all desks'.
        A process that lays none has vectors of the same sizes."""
        total = sum(f.size for f in flat)
        for start in range(0, total, _DESK):
            size = min(_DESK, total - start)
            self._enter()
            _lay(flat, start, size, self.desks[self.me])
            self._next(what)
            for i, desk in enumerate(self.desks):
                take(i, start, desk[:size])
            self._leave()

    def broadcast(self, arrays: Sequence[np.ndarray], what: bytes, source: int) -> list[np.ndarray]:
        """The arrays of one process."""
        results = [_aligned(a.shape, a.dtype) for a in arrays]
        taken = _bytes(results)

        def take(rank: int, start: int, piece: np.ndarray) -> None:
            if rank == source:
                _take(taken, start, piece)

        self._passed(_bytes(arrays), what, take)
        return results

    def all_gather(self, array: np.ndarray, what: bytes) -> np.ndarray:
        """The arrays of all processes, one below the other."""
        made = _aligned((len(self.ranks) * array.shape[0], *array.shape[1:]), array.dtype)
        taken = _bytes([made])[0].reshape(len(self.ranks), -1)
        self._passed(_bytes([array]), what, lambda i, at, p: _take([taken[i]], at, p))
        return made

    def alltoall(self, array: np.ndarray, what: bytes) -> np.ndarray:
        """This process's blocks of the arrays of all, one below the other."""
        made = _aligned(array.shape, array.dtype)
        taken = _bytes([made])[0].reshape(len(self.ranks), -1)
        skipped = self.me * taken.shape[1]

        def take(rank: int, start: int, piece: np.ndarray) -> None:
            first = max(0, skipped - start)
            if first < piece.size:
                _take([taken[rank]], start + first - skipped, piece[first:])

        self._passed(_bytes([array]), what, take)
        return made


def reduced(parts: Sequence[np.ndarray], op: int) -> np.ndarray:
    """One array of several. Half precision is reduced in float32 and rounded once."""
    kind = parts[0].dtype
    if kind.kind == "b":
        each = np.logical_and if op in (ReduceOp.MIN, ReduceOp.PROD) else np.logical_or
    else:
        each = _REDUCE[op]
    narrow = kind.kind not in "biuc" and kind.itemsize < 4
    total = parts[0].astype(np.float32 if narrow else kind)
    for part in parts[1:]:
        each(total, part.astype(total.dtype, copy=False), out=total)
    if op == ReduceOp.AVG and kind.kind in "iu":
        total //= len(parts)
    elif op == ReduceOp.AVG and kind.kind != "b":
        total /= len(parts)
    return total


def _bytes(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [a.reshape(-1).view(np.uint8) for a in arrays]


def _lay(arrays: list[np.ndarray], start: int, size: int, desk: np.ndarray) -> None:
    """Copy `size` elements of vectors, seen as one, from `start` on."""
    for part, at in _pieces(arrays, start, size):
        desk[at : at + part.size] = part


def _take(arrays: list[np.ndarray], start: int, piece: np.ndarray) -> None:
    """Copy a piece into vectors, seen as one, at `start`; what is beyond them is left out."""
    for part, at in _pieces(arrays, start, piece.size):
        part[:] = piece[at : at + part.size]


def _pieces(arrays: list[np.ndarray], start: int, size: int) -> Iterator[tuple[np.ndarray, int]]:
    """The parts of vectors, seen as one, from `start` on; and where in those `size` they begin."""
    at = -start
    for a in arrays:
        first, last = max(0, -at), min(a.size, size - at)
        if first < last:
            yield a[first:last], at + first
        at += a.size


def _aligned(shape: tuple[int, ...], kind: np.dtype[Any]) -> np.ndarray:
    """A new array that XLA can use where it lies."""
    size = int(np.prod(shape)) * kind.itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(kind).reshape(shape)


_rooms: dict[tuple[int, ...], Room | None] = {}
_lock = threading.Lock()


def room(group: Group) -> Room | None:
    """The desks of a group on one machine; all of its processes ask for them at once."""
    ranks = tuple(group.ranks)
    with _lock:
        if ranks not in _rooms:
            _rooms[ranks] = None
            if len(ranks) > 1 and job.kind() == "cpu" and _on_one_host(ranks):
                made = Room(group)
                if made.is_open:
                    _rooms[ranks] = made
        return _rooms[ranks]


def _on_one_host(ranks: tuple[int, ...]) -> bool:
    if len(os.environ.get(wire.SECRET, "")) < 16:
        return False
    endpoints = ParallelEnv().trainer_endpoints
    return len({endpoint(endpoints[r])[0] for r in ranks}) == 1


def exchange(
    what: str, group: Group, arrays: Sequence[Any], options: tuple[Any, ...]
) -> list[np.ndarray] | None:
    """The results of a collective, or None where it is Gloo's: between machines, and of complex
    extremes, which it refuses."""
    complex_extreme = options[:1] in ((ReduceOp.MAX,), (ReduceOp.MIN,)) and any(
        a.dtype.kind == "c" for a in arrays
    )
    found = None if complex_extreme or what not in _HOW else room(group)
    if found is None:
        return None
    host = [np.ascontiguousarray(np.asarray(a)) for a in arrays]
    shapes = ", ".join(f"{a.dtype}{list(a.shape)}" for a in host)
    said = f"{what}({shapes}{''.join(f', {o}' for o in options)})".encode()
    with found.lock:
        if found.failed:
            raise DistributedError(f"[{what}] an exchange between these processes failed before")
        found.failed = True
        results = _HOW[what](found, host, said, *options)
        found.failed = False
        return results


def _all_reduce(room: Room, arrays: list[np.ndarray], what: bytes, op: int) -> list[np.ndarray]:
    results: list[Any] = [None] * len(arrays)
    by_type: dict[Any, list[int]] = {}
    for i, a in enumerate(arrays):
        by_type.setdefault(a.dtype, []).append(i)
    for places in by_type.values():
        made = room.all_reduce([arrays[i] for i in places], op, what)
        for i, result in zip(places, made, strict=True):
            results[i] = result
    return results


def _blocks(room: Room, array: np.ndarray, what: bytes) -> np.ndarray:
    """By rank, the block of its array that is for this process."""
    count = len(room.ranks)
    made = room.alltoall(array, what)
    return made.reshape(count, array.shape[0] // count, *array.shape[1:])


def _scatter(room: Room, arrays: list[np.ndarray], what: bytes, source: int) -> list[np.ndarray]:
    return [_blocks(room, a, what)[source] for a in arrays]


def _reduce_scatter(room: Room, arrays: list[np.ndarray], what: bytes, op: int) -> list[np.ndarray]:
    blocks = [(a.dtype, list(_blocks(room, a, what))) for a in arrays]
    return [reduced(each, op).astype(kind, copy=False) for kind, each in blocks]


_HOW: dict[str, Callable[..., list[np.ndarray]]] = {
    "all_reduce": _all_reduce,
    "broadcast": lambda room, arrays, what, source: room.broadcast(arrays, what, source),
    "all_gather": lambda room, arrays, what: [room.all_gather(a, what) for a in arrays],
    "alltoall": lambda room, arrays, what: [room.alltoall(a, what) for a in arrays],
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
}
