"""The runtime from Python: `Model` runs a file, by ctypes on the library of building.py."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.lite.building import library
from bireme.lite.errors import LiteError

_MAX_RANK = 8
_DTYPES = [np.dtype(n) for n in ("bool", "u1", "i1", "i4", "u4", "i8", "f4", "f8")]


class _Options(ctypes.Structure):
    _fields_ = (
        ("threads", ctypes.c_int32),
        ("memory_limit", ctypes.c_int64),
        ("step_limit", ctypes.c_int64),
        ("instructions", ctypes.c_char_p),
    )


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("rank", ctypes.c_int32),
        ("dims", ctypes.c_int64 * _MAX_RANK),
    )


class Model:
    """A model file in the runtime.

    model = bireme.lite.Model("model.blm")
    (logits,) = model(image)

    `source` is a file, or the contents of one (a uint8 array at a multiple of 64 bytes is used
    where it lies). `instructions` are those of the kernels: "baseline", "avx2" or "avx512", by
    default the best that this machine has. `memory_limit` bounds the bytes of values, `step_limit`
    the turns of loops. One thread at a time may use a model.
    """

    def __init__(
        self,
        source: str | PathLike[str] | bytes | np.ndarray,
        threads: int = 1,
        instructions: str | None = None,
        memory_limit: int = 0,
        step_limit: int = 0,
    ):
        self._library = _bound(library())
        name = None if instructions is None else instructions.encode()
        options = _Options(threads, memory_limit, step_limit, name)
        why = ctypes.create_string_buffer(400)
        if isinstance(source, bytes | np.ndarray):
            self._kept = np.frombuffer(source, np.uint8)
            given: tuple[Any, ...] = (self._kept.ctypes.data, self._kept.nbytes)
            opener = self._library.bl_open_memory
        else:
            given = (os.fsencode(source),)
            opener = self._library.bl_open_file
        self._handle = opener(*given, ctypes.byref(options), why, len(why))
        if not self._handle:
            known = isinstance(source, str | os.PathLike)
            shown = repr(os.fspath(source)) if known else "these bytes"
            raise LiteError(f"{shown}: {why.value.decode(errors='replace')}")
        self._shapes: tuple[tuple[int, ...], ...] | None = None
        self._dtypes = [_DTYPES[t.type] for t in self._described("input")]

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            self._library.bl_close(handle)

    def _described(self, side: str) -> list[_Tensor]:
        count = getattr(self._library, f"bl_{side}_count")(self._handle)
        tensors = [_Tensor() for _ in range(count)]
        for i, t in enumerate(tensors):
            getattr(self._library, f"bl_{side}")(self._handle, i, ctypes.byref(t))
        return tensors

    @property
    def inputs(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """(name, type, shape) of each input; -1 is a size that is given at run time."""
        return [_row(t) for t in self._described("input")]

    @property
    def outputs(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """(name, type, shape) of each result."""
        return [_row(t) for t in self._described("output")]

    @property
    def memory(self) -> int:
        """Bytes that values take at the sizes of the last run."""
        return self._library.bl_memory(self._handle)

    @property
    def instructions(self) -> str:
        """The instruction set of the kernels in use."""
        return self._library.bl_instructions(self._handle).decode()

    def __call__(self, *inputs: Any) -> list[np.ndarray]:
        """The results, as arrays of their own."""
        return [a.copy() for a in self.run([np.asarray(i) for i in inputs])]

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results where the runtime has them: the next run overwrites them."""
        arrays = [np.ascontiguousarray(a) for a in inputs]
        types = [a.dtype for a in arrays]
        if types != self._dtypes:
            raise InvalidArgument(
                f"the model takes {', '.join(map(str, self._dtypes))}. "
                f"Received: {', '.join(map(str, types)) or 'nothing'}"
            )
        shapes = tuple([a.shape for a in arrays])
        if shapes != self._shapes:
            self._resize(shapes)
        pointers = (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])
        if not self._library.bl_run(self._handle, pointers):
            raise LiteError(self._library.bl_error(self._handle).decode(errors="replace"))
        return [self._result(i, t) for i, t in enumerate(self._results)]

    def _resize(self, shapes: tuple[tuple[int, ...], ...]) -> None:
        self._shapes = None
        ranks = [len(s) for _, _, s in self.inputs]
        if [len(s) for s in shapes] != ranks:
            raise InvalidArgument(f"the model takes inputs of {ranks} axes. Received: {shapes}")
        rows = [(ctypes.c_int64 * max(len(s), 1))(*s) for s in shapes]
        dims = (ctypes.c_void_p * len(rows))(*[ctypes.addressof(r) for r in rows])
        if not self._library.bl_resize(self._handle, dims):
            raise LiteError(self._library.bl_error(self._handle).decode(errors="replace"))
        self._shapes = shapes
        self._results = self._described("output")

    def _result(self, index: int, t: _Tensor) -> np.ndarray:
        dtype, shape = _DTYPES[t.type], tuple(t.dims[: t.rank])
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if not size:
            return np.empty(shape, dtype)
        memory: Any = (ctypes.c_char * size).from_address(
            self._library.bl_output_data(self._handle, index)
        )
        return np.frombuffer(memory, dtype).reshape(shape)


def _row(t: _Tensor) -> tuple[str, str, tuple[int, ...]]:
    return t.name.decode(errors="replace"), _DTYPES[t.type].name, tuple(t.dims[: t.rank])


def _bound(made: ctypes.CDLL) -> ctypes.CDLL:
    """The library with the types of its functions."""
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    opened = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    for name, result, given in (
        ("bl_open_file", pointer, [ctypes.c_char_p, *opened]),
        ("bl_open_memory", pointer, [pointer, ctypes.c_size_t, *opened]),
        ("bl_close", None, [pointer]),
        ("bl_error", ctypes.c_char_p, [pointer]),
        ("bl_input_count", number, [pointer]),
        ("bl_output_count", number, [pointer]),
        ("bl_input", ctypes.c_int, [pointer, number, pointer]),
        ("bl_output", ctypes.c_int, [pointer, number, pointer]),
        ("bl_resize", ctypes.c_int, [pointer, pointer]),
        ("bl_run", ctypes.c_int, [pointer, pointer]),
        ("bl_output_data", pointer, [pointer, number]),
        ("bl_memory", ctypes.c_int64, [pointer]),
        ("bl_instructions", ctypes.c_char_p, [pointer]),
    ):
        function = getattr(made, name)
        function.restype, function.argtypes = result, given
    return made
