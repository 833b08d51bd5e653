"""Paddle's own state files, `.pdparams` and `.pdopt`: pickles of arrays in plain containers.

Paddle writes them in two ways. A state dict becomes a dict of arrays with a table of the
tensors' names beside them; in anything else a tensor becomes the pair (name, array). Files are
read by `unpickle`, which runs nothing, and written only where the user names the ending.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from typing import IO, Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.errors import FileFormatError, InvalidArgument, TypeMismatch
from bireme.core.random import RngState
from bireme.core.tensor import Tensor, constant
from bireme.io.unpickle import load_prefix
from bireme.io.unpickle.machine import MAX_DEPTH

ENDINGS = (".pdparams", ".pdopt", ".pdtensor", ".pdscaler")
NAME_TABLE = "StructuredToParameterName@@"
_PIECES = "UnpackBigParamInfor@@"
_PIECE_BYTES = 2**30 - 1  # protocols below 4 cannot hold larger objects in one piece
_LEAVES = (type(None), bool, int, float, complex, str, bytes, bytearray, np.ndarray, np.generic)


# --- writing --------------------------------------------------------------------------------


def write(obj: Any, file: IO[bytes], protocol: int = 4) -> None:
    """Write `obj` as Paddle would, so that Paddle reads it."""
    if isinstance(protocol, bool) or not isinstance(protocol, int) or not 2 <= protocol <= 4:
        raise InvalidArgument(f"[save] protocol must be 2, 3 or 4. Received: {protocol!r}")
    _check(obj, ())
    if _is_state_dict(obj):
        saved = {k: _array(v) if isinstance(v, Tensor) else v for k, v in obj.items()}
        saved[NAME_TABLE] = {k: v.name for k, v in obj.items() if isinstance(v, Tensor)}
        obj = _in_pieces(saved) if protocol < 4 else saved
    _Pickler(file, protocol).dump(obj)


class _Pickler(pickle.Pickler):
    """Writes a tensor as the pair of its name and its contents, and a generator's state as the
    plain tuple that it is."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            return (tuple, ((obj.name, _array(obj)),))
        if isinstance(obj, RngState):
            return (tuple, (list(obj),))
        return NotImplemented


def _array(tensor: Tensor) -> np.ndarray:
    array = np.asarray(tensor._array())
    if tensor.dtype is dt.bfloat16:  # NumPy knows no bfloat16; Paddle keeps its bits
        return array.view(np.uint16)
    return array


def _check(value: Any, path: tuple[str, ...]) -> None:
    """Only what the reader admits is written: a file that cannot be read helps nobody."""
    where = f" at {'.'.join(path)!r}" if path else ""
    if isinstance(value, Tensor):
        if value.dtype in (dt.uint16, dt.float8_e4m3fn, dt.float8_e5m2):
            raise TypeMismatch(
                f"[save] Paddle's file format has no {value.dtype.name}{where}; save to a file "
                "that ends in .safetensors instead"
            )
        return
    if len(path) > MAX_DEPTH:
        raise InvalidArgument(
            f"[save] containers are nested more than {MAX_DEPTH} deep, or in themselves"
        )
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject or value.dtype.fields:
            raise TypeMismatch(f"[save] cannot save an array of {value.dtype}{where}")
    elif isinstance(value, dict) and type(value) in (dict, OrderedDict):
        for k, v in value.items():
            _check(k, (*path, "key"))
            _check(v, (*path, str(k)))
    elif type(value) in (list, tuple, set, frozenset, RngState):
        for i, v in enumerate(value):
            _check(v, (*path, str(i)))
    elif not isinstance(value, _LEAVES):
        hint = "save tensors, arrays, numbers, strings and plain containers of them"
        if hasattr(value, "state_dict"):
            hint = "save its state_dict() instead"
        raise TypeMismatch(
            f"[save] cannot save this value{where}. Received: {type(value).__name__}; {hint}"
        )


def _is_state_dict(obj: Any) -> bool:
    """Paddle's rule: tensors, and dicts without tensors such as a scheduler's state."""
    return isinstance(obj, dict) and all(
        not any(map(_holds_tensor, v.values())) if isinstance(v, dict) else isinstance(v, Tensor)
        for v in obj.values()
    )


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_tensor, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_tensor, value))
    return isinstance(value, Tensor)


