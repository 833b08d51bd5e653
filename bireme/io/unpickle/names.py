"""The names that a file may ask for, and what they do here."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.io.unpickle.machine import ArrayShell, Damaged, Known, Machine, TypeShell

# What NumPy writes: a kind and a size. It understands much more, some of it with warnings.
_PLAIN_TYPE = re.compile(r"[|<>=]?[biufcSU]\d{1,6}")


def _element_type(machine: Machine, args: tuple[Any, ...]) -> TypeShell:
    spec = args[0]
    if isinstance(spec, Known) and spec.name.startswith("ml_dtypes."):
        return TypeShell(dt.as_dtype(spec.name.partition(".")[2]).numpy)
    if not isinstance(spec, str) or not _PLAIN_TYPE.fullmatch(spec):
        raise machine.refuse("an unusual array type")
    dtype = np.dtype(spec)
    if dtype.kind not in "biufcSU" or dtype.hasobject or dtype.fields or dtype.subdtype:
        raise machine.refuse(f"arrays of type {spec!r}")
    return TypeShell(dtype)


def _new_array(machine: Machine, args: tuple[Any, ...]) -> ArrayShell:
    if not args or not isinstance(args[0], Known) or args[0].name != "numpy.ndarray":
        raise machine.refuse("an unusual kind of array")
    return ArrayShell()


def _array_from_buffer(machine: Machine, args: tuple[Any, ...]) -> ArrayShell:
    content, dtype, shape, order = args
    return ArrayShell(machine.array(shape, dtype, order == "F", content))


def _scalar(machine: Machine, args: tuple[Any, ...]) -> Any:
    dtype, content = args
    return machine.array((), dtype, False, content)[()]


def _encode(machine: Machine, args: tuple[Any, ...]) -> bytes:
    text, encoding = args
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise machine.refuse("an unusual text encoding")
    return machine.as_bytes(text)


def _only_data(machine: Machine, args: tuple[Any, ...]) -> Any:
    """Paddle writes its DenseTensor as eval('data', {'data': array}); nothing else is taken."""
    if len(args) == 2 and args[0] == "data" and isinstance(args[1], dict):
        found = args[1].get("data")
        if isinstance(found, ArrayShell) and len(args[1]) == 1:
            return found
    raise machine.refuse("the evaluation of Python code")


def _container(kind: type) -> Callable[[Machine, tuple[Any, ...]], Any]:
    def make(machine: Machine, args: tuple[Any, ...]) -> Any:
        if not args:
            return kind()
        (content,) = args
        if not isinstance(content, list | tuple):
            raise machine.refuse(f"an unusual {kind.__name__}")
        machine.copying(16 * len(content))
        if kind in (dict, OrderedDict):
            made = kind()
            for pair in content:
                key, value = pair
                made[checked_key(machine, key)] = value
            return made
        if kind in (set, frozenset):
            return kind([checked_key(machine, item) for item in content])
        return kind(content)

    return make


def _bytes(kind: type) -> Callable[[Machine, tuple[Any, ...]], Any]:
    def make(machine: Machine, args: tuple[Any, ...]) -> Any:
        if not args:
            return kind()
        if len(args) == 2:
            return kind(_encode(machine, args))
        if not isinstance(args[0], bytes | memoryview):
            raise machine.refuse("unusual bytes")
        machine.copying(len(args[0]))
        return kind(args[0])

    return make


def _complex(machine: Machine, args: tuple[Any, ...]) -> complex:
    real, imag = args
    if type(real) is not float or type(imag) is not float:
        raise machine.refuse("an unusual complex number")
    return complex(real, imag)


def _table() -> dict[tuple[str, str], Known]:
    found: dict[tuple[str, str], Known] = {}

    def add(modules: str, name: str, call: Any) -> None:
        for module in modules.split():
            found[module, name] = Known(f"{modules.split()[0]}.{name}", call)

    core = "numpy.core.multiarray numpy._core.multiarray"
    add(core, "_reconstruct", _new_array)
    add(core, "scalar", _scalar)
    add("numpy.core.numeric numpy._core.numeric", "_frombuffer", _array_from_buffer)
    add("numpy", "ndarray", None)
    add("numpy", "dtype", _element_type)
    add("_codecs", "encode", _encode)
    add("collections", "OrderedDict", _container(OrderedDict))
    for kind in (tuple, list, dict, set, frozenset):
        add("builtins __builtin__", kind.__name__, _container(kind))
    add("builtins __builtin__", "bytearray", _bytes(bytearray))
    add("builtins __builtin__", "bytes", _bytes(bytes))
    add("builtins __builtin__", "complex", _complex)
    add("builtins __builtin__", "eval", _only_data)
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        add("ml_dtypes ml_dtypes._ml_dtypes_ext", name, None)
    return found


KNOWN = _table()


def checked_key(machine: Machine, key: object) -> Any:
    """Keys are hashed by Python, so they are kept simple: deep tuples could crash it."""
    if key is None or isinstance(key, str | bytes):
        return key
    if isinstance(key, float | complex | np.generic):
        machine.count_key(key)
        return key
    if isinstance(key, int):
        if key.bit_length() > 64:
            raise Damaged("a dictionary key is a huge number")
        return key
    if isinstance(key, tuple) and len(key) <= 64 and not any(isinstance(k, tuple) for k in key):
        made = tuple([checked_key(machine, k) for k in key])
        machine.count_key(made)
        return made
    raise machine.refuse(f"a dictionary key of type {type(key).__name__}")
