"""Pickles that carry functions and classes which the reading process cannot import.

Pickle sends a function or class as its name. That fails for what a notebook, a REPL or a program
on the standard input defines, for lambdas, and for what a function defines: no file that a new
process could import has them. Those are sent by value here: their code, what their closures hold,
and the globals of `__main__` that they use. They come from this program and go to processes that
it has started, so nobody else's code is run.
"""

from __future__ import annotations

import ast
import dataclasses
import dis
import functools
import importlib
import io
import itertools
import marshal
import os
import pickle
import sys
import threading
import types
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from enum import EnumMeta
from multiprocessing import process
from types import (
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    ModuleType,
)
from typing import Any

_OWN_NAMES = ("bireme", "bireme.nn.functional", "bireme.linalg", "bireme.fft")
_NOT_SENT = {"__dict__", "__weakref__", "__module__", "__qualname__", "_abc_impl", "__slots__"}
_HEAP_TYPE = 1 << 9  # a class that Python code made
# What a dataclass compares by identity, found in its module again by name.
_MARKS = tuple(getattr(dataclasses, n) for n in ("MISSING", "_FIELD", "_FIELD_CLASSVAR"))

_numbers = itertools.count(1)
_process = int.from_bytes(os.urandom(8), "little")  # tells this process's tokens from others'
_sent: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
_originals: weakref.WeakValueDictionary[tuple[int, int], Any] = weakref.WeakValueDictionary()
_namespaces: dict[Any, dict[str, Any]] = {}


class Unsendable(pickle.PicklingError):
    """Something that cannot be sent, said in terms of the program."""


class Pickler(pickle.Pickler):
    """Sends by name what the reading process finds there, and by value what it does not."""

    def reducer_override(self, obj: object) -> Any:
        if isinstance(obj, FunctionType):
            return _function_or_name(obj)
        if isinstance(obj, type):
            back = _received.get(obj)
            if back is not None:
                return _original, back
            if _is_importable(obj):
                return NotImplemented
            return _class_parts(obj) if obj.__flags__ & _HEAP_TYPE else _type_by_name(obj)
        if isinstance(obj, ModuleType):
            return _module_name(obj)
        reduce = _REDUCED.get(type(obj))
        if reduce is not None:
            return reduce(obj)
        if any(obj is mark for mark in _MARKS):
            return next(n for n, v in vars(dataclasses).items() if v is obj)
        return NotImplemented


def pickled(obj: object) -> bytes:
    """An object as bytes, for a process of this program."""
    out = io.BytesIO()
    Pickler(out, pickle.HIGHEST_PROTOCOL).dump(obj)
    return out.getvalue()


# ---------------------------------------------------------------------- what is found by name


def _is_importable(obj: Any) -> bool:
    """Whether the reading process finds this function or class under its name."""
    module, name = obj.__module__, obj.__qualname__
    found = sys.modules.get(module) if isinstance(module, str) else None
    if found is None:
        return False
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not obj:
        return False
    return module not in ("__main__", "__mp_main__") or (
        name.partition(".")[0] in _names_of_main() and _is_of_main_file(obj)
    )


