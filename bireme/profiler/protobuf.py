"""Recordings in Paddle's own format: trees of spans, one per thread, as a protobuf message.

The message is `NodeTreesProto` of Paddle's `nodetree.proto`: version, index, trees, extra facts. A
tree is a list of nodes (id, parent, event) with a root that spans everything; an event is (name,
kind, start, end, process, thread), times in nanoseconds.
"""

from __future__ import annotations

import datetime
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from bireme.core.errors import FileFormatError
from bireme.io.atomic import replacing
from bireme.profiler.events import Span

if TYPE_CHECKING:
    from bireme.profiler.profiler import Profiler

ENDING = ".pb"
_VERSION = "1.0.2"
_NOBODY = 2**64 - 1  # the root's parent (-1), and the end of its time
_KINDS = {
    "operator": 0, "dataloader": 1, "step": 2, "kernel": 4, "forward": 9, "backward": 10,
    "optimization": 11, "communication": 12, "python_op": 13, "user": 14,
}  # fmt: skip
_NAMES = {number: kind for kind, number in _KINDS.items()} | {7: "user"}


def export_protobuf(dir_name: str, worker_name: str | None = None) -> Callable[[Profiler], None]:
    """For `on_trace_ready`: writes one file per recording, in Paddle's format.

    >>> profiler = Profiler(on_trace_ready=export_protobuf("traces"))
    """

    def export(profiler: Profiler) -> None:
        worker = worker_name or f"host_{socket.gethostname()}pid_{os.getpid()}"
        now = datetime.datetime.now().strftime("%Y_%m_%d_%H_%M_%S_%f")
        path = os.path.join(dir_name, f"{worker}_time_{now}.paddle_trace{ENDING}")
        write_protobuf(profiler.all_spans(), path)

    return export


# --- writing ------------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _block(field: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def write_protobuf(spans: list[Span], path: str) -> None:
    """Spans as trees; one that lies within another of its thread is below it."""
    offset = time.time_ns() - time.perf_counter_ns()  # spans are on the monotonic clock
    message = _block(1, _VERSION) + _number(2, 0)
    for thread in sorted({s.thread for s in spans}):
        own = [s for s in spans if s.thread == thread]
        message += _block(3, _number(1, thread) + _nodes(own, offset))
    message += _block(4, _block(1, "writer") + _block(2, "bireme"))
    with replacing(path) as file:
        file.write(message)


def _nodes(spans: list[Span], offset: int) -> bytes:
    out = _node(0, _NOBODY, _event("root node", 7, 0, _NOBODY, 0, 0))
    above: list[tuple[int, Span]] = []  # the spans that are open
    for number, span in enumerate(sorted(spans, key=lambda s: (s.start, -s.end)), 1):
        while above and above[-1][1].end < span.end:
            above.pop()
        kind = _KINDS.get(span.kind, _KINDS["user"])
        begin, end = (round(t * 1e9) + offset for t in (span.start, span.end))
        event = _event(span.name, kind, begin, end, os.getpid(), span.thread)
        out += _node(number, above[-1][0] if above else 0, event)
        above.append((number, span))
    return out


def _event(name: str, kind: int, start: int, end: int, process: int, thread: int) -> bytes:
    numbers = enumerate((kind, start, end, process, thread), 2)
    return _block(1, name) + b"".join(_number(field, value) for field, value in numbers)


def _node(number: int, parent: int, event: bytes) -> bytes:
    return _block(2, _number(1, number) + _number(2, parent) + _block(3, event))


# --- reading ------------------------------------------------------------------------------------


def read_protobuf(data: bytes, name: str) -> list[Span]:
    """The spans of such a file, Paddle's or ours, without the roots."""
    try:
        spans: list[Span] = []
        fields = list(_fields(data))
        if not fields or fields[0][0] != 1:
            raise ValueError("it does not begin with a version")
        for field, tree in fields:
            if field == 3 and isinstance(tree, bytes):
                spans += _spans(tree)
        return spans
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as e:
        raise FileFormatError(
            f"[load_profiler_result] {name!r} is no recording in Paddle's format ({e})"
        ) from e


def _spans(tree: bytes) -> Iterator[Span]:
    for field, node in _fields(tree):
        if field != 2 or not isinstance(node, bytes):
            continue
        parts = dict(_fields(node))
        if parts[2] == _NOBODY:
            continue
        event = dict(_fields(parts[3]))
        kind = _NAMES.get(event[2], "operator")
        yield Span(event[1].decode(), kind, event[3] / 1e9, event[4] / 1e9, event[6])


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, int or bytes) of each field of a message."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError("a number is too long")

    while at < len(data):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
        elif key & 7 == 2:
            size = number()
            if at + size > len(data):
                raise ValueError("it ends too early")
            at += size
            yield key >> 3, data[at - size : at]
        elif key & 7 in (1, 5):
            at += 8 if key & 7 == 1 else 4
        else:
            raise ValueError(f"there is no kind {key & 7} of field")
