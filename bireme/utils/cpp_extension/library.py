"""A built extension: what it holds, and each of its operators as a Bireme op.

The NumPy tier calls a kernel directly; compiled programs call it through XLA's FFI. Both go
through one function of the library, which gets a *spec*: the operator's name, which inputs there
are, and the attributes.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core import place
from bireme.core.aval import Aval, aval
from bireme.core.errors import ExecutionError, InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.host import jax_door

# The order of paddle::DataType in bireme/types.h.
TYPES = ("undefined", "bool", "int8", "uint8", "int16", "int32", "int64", "float16", "bfloat16",
         "float32", "float64", "complex64", "complex128")  # fmt: skip
_NUMBERS = {name: i for i, name in enumerate(TYPES)}
_ROOM = 4096  # of messages, and of integers that describe results


class _Array(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("data", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Stage:
    """An operator as its source declares it (0), its gradient (1), or the gradient's (2)."""

    name: str
    stage: int
    inputs: list[str]
    outputs: list[str]
    attributes: list[str]
    in_place: dict[str, str]
    kernel: bool
    shapes: bool
    types: bool


@dataclass
class Library:
    """A loaded extension."""

    path: Path
    handle: ctypes.CDLL = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            self.handle = ctypes.CDLL(str(self.path))
        except OSError as e:
            raise InvalidArgument(f"[cpp_extension] {self.path.name} cannot be loaded: {e}") from e
        self.handle.bireme_extension_describe.restype = ctypes.c_char_p

    @cached_property
    def stages(self) -> dict[str, list[Stage]]:
        """The declared operators by name, each with its gradients in order."""
        found: dict[str, list[Stage]] = {}
        said = json.loads(self.handle.bireme_extension_describe().decode())
        for stage in sorted((Stage(**s) for s in said), key=lambda s: s.stage):
            known = found.setdefault(stage.name, [])
            if stage.stage != len(known):
                missing = ("PD_BUILD_OP", "PD_BUILD_GRAD_OP")[len(known) if known else 0]
                raise InvalidArgument(
                    f"[cpp_extension] {stage.name} is declared twice, or without {missing}"
                )
            if not stage.kernel:
                raise InvalidArgument(f"[cpp_extension] {stage.name} has no SetKernelFn")
            known.append(stage)
        return found

    def run(self, spec: bytes, arrays: Sequence[np.ndarray], outs: Sequence[Aval]) -> list[Any]:
        """Call a kernel on NumPy arrays."""
        given = [np.ascontiguousarray(a) for a in arrays]
        made = [np.empty(o.shape, o.dtype.numpy) for o in outs]
        error = ctypes.create_string_buffer(_ROOM)
        failed = self.handle.bireme_extension_run(
            spec,
            ctypes.c_size_t(len(spec)),
            _described(given),
            ctypes.c_int64(len(given)),
            _described(made),
            ctypes.c_int64(len(made)),
            error,
            ctypes.c_size_t(_ROOM),
        )
        if failed:
            raise ExecutionError(error.value.decode(errors="replace"))
        return made

    def call(self, spec: bytes, arrays: Sequence[Any], outs: Sequence[Aval]) -> list[Any]:
        """The same call in a program that is being compiled."""
        jax = jax_door.jax()
        types = [jax.ShapeDtypeStruct(o.shape, o.dtype.numpy) for o in outs]
        device = jax.config.jax_default_device  # of the program that is being compiled
        where = place.default_place().kind if device is None else device.platform
        if not (where == "cpu" or self.has_gpu):
            raise ExecutionError(
                f"{self.path.stem} was built from C++ sources only and cannot run on a device of "
                f"kind {where!r}: add .cu sources, or paddle.set_device('cpu')"
            )
        run = jax.ffi.ffi_call(self.target, types, vmap_method="sequential")
        return list(run(*arrays, spec=spec.decode()))

    @property
    def has_gpu(self) -> bool:
        return hasattr(self.handle, "bireme_extension_gpu")

    @cached_property
    def target(self) -> str:
        """The handlers' name in XLA; registered on first use."""
        jax = jax_door.jax()
        for platform, symbol in (("cpu", "cpu"), ("CUDA", "gpu")):
            if symbol == "cpu" or self.has_gpu:
                handler = getattr(self.handle, f"bireme_extension_{symbol}")
                capsule = jax.ffi.pycapsule(handler)
                jax.ffi.register_ffi_target(self.path.stem, capsule, platform=platform)
        return self.path.stem

    def infer(
        self, spec: bytes, types: Sequence[tuple[tuple[Any, ...], dt.DType]]
    ) -> tuple[list[tuple[int, ...]] | None, list[dt.DType] | None]:
        """Shapes and types of the results by the functions that the source gives for it."""
        shapes = [np.array(s, np.int64) for s, _ in types]
        described = (_Array * max(len(types), 1))(
            *[
                _Array(_NUMBERS[t.name], len(s), _integers(a), None)
                for (s, t), a in zip(types, shapes, strict=True)
            ]
        )
        out = (ctypes.c_int64 * _ROOM)()
        error = ctypes.create_string_buffer(_ROOM)
        failed = self.handle.bireme_extension_infer(
            spec,
            ctypes.c_size_t(len(spec)),
            described,
            ctypes.c_int64(len(types)),
            out,
            ctypes.c_size_t(_ROOM),
            error,
            ctypes.c_size_t(_ROOM),
        )
        if failed:
            raise ShapeMismatch(error.value.decode(errors="replace"))
        said = iter(out)
        count = next(said)
        found = None
        if count >= 0:
            found = [tuple([next(said) for _ in range(next(said))]) for _ in range(count)]
        count = next(said)
        kinds = None
        if count >= 0:
            kinds = [dt.as_dtype(TYPES[next(said)]) for _ in range(count)]
        return found, kinds


