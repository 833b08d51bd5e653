"""An exception on its way from a worker process to the parent.

It arrives as an exception of the same class, so that `except` clauses find it, with what the class
keeps besides its message (`errno`, `filename`, a program's own attributes). The constructor is not
called again: it may take other arguments or show its argument's repr, as KeyError does. A class
derived on the spot says the worker's traceback instead.
"""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

from bireme.core.errors import ExecutionError
from bireme.io import by_value

# These end loops, generators and processes when they are raised: not what the worker meant.
_SIGNALS = (StopIteration, StopAsyncIteration)


@dataclass
class Failure:
    """An exception as its class and contents, where they can be sent, and its text."""

    contents: bytes | None
    text: str


def failure(error: BaseException) -> Failure:
    """An exception as something that can be sent."""
    text = "".join(traceback.format_exception(error))
    if isinstance(error, _SIGNALS) or not isinstance(error, Exception):
        return Failure(None, text)
    try:
        kind = by_value.pickled(type(error))
    except Exception:
        return Failure(None, text)
    contents = [kind, _sendable(error.args)]
    contents += [(k, _sendable(v)) for k, v in _attributes(error).items()]
    return Failure(pickle.dumps(contents), text)


def _attributes(error: BaseException) -> dict[str, Any]:
    found = {}
    for cls in type(error).__mro__:
        if issubclass(cls, BaseException) and cls is not BaseException:
            for name, slot in vars(cls).items():
                if isinstance(slot, MemberDescriptorType | GetSetDescriptorType):
                    found[name] = getattr(error, name, None)
    found |= getattr(error, "__dict__", {})
    return {k: v for k, v in found.items() if not k.startswith("__") and v is not None}


def _sendable(value: Any) -> bytes | None:
    try:
        data = by_value.pickled(value)
        pickle.loads(data)
    except Exception:
        return None
    return data


def as_exception(failed: Failure, worker: int) -> BaseException:
    """The exception to raise in the parent."""
    message = f"[DataLoader] worker {worker} raised:\n\n{failed.text}"
    if failed.contents is None:
        return ExecutionError(message)
    try:
        return _rebuilt(pickle.loads(failed.contents), message)
    except Exception:  # a class that cannot be derived from, or made without its constructor
        return ExecutionError(message)


def _rebuilt(contents: list[Any], message: str) -> BaseException:
    kind = pickle.loads(contents[0])
    args = (message,) if contents[1] is None else pickle.loads(contents[1])
    said = {
        "__str__": lambda self: message,
        "__reduce__": lambda self: (_rebuilt, (contents, message)),  # for a second journey
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
    }
    derived = type(kind)(kind.__name__, (kind,), said)
    error = derived.__new__(derived, *args)
    error.args = args
    for name, data in contents[2:]:
        if data is not None:
            _set(error, name, pickle.loads(data))
    if isinstance(error, SyntaxError):
        error.msg = message  # which tracebacks show instead of str()
    return error


def _set(error: BaseException, name: str, value: Any) -> None:
    try:
        setattr(error, name, value)
    except (AttributeError, TypeError):  # read-only, such as a group's exceptions
        return
