"""The pickle stack machine: bytes, stack, memo, and the limits that hold a file to its size."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bireme.api.types import DTypeLike
from bireme.core.errors import FileFormatError
from bireme.io.foreign import possible_shape

MAX_STEPS = 10_000_000  # opcodes that are followed; each makes one small object at most
MAX_DEPTH = 100  # containers inside containers
MAX_LINE = 4096  # a line of the old text opcodes
MAX_SAME_HASH = 64  # different keys; honest ones have two or three
MAX_INTEGER = 1024  # bytes of one integer
_SLACK = 1 << 16  # array bytes beyond the file's size: repeated small arrays


class UnsafePickle(FileFormatError):
    """A pickle that asks for something other than data."""


class Damaged(Exception):
    """The bytes make no sense; `loads` turns it into a FileFormatError."""


class Mark:
    """Where a group of stack entries begins."""


MARK = Mark()


class Known:
    """A name of the table: something the file may ask for."""

    __slots__ = ("call", "name")

    def __init__(self, name: str, call: Callable[[Machine, tuple[Any, ...]], Any] | None):
        self.name, self.call = name, call


class TypeShell:
    """A NumPy dtype while its state may still come."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: np.dtype):
        self.dtype = dtype


class ArrayShell:
    """An array while its state may still come; `None` until then."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray | None = None):
        self.array = array


class Machine:
    """The pickle stack machine."""

    def __init__(self, data: memoryview, name: str):
        self.data, self.name, self.at = data, name, 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self._hashes: dict[int, set[Any]] = {}
        self._array_bytes = len(data) + _SLACK
        self._copied_bytes = 16 * len(data) + _SLACK

    def run(self, table: Mapping[int, Callable[[Machine], Any]]) -> Any:
        """Follow the instructions up to STOP."""
        data = self.data
        for _ in range(MAX_STEPS):
            if self.at >= len(data):
                raise Damaged("it ends in the middle")
            code = data[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                if len(self.stack) != 1:
                    raise Damaged("its end leaves more than one object")
                return self.stack[0]
            step = table.get(code)
            if step is None:
                raise UnsafePickle(
                    f"[load] {self.name} uses the pickle instruction {bytes([code])!r}, which "
                    "data has no need of. Nothing of it was run"
                )
            step(self)
        raise FileFormatError(f"[load] {self.name} holds more than {MAX_STEPS} objects")

    # --- bytes ----------------------------------------------------------------------------

    def take(self, count: int) -> memoryview:
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise Damaged(f"{count} bytes are announced and {len(self.data) - self.at} are left")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def number(self, layout: str) -> int:
        return struct.unpack("<" + layout, self.take(struct.calcsize(layout)))[0]

    def line(self) -> str:
        piece = bytes(self.data[self.at : self.at + MAX_LINE])
        end = piece.find(b"\n")
        if end < 0:
            raise Damaged("a line does not end")
        self.at += end + 1
        return piece[:end].decode("latin-1")

    # --- the stack ------------------------------------------------------------------------

    def push(self, value: object) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is MARK:
            raise Damaged("an instruction finds nothing to work on")
        return self.stack.pop()

    def top(self) -> Any:
        if not self.stack or self.stack[-1] is MARK:
            raise Damaged("an instruction finds nothing to work on")
        return self.stack[-1]

    def pop_group(self) -> list[Any]:
        for i in range(len(self.stack) - 1, -1, -1):
            if self.stack[i] is MARK:
                group = self.stack[i + 1 :]
                del self.stack[i:]
                return group
        raise Damaged("a group has no beginning")

    def refuse(self, what: str) -> UnsafePickle:
        return UnsafePickle(
            f"[load] {self.name} asks for {what}, which is neither an array nor a plain "
            "container. Files with tensors never do; it may be hostile. Nothing of it was run"
        )

    def as_bytes(self, text: str) -> bytes:
        """The bytes that Python 2, or protocol 2, wrote as text."""
        self.copying(len(text))
        return text.encode("latin-1")

    def copying(self, count: int) -> None:
        """Asked before `count` bytes are copied from an object that could be copied again."""
        self._copied_bytes -= count
        if self._copied_bytes < 0:
            raise self._bomb()

    def count_key(self, key: object) -> None:
        """Asked before a key is hashed whose hash the file's writer can choose, because Python
        adds no secret to it: with many of one hash a dictionary takes quadratic time."""
        same = self._hashes.setdefault(hash(key), set())
        same.add(key)
        if len(same) > MAX_SAME_HASH:
            raise FileFormatError(
                f"[load] {self.name} has more than {MAX_SAME_HASH} dictionary keys of one hash, "
                "which does not happen by chance; it may be hostile"
            )

    def _bomb(self) -> FileFormatError:
        return FileFormatError(f"[load] {self.name} unfolds to far more than the file's own size")

    # --- arrays ---------------------------------------------------------------------------

    def array(
        self, shape: object, dtype: DTypeLike, fortran: object, content: object
    ) -> np.ndarray:
        if not isinstance(dtype, TypeShell):
            raise Damaged("an array has no element type")
        kind = dtype.dtype
        dims = (shape,) if isinstance(shape, int) else shape
        if not isinstance(dims, tuple) or not possible_shape(dims):
            raise Damaged(f"an array has the impossible shape {dims!r:.200}")
        if isinstance(content, str):  # written by Python 2
            content = self.as_bytes(content)
        if not isinstance(content, bytes | bytearray | memoryview):
            raise self.refuse("an array of Python objects")
        size = math.prod(dims) * kind.itemsize
        if len(content) != size:
            raise Damaged(f"an array of shape {dims} cannot have {len(content)} bytes")
        self._array_bytes -= size
        if self._array_bytes < 0:
            raise self._bomb()
        flat = np.frombuffer(content, np.uint8).copy().view(kind)  # one copy, owned and writable
        result = flat.reshape(dims, order="F" if fortran else "C")
        if not kind.isnative:
            result = result.astype(kind.newbyteorder("="))
        return result
