"""Calls of native kernels: by XLA while a program is lowered, directly on NumPy arrays.

A kernel's body is written once. Given NumPy arrays it computes at once, without JAX.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bireme.core.errors import ExecutionError
from bireme.host import jax_door
from bireme.host.arrays import Array
from bireme.kernels import native

# XLA_FFI_DataType, by the name of a NumPy dtype.
_TYPES = {
    "bool": 1, "int32": 4, "int64": 5, "uint8": 6, "uint16": 7, "uint32": 8, "float16": 10,
    "float32": 11, "float64": 12, "bfloat16": 16,
}  # fmt: skip

Layout = Sequence[int]  # which dimension varies slowest in memory, and so on


class Result(NamedTuple):
    """The type of what a kernel returns."""

    shape: tuple[int, ...]
    dtype: Any = np.float32


def namespace(array: Array) -> Any:
    """`numpy` for its arrays, `jax.numpy` for what a program is lowered with."""
    return np if isinstance(array, np.ndarray) else jax_door.jnp()


def ffi_call(
    handler: str,
    results: Result | Sequence[Result],
    *,
    input_layouts: Sequence[Layout | None] | None = None,
    output_layouts: Any = None,
    aliases: Mapping[int, int] | None = None,
) -> Callable[..., Any]:
    """A function of a handler's operands, and of its numbers by name: `jax.ffi.ffi_call`, which
    also takes NumPy arrays alone. `aliases` says which operand becomes which result where XLA
    may overwrite it; the handler copies one that it does not."""

    def call(*operands: Any, **numbers: Any) -> Any:
        if all(isinstance(o, np.ndarray) for o in operands):
            if isinstance(results, Result):
                layouts = [output_layouts]
                return _run(handler, operands, [results], input_layouts, layouts, numbers)[0]
            return _run(handler, operands, results, input_layouts, output_layouts, numbers)
        jax = jax_door.jax()
        if isinstance(results, Result):
            types: Any = jax.ShapeDtypeStruct(*results)
        else:
            types = tuple(jax.ShapeDtypeStruct(*r) for r in results)
        run = jax.ffi.ffi_call(
            handler,
            types,
            input_layouts=input_layouts,
            output_layouts=output_layouts,
            input_output_aliases=aliases,
        )
        return run(*operands, **numbers)

    return call


# --- without XLA --------------------------------------------------------------------------------


class _Array(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_int64),
        ("type", ctypes.c_int64),
    )


class _Number(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("value", ctypes.c_void_p),
        ("type", ctypes.c_int64),
    )


def threads() -> int:
    """How many threads a kernel uses: as many as XLA would."""
    given = os.environ.get("PJRT_NPROC", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    allowed = getattr(os, "sched_getaffinity", None)
    return (os.cpu_count() or 1) if allowed is None else len(allowed(0))


def in_dtype(array: Array, dtype: Any) -> Array:
    """The array in this dtype: itself, if it has it."""
    return array if array.dtype == dtype else array.astype(dtype)


class _Plan:
    """A handler's arguments but for the addresses of its arrays."""

    def __init__(self, handler: str, operands: Any, results: Any, numbers: Any):
        library = native.arrived()
        if library is None:
            raise ExecutionError(f"[{handler}] the native kernels are not there yet")
        self._run = library.bireme_run_directly
        self._run.restype = ctypes.c_bool
        self._handler = ctypes.cast(getattr(library, handler), ctypes.c_void_p)
        self._name = handler
        self._kept: list[Any] = []
        self._operands, self._results = self._arrays(operands), self._arrays(results)
        self._numbers = (_Number * len(numbers))()
        for slot, (name, dtype, content) in zip(self._numbers, numbers, strict=True):
            held = ctypes.create_string_buffer(content, len(content))
            self._kept.append(held)
            slot.name, slot.value = name.encode(), ctypes.addressof(held)
            slot.type = _TYPES[dtype]

    def _arrays(self, types: Any) -> Any:
        made = (_Array * len(types))()
        for slot, (shape, dtype) in zip(made, types, strict=True):
            dims = (ctypes.c_int64 * len(shape))(*shape)
            self._kept.append(dims)
            slot.dims = ctypes.cast(dims, ctypes.POINTER(ctypes.c_int64))
            slot.rank, slot.type = len(shape), _TYPES[dtype]
        return made

    def run(self, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        filled = []
        for template, arrays in ((self._operands, operands), (self._results, results)):
            slots = type(template).from_buffer_copy(template)  # other threads use the plan, too
            for slot, array in zip(slots, arrays, strict=True):
                slot.data = array.__array_interface__["data"][0]
            filled.append(slots)
        message = ctypes.create_string_buffer(512)
        count = ctypes.c_int64
        done = self._run(
            self._handler, count(threads()), filled[0], count(len(operands)), filled[1],
            count(len(results)), self._numbers, count(len(self._numbers)), message, count(512),
        )  # fmt: skip
        if not done:
            raise ExecutionError(f"[{self._name}] {message.value.decode(errors='replace')}")


_plan = functools.lru_cache(maxsize=4096)(_Plan)


def _run(
    handler: str,
    operands: Sequence[np.ndarray],
    results: Sequence[Result],
    input_layouts: Sequence[Layout | None] | None,
    output_layouts: Sequence[Layout | None] | None,
    numbers: dict[str, Any],
) -> list[np.ndarray]:
    plan = _plan(
        handler,
        tuple([(o.shape, o.dtype.name) for o in operands]),
        tuple([(tuple(r.shape), np.dtype(r.dtype).name) for r in results]),
        tuple([(k, numbers[k].dtype.name, numbers[k].tobytes()) for k in sorted(numbers)]),
    )
    arranged = [
        _in_memory(o, None if input_layouts is None else input_layouts[i])
        for i, o in enumerate(operands)
    ]
    made = []
    for i, r in enumerate(results):
        layout = None if output_layouts is None else output_layouts[i]
        if layout is None:
            made.append((np.empty(r.shape, r.dtype), None))
        else:
            made.append((np.empty([r.shape[d] for d in layout], r.dtype), np.argsort(layout)))
    plan.run(arranged, [m for m, _ in made])
    return [m if back is None else m.transpose(back) for m, back in made]


def _in_memory(array: np.ndarray, layout: Layout | None) -> np.ndarray:
    """The array whose memory has the dimensions in this order."""
    return np.ascontiguousarray(array if layout is None else array.transpose(layout))
