"""TensorFlow's arrays, shapes and settings as values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.tensorflow.schema import kind_of
from bireme.io.foreign import possible_shape

Message = Mapping[str, Any]
_LISTS = {
    "float32": "float_val",
    "float64": "double_val",
    "int64": "int64_val",
    "bool": "bool_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "float16": "half_val",
    "bfloat16": "half_val",
    "complex64": "scomplex_val",
    "complex128": "dcomplex_val",
    **dict.fromkeys(("int32", "int16", "int8", "uint8", "uint16"), "int_val"),
}
_MOST_FILLED = 1 << 24  # elements of an array that is stored as one number


def dtype_of(kind: str) -> np.dtype:
    """NumPy's dtype for a kind of elements."""
    if kind == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    if kind == "string":
        return np.dtype(object)
    if kind not in _LISTS:
        raise UnsupportedModel(f"[convert] elements of the kind {kind!r:.40} have no tensors")
    return np.dtype(kind)


def sizes_of(shape: Message | None) -> tuple[int | None, ...] | None:
    """The sizes of a shape, None for open ones; None if not even their number is known."""
    if shape is None or shape.get("unknown_rank"):
        return None
    sizes = [d.get("size", 0) for d in shape.get("dim", ())]
    if len(sizes) > 32 or any(s < -1 for s in sizes):
        raise ModelFileError(f"[convert] a shape cannot be {sizes!r:.200}")
    return tuple([None if s == -1 else s for s in sizes])


def known_sizes(shape: Message | None) -> tuple[int, ...]:
    """The sizes of a shape that an array has."""
    found = sizes_of(shape or {})
    if found is None or not possible_shape([-1 if s is None else s for s in found]):
        raise ModelFileError(f"[convert] an array cannot have the shape {found!r:.200}")
    return tuple([s for s in found if s is not None])


def array_of(tensor: Message, budget: list[int] | None = None) -> np.ndarray:
    """The contents of a TensorProto. `budget` counts down what is not stored element by element."""
    kind = kind_of(tensor.get("dtype"))
    shape = known_sizes(tensor.get("tensor_shape"))
    count = math.prod(shape)
    dtype = dtype_of(kind)
    content = tensor.get("tensor_content")
    if content is not None and len(content) and kind != "string":
        if len(content) != count * dtype.itemsize:
            raise ModelFileError(f"[convert] an array of {kind}{shape} has {len(content)} bytes")
        return np.frombuffer(content, dtype).reshape(shape)
    values: np.ndarray
    if kind == "string":
        values = np.empty(len(tensor.get("string_val", ())), object)
        values[:] = [bytes(v) for v in tensor.get("string_val", ())]
    elif kind in ("float16", "bfloat16"):
        values = np.array(tensor.get("half_val", ()), np.int64).astype(np.uint16).view(dtype)
    elif kind.startswith("complex"):
        flat = np.array(tensor.get(_LISTS[kind], ()), np.float64)
        values = (flat[::2] + 1j * flat[1::2]).astype(dtype)
    else:
        values = np.array(tensor.get(_LISTS[kind], ())).astype(dtype)
    if len(values) > count:
        raise ModelFileError(f"[convert] an array of {kind}{shape} has {len(values)} elements")
    if len(values) < count:  # the last one stands for the rest
        left = budget if budget is not None else [_MOST_FILLED]
        left[0] -= count - len(values)
        if left[0] < 0:
            raise ModelFileError(f"[convert] an array of {kind}{shape} stores {len(values)} values")
        last = values[-1] if len(values) else (b"" if kind == "string" else np.zeros((), dtype))
        filled = np.empty(count, dtype)
        filled[: len(values)] = values
        filled[len(values) :] = last
        values = filled
    return np.asarray(values).reshape(shape)


def setting(value: Message) -> object:
    """One attr: text, number, truth, kind of elements, shape, array, a function's name, or a
    list of those."""
    for key, found in value.items():
        if key == "list":
            return [_plain(k, v) for k, several in found.items() for v in several]
        return _plain(key, found)
    return None


def _plain(key: str, found: Any) -> Any:
    if key == "s":
        return bytes(found).decode("utf-8", "replace")
    if key == "type":
        return kind_of(found)
    if key == "shape":
        return sizes_of(found)
    if key == "func":
        return str(found.get("name", ""))
    return found  # numbers as they are; arrays are read when they are used


def settings(node: Message) -> dict[str, Any]:
    """The attrs of a node by name."""
    return {p.get("key", ""): setting(p.get("value", {})) for p in node.get("attr", ())}


__all__ = ["array_of", "dtype_of", "known_sizes", "settings", "sizes_of"]
