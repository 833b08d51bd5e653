"""`paddle.FloatTensor` and its kin: tensors of one type, from data or of a shape."""

from __future__ import annotations

from typing import Any

from bireme.core.tensor import Tensor
from bireme.ops.creation import empty, to_tensor


def _typed(name: str, dtype: str) -> type:
    def make(cls: type, *args: Any, **kwargs: Any) -> Tensor:
        if not args:
            return empty([0], dtype)
        if len(args) == 1 and isinstance(args[0], list | tuple):
            return to_tensor(args[0], dtype)
        if all(isinstance(a, int) for a in args):
            return empty(list(args), dtype)
        kwargs.setdefault("dtype", dtype)
        return to_tensor(*args, **kwargs)

    doc = f"A {dtype} tensor: `{name}([1, 2])` of these numbers, `{name}(2, 3)` of this shape."
    return type(name, (), {"__new__": make, "__doc__": doc, "__module__": __name__})


FloatTensor = _typed("FloatTensor", "float32")
DoubleTensor = _typed("DoubleTensor", "float64")
HalfTensor = _typed("HalfTensor", "float16")
BFloat16Tensor = _typed("BFloat16Tensor", "bfloat16")
ByteTensor = _typed("ByteTensor", "uint8")
CharTensor = _typed("CharTensor", "int8")
ShortTensor = _typed("ShortTensor", "int16")
IntTensor = _typed("IntTensor", "int32")
LongTensor = _typed("LongTensor", "int64")
BoolTensor = _typed("BoolTensor", "bool")

__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
]