def _main_file() -> str | None:
    """The file that a new process runs again as its main module."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if path is None:
        return None
    return os.path.normpath(os.path.join(getattr(process, "ORIGINAL_DIR", None) or "", path))


_start_lock = threading.Lock()


@contextmanager
def startable_main() -> Iterator[None]:
    """While a process is started: a main module that the process does not run, unless its file is
    made for that.

    Multiprocessing runs the main file again in a new process. A script without a main guard would
    train there, and the file of a program from the standard input is called '<stdin>'. What such a
    program defines is sent by value.
    """
    main = vars(sys.modules["__main__"])
    path = _main_file()
    if path is None or runs_again(path):
        yield
        return
    with _start_lock:
        kept = {name: main[name] for name in ("__file__", "__spec__") if name in main}
        main.pop("__file__", None)
        # A spec without a loader names a module that looks at the program itself (compat_main).
        if getattr(main.get("__spec__"), "loader", None) is not None:
            main["__spec__"] = None
        try:
            yield
        finally:
            main.update(kept)


def runs_again(path: str) -> bool:
    """Whether processes may run this main file: it has an `if __name__ == "__main__":`."""
    try:
        return _parsed(path, os.stat(path).st_mtime_ns)[0]
    except OSError:
        return False


def _names_of_main() -> frozenset[str]:
    """What a process finds in its main module after it has run the main file."""
    path = _main_file()
    if path is None or not runs_again(path):
        return frozenset()
    return _parsed(path, os.stat(path).st_mtime_ns)[1]


@functools.lru_cache(maxsize=4)
def _parsed(path: str, changed: int) -> tuple[bool, frozenset[str]]:
    """Whether a file has a main guard, and what running it binds, without what stands there."""
    try:
        with open(path, "rb") as file:
            body = ast.parse(file.read()).body
    except (SyntaxError, ValueError):  # compiled or packed: believe what is there
        return True, frozenset(vars(sys.modules["__main__"]))
    return any(_is_guard(node) for node in body), frozenset(_bound(body))


def _is_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def _bound(nodes: Any) -> Iterator[str]:
    for node in nodes:
        if _is_guard(node):
            yield from _bound(node.orelse)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((a.asname or a.name.partition(".")[0]) for a in node.names)
        elif not isinstance(node, ast.Lambda):
            yield from _bound(ast.iter_child_nodes(node))


def _is_of_main_file(obj: Any) -> bool:
    """False for what was defined again after the file had run, as `python -i` allows."""
    path = _main_file()
    members = [obj] if isinstance(obj, FunctionType) else list(vars(obj).values())
    files = {
        f.__code__.co_filename
        for f in members
        if isinstance(f, FunctionType) and f.__module__ == obj.__module__
    }
    generated = {f for f in files if f.startswith("<") and not _is_typed_in(f)}
    return all(path is not None and _same_file(f, path) for f in files - generated)


def _is_typed_in(filename: str) -> bool:
    return filename.startswith(("<stdin>", "<python-input", "<ipython-input", "<console>"))


def _same_file(one: str, other: str) -> bool:
    original = getattr(process, "ORIGINAL_DIR", None) or ""
    return os.path.realpath(os.path.join(original, one)) == os.path.realpath(other)


def _module_name(module: ModuleType) -> Any:
    if sys.modules.get(module.__name__) is not module:
        raise Unsendable(f"the module {module.__name__!r} is not one that can be imported")
    return importlib.import_module, (module.__name__,)


def library_name(function: FunctionType) -> tuple[Any, ...] | None:
    """How a pickle names a function of this library: `paddle.add` is not what its module holds."""
    if str(function.__module__).partition(".")[0] == "bireme":
        for name in _OWN_NAMES:
            if getattr(sys.modules.get(name), function.__name__, None) is function:
                return _attribute, (name, function.__name__)
    return None


def _function_or_name(function: FunctionType) -> Any:
    own = library_name(function)
    if own is not None:
        return own
    back = _received.get(function)
    if back is not None:
        return _original, back
    return NotImplemented if _is_importable(function) else _function_parts(function)


def _type_by_name(cls: type) -> Any:
    """Classes of the interpreter, such as `types.CellType`, which say that they are builtins."""
    names = (n for n, v in vars(types).items() if v is cls)
    name = next(names, None)
    return NotImplemented if name is None else (_attribute, ("types", name))


def _attribute(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


# ------------------------------------------------------------------------------- by value: out


def _token(obj: Any) -> tuple[int, int]:
    """By which the reading process names what it was sent, when it sends it back."""
    token = _sent.get(obj)
    if token is None:
        token = _sent[obj] = (_process, next(_numbers))
        _originals[token] = obj
    return token


def _function_parts(function: FunctionType) -> Any:
    code = function.__code__
    module, scope = _scope(function)
    made = marshal.dumps(code), module, scope, function.__closure__, _token(function)
    state = {
        "__name__": function.__name__,
        "__qualname__": function.__qualname__,
        "__module__": function.__module__,
        "__doc__": function.__doc__,
        "__defaults__": function.__defaults__,
        "__kwdefaults__": function.__kwdefaults__,
        "__dict__": dict(vars(function)),
    }
    used = _used_globals(function, module)
    return _bare_function, made, (state, used, _submodules(code, used)), None, None, _fill_function


def _scope(function: FunctionType) -> tuple[str | None, tuple[int, int] | None]:
    """Where a function's globals are: in a module, or in a namespace of no module's."""
    for name in (function.__module__, "__main__"):
        found = sys.modules.get(name)
        if found is not None and vars(ModuleType)["__dict__"].__get__(found) is (
            function.__globals__
        ):
            return "__main__" if name == "__mp_main__" else name, None
    return None, (_process, id(function.__globals__))


def _used_globals(function: FunctionType, module: str | None) -> dict[str, Any]:
    if module not in (None, "__main__"):
        return {}
    there = _names_of_main() if module == "__main__" else frozenset()
    scope = function.__globals__
    names = _global_names(function.__code__)
    return {n: scope[n] for n in sorted(names) if n in scope and n not in there}


def _global_names(code: CodeType) -> set[str]:
    found = {
        i.argval
        for i in dis.get_instructions(code)
        if isinstance(i.argval, str) and ("_GLOBAL" in i.opname or i.opname == "LOAD_NAME")
    }
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _global_names(constant)
    return found


def _submodules(code: CodeType, used: dict[str, Any]) -> list[str]:
    """`import os.path` binds `os`; a new process must import both."""
    roots = {v.__name__ for v in used.values() if isinstance(v, ModuleType)}
    words = _attribute_names(code)
    return [
        name
        for root in sorted(roots)
        for name in sorted(sys.modules)
        if name.startswith(f"{root}.") and words.issuperset(name[len(root) + 1 :].split("."))
    ]


def _attribute_names(code: CodeType) -> set[str]:
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    return set(code.co_names).union(*map(_attribute_names, inner))


def _class_parts(cls: type) -> Any:
    if isinstance(cls, EnumMeta):
        return _enum, (cls.__name__, cls.__bases__, _members(cls), cls.__module__, _token(cls))
    given = vars(cls)
    slots = given.get("__slots__")
    made = type(cls), cls.__name__, cls.__bases__, slots, _token(cls)
    state = {
        name: value
        for name, value in given.items()
        if name not in _NOT_SENT
        and not (isinstance(value, MemberDescriptorType) and slots is not None)
        and not (name == "__doc__" and value is None)
    }
    state |= {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    return _bare_class, made, state, None, None, _fill_class


def _members(cls: EnumMeta) -> dict[str, Any]:
    members: Any = cls.__members__
    methods = {
        k: v
        for k, v in vars(cls).items()
        if isinstance(v, FunctionType | property | classmethod | staticmethod)
        and not k.startswith("_")
    }
    return {n: m.value for n, m in members.items()} | methods


def _cell_parts(cell: Any) -> Any:
    try:
        return CellType, (), (cell.cell_contents,), None, None, _fill_cell
    except ValueError:  # empty
        return CellType, ()


def _cached_parts(wrapper: Any) -> Any:
    return _cached, (wrapper.cache_parameters(), wrapper.__wrapped__)


_REDUCED: dict[type, Any] = {
    CellType: _cell_parts,
    MappingProxyType: lambda m: (MappingProxyType, (dict(m),)),
    property: lambda p: (property, (p.fget, p.fset, p.fdel, p.__doc__)),
    classmethod: lambda m: (classmethod, (m.__func__,)),
    staticmethod: lambda m: (staticmethod, (m.__func__,)),
    functools.cached_property: lambda p: (_cached_property, (p.func, p.attrname)),
    functools._lru_cache_wrapper: _cached_parts,
}


# -------------------------------------------------------------------------------- by value: in

_received: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()


def _original(*token: int) -> Any:
    """What a process gets back of what it had sent."""
    found = _originals.get(token)  # pyright: ignore[reportArgumentType]
    if found is None:
        raise pickle.UnpicklingError("a function or class that was sent is no longer there")
    return found


def _namespace(module: str | None, scope: tuple[int, int] | None) -> dict[str, Any]:
    if module is not None:
        return vars(ModuleType)["__dict__"].__get__(importlib.import_module(module))
    return _namespaces.setdefault(scope, {"__builtins__": __builtins__})


def _bare_function(
    code: bytes, module: str | None, scope: Any, cells: Any, token: tuple[int, int]
) -> FunctionType:
    made = FunctionType(marshal.loads(code), _namespace(module, scope), None, None, cells)
    _received[made] = token
    return made


def _fill_function(function: FunctionType, state: Any) -> None:
    attributes, used, submodules = state
    scope = function.__globals__
    scope.setdefault("__name__", attributes["__module__"])
    for name, value in used.items():
        scope.setdefault(name, value)
    for name in submodules:
        importlib.import_module(name)
    vars(function).update(attributes.pop("__dict__"))
    for name, value in attributes.items():
        setattr(function, name, value)


def _bare_class(meta: Any, name: str, bases: Any, slots: Any, token: tuple[int, int]) -> type:
    made = meta(name, bases, {} if slots is None else {"__slots__": slots})
    _received[made] = token
    return made


def _fill_class(cls: Any, state: dict[str, Any]) -> None:
    abstract = state.pop("__abstractmethods__", None)
    for name, value in state.items():
        setattr(cls, name, value)
    if abstract is not None:
        cls.__abstractmethods__ = abstract


def _enum(name: str, bases: Any, members: Any, module: str, token: tuple[int, int]) -> Any:
    meta = type(bases[-1])
    body = meta.__prepare__(name, bases)
    for key, value in members.items():
        body[key] = value
    body["__module__"] = module
    made = meta(name, bases, body)
    _received[made] = token
    return made


def _fill_cell(cell: Any, contents: tuple[Any]) -> None:
    (cell.cell_contents,) = contents


def _cached(parameters: dict[str, Any], function: Any) -> Any:
    return functools.lru_cache(**parameters)(function)


def _cached_property(function: Any, name: str | None) -> Any:
    made: Any = functools.cached_property(function)
    if name is not None:
        made.__set_name__(object, name)
    return made


__all__ = ["Pickler", "Unsendable", "pickled", "runs_again", "startable_main"]
