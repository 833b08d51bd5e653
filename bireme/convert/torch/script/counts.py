"""Arithmetic on numbers that a traced program holds in tensors without dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bireme.convert.torch.aten.types import kind_of, result_type, tensor
from bireme.convert.torch.script.builtin import is_size, same
from bireme.convert.torch.script.values import Count, Value
from bireme.core import dtype as dt
from bireme.core.tensor import Tensor

_Function = Callable[..., Value]

_ALIKE: dict[str, _Function] = {
    "add": lambda a, b, alpha=1: a + b * alpha,
    "sub": lambda a, b, alpha=1: a - b * alpha,
    "rsub": lambda a, b, alpha=1: b - a * alpha,
    "mul": lambda a, b: a * b,
    "floor_divide": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "neg": lambda a: -a,
    "minimum": lambda a, b: min(a, b),
    "maximum": lambda a, b: max(a, b),
    "abs": abs,
}
_ROUNDED: dict[str, _Function] = {
    "ceil": math.ceil,
    "floor": math.floor,
    "trunc": math.trunc,
    "round": round,
}
_COMPARED: dict[str, _Function] = {
    "eq": same,
    "ne": lambda a, b: not same(a, b),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_SAME = frozenset(("detach", "clone", "contiguous", "alias", "lift_fresh"))


def of_number(value: Value) -> Count:
    """`prim::NumToTensor`."""
    if isinstance(value, bool):
        return Count(value, "bool")
    return Count(value, "float64" if isinstance(value, float) else "int64")


def as_tensor(count: Count) -> Tensor:
    """The tensor that PyTorch has."""
    return tensor(count.value, dt.as_dtype(count.dtype))


def computed(name: str, args: list[Value], named: dict[str, Value]) -> Count | None:
    """The result of an op on such numbers; None if it takes tensors."""
    values = [a.value if isinstance(a, Count) else a for a in args]
    if name in _SAME and isinstance(args[0], Count):
        return args[0]
    if not all(isinstance(v, int | float) or is_size(v) for v in values):
        return None
    dtype = _joined(args)
    if name == "div" and named.get("rounding_mode") == "floor" and len(named) == 1:
        name, named = "floor_divide", {}
    if any(is_size(v) for v in values) and (kind_of(dtype) != 1 or name not in _ALIKE):
        return None
    if name in _ALIKE:
        if name in ("floor_divide", "remainder") and values[1] == 0:
            return None
        made = _ALIKE[name](*values, **named)
        return Count(made if is_size(made) else _fitted(made, dtype), dtype.name)
    if named:
        return None
    if name in _COMPARED:
        return Count(_COMPARED[name](*values), "bool")
    if name in _ROUNDED and len(values) == 1:
        made = values[0] if kind_of(dtype) < 2 else _ROUNDED[name](values[0])
        return Count(_fitted(made, dtype), dtype.name)
    if name == "div" and values[1] != 0:
        real = dtype if kind_of(dtype) == 2 else dt.float32
        a, b = [np.asarray(v, real.numpy) for v in values]
        return Count(float(np.true_divide(a, b)), real.name)
    return None


def converted(count: Count, dtype: str) -> Count | None:
    """`torch.to`."""
    kind = kind_of(dt.as_dtype(dtype))
    if is_size(count.value):
        return Count(count.value, dtype) if dtype == "int64" else None
    value = (bool, int, float, complex)[kind](count.value)
    return Count(_fitted(value, dt.as_dtype(dtype)), dtype)


def _joined(args: list[Value]) -> dt.DType:
    """The dtype in which PyTorch computes with tensors without dimensions, and with numbers."""
    arrays = [_Scalar(a.dtype) for a in args if isinstance(a, Count)]
    numbers = [a for a in args if not isinstance(a, Count)]
    return _type_of(arrays, numbers)


class _Scalar:
    def __init__(self, dtype: str):
        self.dtype = dt.as_dtype(dtype)


def _type_of(scalars: list[_Scalar], numbers: list[Value]) -> dt.DType:
    from bireme.convert.torch.aten.types import _joined as joined_types

    found = scalars[0].dtype
    for other in scalars[1:]:
        found = joined_types(found, other.dtype)
    lone = result_type(*[0 if is_size(n) else n for n in numbers]) if numbers else found
    return lone if kind_of(lone) > kind_of(found) else found


def _fitted(value: Value, dtype: dt.DType) -> Value:
    """A number as its dtype holds it."""
    kept = np.asarray(value).astype(dtype.numpy)
    return kept.item() if kind_of(dtype) != 2 else float(kept)
