"""The sorted table in which TensorFlow keeps names and places of weights (LevelDB's format)."""

from __future__ import annotations

from collections.abc import Iterator

from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.wire import varint

MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_MAX_ENTRIES = 1_000_000
_MAX_KEY = 1 << 16


def entries(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """(key, value) of a whole table, in order."""
    if len(data) < 48 or data[-8:] != MAGIC:
        raise ModelFileError("[convert] this is no index of weights, or it is cut off")
    view = memoryview(data)
    footer = view[-48:-8]
    _, at = _handle(footer, 0)  # of names of filters
    index, _ = _handle(footer, at)
    left = [_MAX_ENTRIES]
    for _, value in _block(view, index, left):
        place, _ = _handle(value, 0)
        yield from _block(view, place, left)


def _handle(data: memoryview, at: int) -> tuple[tuple[int, int], int]:
    offset, at = varint(data, at)
    size, at = varint(data, at)
    return (offset, size), at


def _block(
    view: memoryview, place: tuple[int, int], left: list[int]
) -> Iterator[tuple[bytes, memoryview]]:
    offset, size = place
    if offset + size + 5 > len(view):
        raise ModelFileError("[convert] the index of weights is damaged: a block lies outside")
    block, kind = view[offset : offset + size], view[offset + size]
    if kind == 1:
        block = memoryview(unpacked(block))
    elif kind:
        raise UnsupportedModel(f"[convert] an index compressed in the way {kind} has no reader")
    count = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * count
    if end < 0:
        raise ModelFileError("[convert] the index of weights is damaged: a block is too short")
    key, at = b"", 0
    while at < end:
        left[0] -= 1
        shared, at = varint(block, at)
        fresh, at = varint(block, at)
        size, at = varint(block, at)
        if left[0] < 0 or shared > len(key) or at + fresh + size > end or fresh > _MAX_KEY:
            raise ModelFileError("[convert] the index of weights is damaged")
        key = key[:shared] + bytes(block[at : at + fresh])
        if len(key) > _MAX_KEY:
            raise ModelFileError("[convert] the index of weights is damaged: a name is too long")
        at += fresh
        yield key, block[at : at + size]
        at += size


def unpacked(data: memoryview) -> bytes:
    """What Snappy packed: literals, and copies of what came before."""
    size, at = varint(data, 0)
    if size > 64 * len(data) + 64:  # a copy of 64 bytes takes two at least
        raise ModelFileError("[convert] a packed block unfolds to too much")
    made = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        if tag & 3 == 0:
            length = tag >> 2
            if length >= 60:
                width = length - 59
                length = int.from_bytes(data[at : at + width], "little")
                at += width
            length += 1
            if at + length > len(data):
                raise ModelFileError("[convert] a packed block is cut off")
            made += data[at : at + length]
            at += length
        else:
            if tag & 3 == 1:
                length, width, high = 4 + (tag >> 2 & 7), 1, tag >> 5 << 8
            else:
                length, width, high = 1 + (tag >> 2), 2 if tag & 3 == 2 else 4, 0
            back = high | int.from_bytes(data[at : at + width], "little")
            at += width
            if not 0 < back <= len(made):
                raise ModelFileError("[convert] a packed block is damaged")
            piece = made[-back:] if back >= length else made[-back:] * (length // back + 1)
            made += piece[:length]
        if len(made) > size:
            break
    if len(made) != size:
        raise ModelFileError("[convert] a packed block is damaged: it has another size")
    return bytes(made)