def _in_pieces(saved: dict[str, Any]) -> dict[str, Any]:
    """The same dict with arrays over a gigabyte cut up, for protocols that cannot hold them."""
    result, table = {}, {}
    for key, value in saved.items():
        if not isinstance(value, np.ndarray) or value.nbytes <= _PIECE_BYTES:
            result[key] = value
            continue
        flat, step = value.reshape(-1), _PIECE_BYTES // value.dtype.itemsize
        names = []
        for i in range(0, flat.size, step):
            names.append(f"{key}@@.{len(names)}")
            result[names[-1]] = flat[i : i + step]
        table[key] = {"OriginShape": value.shape, "slices": names}
    if table:
        result[_PIECES] = table
    return result


# --- reading --------------------------------------------------------------------------------


def looks_like_one(beginning: bytes) -> bool:
    """Whether a file begins as a pickle does."""
    if len(beginning) >= 2 and beginning[0] == 0x80:
        return 2 <= beginning[1] <= 5
    return beginning[:2] in (b"(d", b"(l", b"(t", b"}q", b"]q", b"}.", b"cc")


def read(
    data: bytes | memoryview, name: str, return_numpy: bool = False, keep_name_table: bool = False
) -> tuple[Any, int]:
    """(the object in a Paddle file, how many bytes it took); `name` is for messages."""
    found, used = load_prefix(data, name)
    return _interpreted(found, name, return_numpy, keep_name_table), used


def _interpreted(found: Any, name: str, return_numpy: bool, keep_name_table: bool) -> Any:
    """Arrays as the tensors that they were."""
    if not isinstance(found, dict):
        return _as_tensors(found, return_numpy)
    _join_pieces(found, name)
    table = found.get(NAME_TABLE)
    if table is None:
        return _as_tensors(found, return_numpy)
    if not isinstance(table, dict):
        raise FileFormatError(f"[load] {name} is damaged: its table of names is no dictionary")
    for key, label in table.items():
        if key not in found:
            raise FileFormatError(f"[load] {name} is damaged: {key!r} is named and missing")
        if isinstance(found[key], np.ndarray):
            found[key] = _tensor(found[key], label, return_numpy)
    if not keep_name_table:
        del found[NAME_TABLE]
    return found


def _join_pieces(found: dict[str, Any], name: str) -> None:
    table = found.pop(_PIECES, None)
    if table is None:
        return
    try:
        for key, entry in table.items():
            pieces = [found.pop(part) for part in entry["slices"]]
            found[key] = np.concatenate(pieces).reshape(entry["OriginShape"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise FileFormatError(
            f"[load] {name} is damaged: the pieces of a large tensor do not fit together"
        ) from None


def _as_tensors(found: Any, return_numpy: bool) -> Any:
    """Named pairs become tensors; where there are none, every array does."""
    is_tensor = _is_pair if _any(found, _is_pair, set()) else _is_array
    return _Converter(is_tensor, return_numpy).convert(found)


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], np.ndarray)
    )


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _any(value: Any, test: Any, seen: set[int]) -> bool:
    if test(value):
        return True
    if not isinstance(value, dict | list | tuple) or id(value) in seen:
        return False
    seen.add(id(value))  # shared containers are looked at once
    items = value.values() if isinstance(value, dict) else value
    return any(_any(v, test, seen) for v in items)


class _Converter:
    """Replaces arrays in containers by tensors; what is shared stays shared."""

    def __init__(self, is_tensor: Any, return_numpy: bool):
        self.is_tensor, self.return_numpy = is_tensor, return_numpy
        self._done: dict[int, tuple[Any, Any]] = {}

    def convert(self, value: Any) -> Any:
        done = self._done.get(id(value))
        if done is not None:
            return done[1]
        if self.is_tensor(value):
            label, array = value if isinstance(value, tuple) else (None, value)
            made = _tensor(array, label, self.return_numpy)
        elif isinstance(value, dict):
            for k, v in value.items():
                value[k] = self.convert(v)
            made = value
        elif isinstance(value, list):
            value[:] = [self.convert(v) for v in value]
            made = value
        elif isinstance(value, tuple):
            made = tuple([self.convert(v) for v in value])
        else:
            return value
        self._done[id(value)] = (value, made)
        return made


def _tensor(array: np.ndarray, label: Any, return_numpy: bool) -> Any:
    if return_numpy or array.dtype.kind not in "biufcV":
        return array
    if array.dtype == np.uint16:
        array = array.view(dt.bfloat16.numpy)
    made = constant(array)
    made._name = label if isinstance(label, str) else None
    return made
