"""Errors that help: what was wrong, what was received, what to write instead.

Every class also derives from the built-in that Paddle raises in the same place, so that
existing `except ValueError` code keeps working.
"""

from __future__ import annotations

import os
import sys
import traceback
from types import FrameType, TracebackType
from typing import Any

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class BiremeError(Exception):
    """Base of all errors that Bireme raises on purpose."""


class ShapeMismatch(BiremeError, ValueError):
    """Shapes, ranks or axes that do not fit the operation."""


class TypeMismatch(BiremeError, TypeError):
    """A dtype or a Python type that the operation does not take."""


class InvalidArgument(BiremeError, ValueError):
    """An argument outside its allowed values."""


class IndexOutOfRange(BiremeError, IndexError):
    """An index or axis outside the tensor."""


class PositionOutOfRange(IndexOutOfRange, InvalidArgument):
    """A position that the tensor does not have; Paddle raises either built-in."""


class AutogradError(BiremeError, RuntimeError):
    """A gradient that cannot be computed as asked."""


class CaptureError(BiremeError, RuntimeError):
    """Something that a captured graph cannot contain."""


class ExecutionError(BiremeError, RuntimeError):
    """A failure while the recorded operations ran."""


class OutOfMemory(ExecutionError, MemoryError):
    """The device ran out of memory while the recorded operations ran."""


def not_a_tensor(function: str, argument: str, given: Any) -> TypeMismatch:
    """The complaint about something else where a tensor belongs."""
    convertible = isinstance(given, list | tuple) or type(given).__module__ == "numpy"
    hint = "convert it with paddle.to_tensor(...)" if convertible else "pass a Tensor"
    shown = f" {given!r}" if len(repr(given)) < 60 else ""
    return TypeMismatch(
        f"[{function}] argument '{argument}' must be a Tensor. Received: "
        f"{type(given).__name__}{shown}; {hint}"
    )


def second_name(function: str, mine: str, given: Any, other: str, value: Any) -> Any:
    """`value`, given under a second name of the parameter `mine`, which must be free."""
    if given is not None:
        raise TypeMismatch(
            f"[{function}] {other!r} is another name for {mine!r}; give one of them. Received: both"
        )
    return value


def is_internal(filename: str) -> bool:
    return filename.startswith((_PACKAGE, "<bireme "))


def user_frame() -> FrameType | None:
    """The innermost frame outside Bireme: the line the user wrote."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_internal(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def user_line() -> str:
    """`file:line` of the user's call, for messages about things that happen later."""
    frame = user_frame()
    return "unknown" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def without_internal_frames(tb: TracebackType | None) -> TracebackType | None:
    """The same traceback with the frames inside Bireme (and the JAX below it) left out."""
    kept = []
    while tb is not None:
        if not is_internal(tb.tb_frame.f_code.co_filename):
            kept.append(tb)
        elif kept and all(is_below(t) for t in _rest(tb)):
            break
        tb = tb.tb_next
    result: TracebackType | None = None
    for entry in reversed(kept):
        result = TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return result


def _rest(tb: TracebackType) -> list[TracebackType]:
    entries = []
    nxt: TracebackType | None = tb
    while nxt is not None:
        entries.append(nxt)
        nxt = nxt.tb_next
    return entries


def is_below(tb: TracebackType) -> bool:
    name = tb.tb_frame.f_code.co_filename
    return is_internal(name) or f"{os.sep}jax{os.sep}" in name or f"{os.sep}numpy{os.sep}" in name


def _excepthook(kind: type[BaseException], error: BaseException, tb: Any) -> None:
    if isinstance(error, BiremeError) and not os.environ.get("BIREME_FULL_TRACEBACK"):
        tb = without_internal_frames(tb)
        traceback.print_exception(kind, error.with_traceback(tb), tb)
    else:
        _previous_hook(kind, error, tb)


_previous_hook = sys.excepthook


def install_traceback_filter() -> None:
    """Show users their own lines only; `BIREME_FULL_TRACEBACK=1` shows everything."""
    global _previous_hook
    if sys.excepthook is not _excepthook:
        _previous_hook = sys.excepthook
        sys.excepthook = _excepthook
