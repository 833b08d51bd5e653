"""Data types: one interned object per type, and the promotion rules that Paddle uses."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from bireme.core.errors import TypeMismatch


class DType:
    """A tensor element type. Compared by identity: there is one object per type."""

    __slots__ = ("bits", "is_complex", "is_floating", "is_integer", "itemsize", "name", "numpy")

    def __init__(self, name: str, numpy_type: type | np.dtype[Any], kind: str):
        self.name = name
        self.numpy = np.dtype(numpy_type)
        self.itemsize = self.numpy.itemsize
        self.bits = self.itemsize * 8
        self.is_floating = kind == "f"
        self.is_complex = kind == "c"
        self.is_integer = kind == "i"

    @property
    def differentiable(self) -> bool:
        return self.is_floating or self.is_complex

    def __repr__(self) -> str:
        return f"bireme.{self.name}"

    def __str__(self) -> str:
        return f"paddle.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_named, (self.name,))


bool_ = DType("bool", np.bool_, "b")
uint8 = DType("uint8", np.uint8, "i")
uint16 = DType("uint16", np.uint16, "i")
uint32 = DType("uint32", np.uint32, "i")
uint64 = DType("uint64", np.uint64, "i")
int8 = DType("int8", np.int8, "i")
int16 = DType("int16", np.int16, "i")
int32 = DType("int32", np.int32, "i")
int64 = DType("int64", np.int64, "i")
float16 = DType("float16", np.float16, "f")
bfloat16 = DType("bfloat16", ml_dtypes.bfloat16, "f")
float32 = DType("float32", np.float32, "f")
float64 = DType("float64", np.float64, "f")
complex64 = DType("complex64", np.complex64, "c")
complex128 = DType("complex128", np.complex128, "c")
float8_e4m3fn = DType("float8_e4m3fn", ml_dtypes.float8_e4m3fn, "f")
float8_e5m2 = DType("float8_e5m2", ml_dtypes.float8_e5m2, "f")

ALL: tuple[DType, ...] = (
    bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64, float16, bfloat16,
    float32, float64, complex64, complex128, float8_e4m3fn, float8_e5m2,
)  # fmt: skip

# Names of Paddle's for what no tensor holds, there or here: programs compare types with them.
pstring = DType("pstring", np.str_, "s")
raw = DType("raw", np.void, "s")

_LOOKUP: dict[Any, DType] = {}
for _d in ALL:
    _LOOKUP[_d] = _d
    _LOOKUP[_d.name] = _d
    _LOOKUP["paddle." + _d.name] = _d
    _LOOKUP[_d.numpy] = _d
    _LOOKUP[_d.numpy.type] = _d
_LOOKUP.update({bool: bool_, int: int64, float: float32, complex: complex64})
_LOOKUP.update({"half": float16, "float": float32, "double": float64, "int": int32, "long": int64})

_default = float32


def _named(name: str) -> DType:
    """The DType of this name: how they come out of a pickle."""
    return {"pstring": pstring, "raw": raw}.get(name) or as_dtype(name)


def as_dtype(spec: object) -> DType:
    """The DType that a name, NumPy type or DType stands for."""
    try:
        found = _LOOKUP.get(spec)
    except TypeError:
        found = None
    if found is None:
        try:
            found = _LOOKUP.get(np.dtype(spec))  # pyright: ignore[reportCallIssue, reportArgumentType]
        except TypeError:
            found = None
    if found is None:
        names = ", ".join(d.name for d in ALL)
        raise TypeMismatch(f"unknown dtype. Received: {spec!r}. Use one of: {names}")
    return found


def get_default_dtype() -> str:
    """The name of the floating type that new tensors get."""
    return _default.name


def default_float() -> DType:
    return _default


def default_complex() -> DType:
    return complex128 if _default is float64 else complex64


def set_default_dtype(d: str | DType | type | np.dtype[Any]) -> None:
    """Set the floating type of new tensors: float16, bfloat16, float32 or float64."""
    global _default
    dtype = as_dtype(d)
    if dtype not in (float16, bfloat16, float32, float64):
        raise TypeMismatch(
            f"set_default_dtype takes float16, bfloat16, float32 or float64. Received: {dtype.name}"
        )
    _default = dtype


_FLOAT_ORDER = {float8_e4m3fn: 0, float8_e5m2: 0, float16: 1, bfloat16: 1, float32: 2, float64: 3}


def kind(d: DType) -> str:
    """'bool', 'int', 'float' or 'complex'."""
    if d.is_floating:
        return "float"
    if d.is_complex:
        return "complex"
    return "bool" if d is bool_ else "int"


def promote(a: DType, b: DType) -> DType | None:
    """Paddle's promotion of two tensors' types; None where Paddle refuses to mix them."""
    if a is b:
        return a
    if a.is_floating and b.is_floating:
        rank_a, rank_b = _FLOAT_ORDER[a], _FLOAT_ORDER[b]
        if rank_a == rank_b:
            return float32
        return a if rank_a > rank_b else b
    if a.is_complex or b.is_complex:
        wide = complex128 in (a, b) or float64 in (a, b)
        return complex128 if wide else complex64
    return None


def promote_any(a: DType, b: DType) -> DType:
    """NumPy-like promotion for ops that mix kinds freely (`where`, `concat` of scalars …)."""
    both = promote(a, b)
    if both is not None:
        return both
    if a.is_floating or b.is_floating:
        return a if a.is_floating else b
    return as_dtype(np.promote_types(a.numpy, b.numpy))


def with_number(tensor: DType, number: type) -> DType:
    """The type of `tensor <op> number` where the number is a Python bool, int or float."""
    if number is float and not tensor.differentiable:
        return _default
    if number is int and tensor is bool_:
        return int64
    return tensor