def _integers(array: np.ndarray) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_int64))


def _described(arrays: Sequence[np.ndarray]) -> Any:
    made = (_Array * max(len(arrays), 1))()
    for i, a in enumerate(arrays):
        shape = (ctypes.c_int64 * max(a.ndim, 1))(*a.shape)
        made[i] = _Array(type_number(dt.as_dtype(a.dtype)), a.ndim, shape, a.ctypes.data)
    return made


def type_number(t: dt.DType) -> int:
    """The number of an element type in C++."""
    if t.name not in _NUMBERS:
        raise TypeMismatch(f"custom operators have no elements of type {t.name}")
    return _NUMBERS[t.name]


# --- specs ----------------------------------------------------------------------------------

_INTEGERS = {"int", "int64_t"}
_FLOATS = {"float", "double"}
_SINGLE = {"bool", "std::string", *_INTEGERS, *_FLOATS}


def parse_attribute(declared: str) -> tuple[str, str]:
    """("axis", "int") of "axis: int"."""
    name, _, kind = (part.strip() for part in declared.partition(":"))
    inner = kind.removeprefix("std::vector<").removesuffix(">")
    if not name.isidentifier() or inner not in _SINGLE:
        raise InvalidArgument(
            f"[cpp_extension] an attribute is declared as {declared!r}; write 'name: type' with "
            f"one of {', '.join(sorted(_SINGLE))}, or std::vector of one"
        )
    return name, kind


def encode_attribute(name: str, kind: str, value: object) -> list[str]:
    """An attribute's values as texts, checked against its declaration."""
    inner = kind.removeprefix("std::vector<").removesuffix(">")
    items = value if inner != kind else (value,)
    if not isinstance(items, tuple | list):
        raise InvalidArgument(f"attribute '{name}' is a list ({kind}). Received: {value!r}")
    return [_item(name, inner, v) for v in items]


def _item(name: str, kind: str, value: Any) -> str:
    if kind == "bool" and isinstance(value, bool):
        return "1" if value else "0"
    if kind in _INTEGERS and isinstance(value, int) and not isinstance(value, bool):
        bits = 31 if kind == "int" else 63
        if -(2**bits) <= value < 2**bits:
            return str(value)
    if kind in _FLOATS and isinstance(value, int | float) and not isinstance(value, bool):
        return repr(float(value))
    if kind == "std::string" and isinstance(value, str):
        return value
    raise InvalidArgument(f"attribute '{name}' must be a {kind}. Received: {value!r}")


def encode_spec(
    stage: Stage, inputs: Sequence[int], outputs: Sequence[int], attributes: Sequence[list[str]]
) -> bytes:
    """The fixed part of a call; see extension_main.cc."""
    fields: list[str] = [stage.name, str(stage.stage)]
    for layout in (inputs, outputs):
        fields += [str(len(layout)), *map(str, layout)]
    fields.append(str(len(attributes)))
    for items in attributes:
        fields += [str(len(items)), *items]
    encoded = [f.encode() for f in fields]
    return b"".join(b"%d:%s" % (len(f), f) for f in encoded)


def fixed(shape: Sequence[Any], t: dt.DType) -> Aval:
    """A result's type from what C++ said about it."""
    if any(d < 0 for d in shape):
        raise ShapeMismatch(f"SetInferShapeFn gave a negative size: {list(shape)}")
    return aval(tuple(shape), t)
