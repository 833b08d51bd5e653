"""Damage that knows a format: what holds it together stays right, so the parts inside are read.

Each function takes a good file and a random generator and gives one damaged file.
"""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import json
import pickletools
import random
import struct
import tarfile
import zipfile
from collections.abc import Callable
from typing import Any

from tests.convert.paddle.mutants import _other_values, mutants

Mutate = Callable[[bytes, random.Random], bytes]

_EDGES = [
    0,
    1,
    2,
    7,
    31,
    32,
    127,
    255,
    256,
    4096,
    1 << 15,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 40,
    1 << 58,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
]


def flipped(source: bytes, rng: random.Random) -> bytes:
    """Bytes changed, inserted, cut out and repeated anywhere."""
    return next(mutants(source, 1, rng.randrange(1 << 30)))


def numbers(source: bytes, rng: random.Random) -> bytes:
    """One or two numbers changed: lengths, offsets, counts, types."""
    data = bytearray(source)
    for _ in range(rng.choice((1, 1, 2))):
        width = rng.choice((1, 2, 4, 8))
        if len(data) < width:
            break
        at = rng.randrange(len(data) - width + 1)
        if rng.random() < 0.7 and len(data) > 64:  # headers are where such numbers lie
            at = rng.randrange(min(len(data), 512) - width + 1)
        order = rng.choice(("little", "big"))
        old = int.from_bytes(data[at : at + width], order)
        value = rng.choice([*_EDGES, old + 1, old - 1, old * 2, old // 2, len(data), -old])
        data[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, order)
    return bytes(data)


def pieces(source: bytes, rng: random.Random) -> bytes:
    """A part put elsewhere, twice, or left out; the end cut off or made longer."""
    a, b = sorted(rng.randrange(len(source) + 1) for _ in range(2))
    at = rng.randrange(len(source) + 1)
    kind = rng.randrange(5)
    if kind == 0:
        return source[:at] + source[a:b] + source[at:]
    if kind == 1:
        return source[:a] + source[b:]
    if kind == 2:
        return source[:at]
    if kind == 3:
        return source + bytes(rng.choice((1, 8, 512, 5000)))
    return source + source


def document(source: bytes, rng: random.Random) -> bytes:
    """JSON with other values, moved, doubled and missing parts; sometimes nested deeply."""
    try:
        value = json.loads(source)
    except ValueError:
        return numbers(source, rng)
    made = _other_values(value, rng)
    if rng.random() < 0.02:
        depth = rng.choice((50, 900, 100_000))
        made = made.replace(b"0", b"[" * depth + b"0" + b"]" * depth, 1)
    if rng.random() < 0.02:
        made = made.replace(b"[", b"[" + b"1," * rng.choice((40, 40_000)), 1)
    if rng.random() < 0.03:
        made = made.replace(b'"', b'"\\u0000', 1 + 2 * rng.randrange(6))
    return made


def safetensors(source: bytes, rng: random.Random) -> bytes:
    """A header that is good JSON of the announced length, and says something else."""
    size = int.from_bytes(source[:8], "little")
    header = json.loads(source[8 : 8 + size])
    inner = header.get("__metadata__", {}).get("structure")
    if inner and rng.random() < 0.5:
        header["__metadata__"]["structure"] = document(inner.encode(), rng).decode()
        encoded = json.dumps(header).encode()
    else:
        encoded = document(source[8 : 8 + size], rng)
    return len(encoded).to_bytes(8, "little") + encoded + source[8 + size :]


def pickled(source: bytes, rng: random.Random) -> bytes:
    """Instructions of a pickle dropped, doubled, exchanged, or with other arguments."""
    try:
        ends = [at for _, _, at in pickletools.genops(source) if at is not None]
    except Exception:
        return flipped(source, rng)
    cuts = [*ends, ends[-1] + 1]
    ops = [source[a:b] for a, b in itertools.pairwise(cuts)]
    rest = source[cuts[-1] :]
    for _ in range(rng.choice((1, 1, 2, 5))):
        i, j = rng.randrange(len(ops)), rng.randrange(len(ops))
        kind = rng.randrange(6)
        if kind == 0:
            del ops[i]
        elif kind == 1:
            ops.insert(i, ops[j])
        elif kind == 2:
            ops[i], ops[j] = ops[j], ops[i]
        elif kind == 3:
            ops[i] = ops[i][:1] + numbers(ops[i][1:], rng) if len(ops[i]) > 1 else ops[j]
        elif kind == 4:
            ops.insert(i, rng.choice(_OPS))
        else:
            ops[i:i] = ops[min(i, j) : max(i, j)] * rng.choice((1, 2, 20))
        if not ops:
            break
    return b"".join(ops) + rest


_OPS = [
    b"N",
    b"K\x05",
    b"(",
    b"]",
    b"}",
    b")",
    b"\x85",
    b"\x86",
    b"\x87",
    b"0",
    b"2",
    b"h\x00",
    b"\x94",
    b"R",
    b"b",
    b"\x81",
    b"e",
    b"u",
    b"t",
    b"s",
    b"a",
    b"\x8f",
    b"\x90",
    b"\x91",
    b"cbuiltins\neval\n",
    b"cos\nsystem\n",
    b"cnumpy\nndarray\n",
    b"cnumpy\ndtype\n",
    b"ccollections\nOrderedDict\n",
    b"X\x02\x00\x00\x00i8",
    b"X\x01\x00\x00\x00O",
    b"G\x7f\xf8\x00\x00\x00\x00\x00\x00",
    b"\x8a\x09" + b"\xff" * 9,
    b"cbuiltins\ncomplex\n",
]


def protobuf(source: bytes, rng: random.Random) -> bytes:
    """A message whose lengths are right and whose fields are changed, doubled, moved or gone."""
    fields = _fields(source)
    if not fields:
        return flipped(source, rng)
    i, j = rng.randrange(len(fields)), rng.randrange(len(fields))
    number, wire, value = fields[i]
    kind = rng.randrange(10)
    if kind == 0:
        del fields[i]
    elif kind == 1:
        fields.insert(j, fields[i])
    elif kind == 2:
        fields[i], fields[j] = fields[j], fields[i]
    elif kind == 3:
        fields[i] = (rng.randrange(1, 30), wire, value)
    elif wire == 2:
        inner = _fields(value) if len(value) > 1 else None
        if inner and rng.random() < 0.85:
            fields[i] = (number, 2, protobuf(value, rng))
        else:
            fields[i] = (number, 2, rng.choice([numbers, pieces, flipped, _text])(value, rng))
    elif wire == 0:
        fields[i] = (number, 0, _varint(rng.choice([*_EDGES, rng.randrange(40), rng.randrange(5)])))
    else:
        fields[i] = (number, wire, numbers(value, rng))
    return b"".join([_field(*f) for f in fields])


def _text(value: bytes, rng: random.Random) -> bytes:
    return rng.choice(
        [b"", b"\0", value + b"\0x", b"x" * 5000, b"../../x", b"\xff\xfe", b"relu", b"9^999"]
    )


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _fields(data: bytes) -> list[tuple[int, int, bytes]] | None:
    """(number, wire type, contents) of each field; None if this is no message."""
    found, at = [], 0
    try:
        while at < len(data):
            tag, at = _read_varint(data, at)
            wire = tag & 7
            if wire == 0:
                _, end = _read_varint(data, at)
            elif wire == 2:
                size, at = _read_varint(data, at)
                end = at + size
            elif wire in (1, 5):
                end = at + (8 if wire == 1 else 4)
            else:
                return None
            if end > len(data) or not tag >> 3:
                return None
            found.append((tag >> 3, wire, data[at:end]))
            at = end
    except IndexError:
        return None
    return found


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _field(number: int, wire: int, value: bytes) -> bytes:
    return _varint(number << 3 | wire) + (_varint(len(value)) if wire == 2 else b"") + value


def gzipped(inner: Mutate) -> Mutate:
    """Damage inside a gzip file that is whole."""

    def mutate(source: bytes, rng: random.Random) -> bytes:
        made = inner(gzip.decompress(source), rng)
        if rng.random() < 0.1:
            return bz2.compress(made)
        return gzip.compress(made, 1)

    return mutate


def tarred(inner: Mutate) -> Mutate:
    """Members of a tar archive changed, renamed, doubled and left out; every kind of entry."""

    def mutate(source: bytes, rng: random.Random) -> bytes:
        with tarfile.open(fileobj=io.BytesIO(source)) as archive:
            members = [(m, archive.extractfile(m).read()) for m in archive if m.isfile()]  # type: ignore[union-attr]
        i = rng.randrange(len(members))
        info, data = members[i]
        kind = rng.randrange(8)
        if kind < 4:
            data = inner(data, rng)
        elif kind == 4:
            info.name = rng.choice(
                ["", "../" + info.name, "/" + info.name, "x" * 300, "\u20ac", info.name[:-1]]
            )
        elif kind == 5:
            info.type = rng.choice(
                [b"1", b"2", b"3", b"5", b"6", b"7", b"S", b"g", b"x", b"L", b"Z"]
            )
            info.linkname = rng.choice([info.name, "/dev/zero", members[0][0].name])
        elif kind == 6:
            members.append(rng.choice(members))
        info.size = len(data)
        members[i] = info, data
        if kind == 7:
            del members[i]
        out = io.BytesIO()
        form = rng.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
        with tarfile.open(fileobj=out, mode="w", format=form) as archive:
            for entry, content in members:
                archive.addfile(entry, io.BytesIO(content))
        raw = out.getvalue()
        return _sealed(numbers(raw, rng)) if rng.random() < 0.3 else raw

    return mutate


def _sealed(raw: bytes) -> bytes:
    """The first header's checksum made right again."""
    head = bytearray(raw[:512])
    if len(head) == 512:
        head[148:156] = b" " * 8
        head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + raw[512:]


def zipped(inner: Mutate) -> Mutate:
    """Members of a zip archive changed, renamed and left out, and its directory's numbers."""

    def mutate(source: bytes, rng: random.Random) -> bytes:
        with zipfile.ZipFile(io.BytesIO(source)) as archive:
            members = [(n, archive.read(n)) for n in archive.namelist()]
        i = rng.randrange(len(members))
        name, data = members[i]
        if rng.random() < 0.7:
            data = inner(data, rng)
        else:
            name = rng.choice(["../" + name, "/" + name, name + "\0x", "", name[:-1]])
        members[i] = name, data
        out = io.BytesIO()
        how = rng.choice(
            [zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_BZIP2]
        )
        with zipfile.ZipFile(out, "w", how) as archive:
            for n, content in members:
                archive.writestr(n or "empty", content)
        raw = bytearray(out.getvalue())
        if rng.random() < 0.3:
            at = raw.find(b"PK\x01\x02")
            tail = numbers(bytes(raw[at : at + 46]), rng)
            raw[at : at + 46] = tail
        return bytes(raw)

    return mutate


def lines(source: bytes, rng: random.Random) -> bytes:
    """A text with lines and words changed, doubled and left out."""
    rows = source.split(b"\n")
    for _ in range(rng.choice((1, 1, 3))):
        i = rng.randrange(len(rows))
        kind = rng.randrange(5)
        if kind == 0:
            del rows[i]
        elif kind == 1:
            rows.insert(i, rng.choice(rows))
        elif kind == 2:
            rows[i] = flipped(rows[i], rng) if rows[i] else b"\xff\x00"
        else:
            words = rows[i].split(b" ")
            words[rng.randrange(len(words))] = rng.choice(
                [b"", b"-1", b"nan", b"1e999", b"9" * 5000, b"\t", b"\xff", b"x", b"((((", b"0x1"]
            )
            rows[i] = b" ".join(words)
        if not rows:
            break
    return b"\n".join(rows)


def npy(source: bytes, rng: random.Random) -> bytes:
    """A header of a .npy file with other words in it."""
    size = int.from_bytes(source[8:10], "little")
    header = source[10 : 10 + size]
    old, new = rng.choice(
        [
            (b"<f4", b"|O"),
            (b"<f4", b">f8"),
            (b"<f4", b"<U999999"),
            (b"'<f4'", b"[('a', '<f4')]"),
            (b"(2, 3)", b"(%d, 3)" % rng.choice(_EDGES)),
            (b"(2, 3)", b"(" + b"1, " * 4000 + b")"),
            (b"(2, 3)", b"(-2, 3)"),
            (b"(2, 3)", b"(0, %d)" % rng.choice(_EDGES)),
            (b"False", b"True"),
            (b"(2, 3)", b"(9**9**9, 3)"),
            (b"{", b"[" * 900),
            (b"(2, 3)", b"()"),
            (b"}", b"}}"),
            (b"(2, 3)", b"(3, 2)"),
        ]
    )
    header = header.replace(old, new)
    return source[:8] + struct.pack("<H", len(header) & 0xFFFF) + header + source[10 + size :]


def any_of(*kinds: Mutate) -> Mutate:
    """One of several kinds of damage."""
    return lambda source, rng: rng.choice(kinds)(source, rng)


GENERIC: Mutate = any_of(flipped, flipped, numbers, pieces)


def damaged(source: bytes, structured: Mutate | None, count: int, seed: int) -> Any:
    """`count` damaged copies, half of them by someone who knows the format."""
    for number in range(count):
        rng = random.Random(seed * 1_000_003 + number)
        yield one(source, structured, rng)


def one(source: bytes, structured: Mutate | None, rng: random.Random) -> bytes:
    """One damaged copy."""
    chosen = structured if structured is not None and rng.random() < 0.6 else GENERIC
    return chosen(source, rng)
