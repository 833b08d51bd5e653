"""Errors that help: what was wrong, what was received, what to write instead.

Every class also derives from the built-in that Paddle raises in the same place, so that
existing `except ValueError` code keeps working.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from types import FrameType, TracebackType

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class BiremeError(Exception):
    """Base of all errors that Bireme raises on purpose."""


class ShapeMismatch(BiremeError, ValueError, TypeError, AssertionError, RuntimeError):
    """Shapes, ranks or axes that do not fit the operation; Paddle raises each of them in some
    function."""


class TypeMismatch(BiremeError, TypeError, ValueError, AssertionError, RuntimeError):
    """A dtype or a Python type that the operation does not take.

    Paddle's functions check types in Python (TypeError, or an assert) or in C++ (ValueError, and
    RuntimeError if no kernel takes a dtype): a program that expects any of them is served."""


class NotATensor(TypeMismatch, AttributeError):
    """Something else where a tensor belongs; some functions of Paddle read its `dtype` at once."""


class InvalidArgument(BiremeError, ValueError, TypeError, AssertionError, RuntimeError):
    """An argument outside its allowed values; Paddle raises any of them, as above."""


class IndexOutOfRange(BiremeError, IndexError):
    """An index or axis outside the tensor."""


class PositionOutOfRange(IndexOutOfRange, InvalidArgument):
    """A position that the tensor does not have; Paddle raises either built-in."""


class AutogradError(BiremeError, RuntimeError, ValueError, AssertionError):
    """A gradient that cannot be computed as asked; Paddle raises any of them, by mode."""


class CaptureError(BiremeError, RuntimeError):
    """Something that a captured graph cannot contain."""


class ExecutionError(BiremeError, RuntimeError):
    """A failure while the recorded operations ran."""


class FileFormatError(BiremeError, ValueError):
    """A file that is not what it should be: foreign, damaged, or of a newer version."""


class OutOfMemory(ExecutionError, MemoryError):
    """The device ran out of memory while the recorded operations ran."""


def not_a_tensor(function: str, argument: str, given: object) -> NotATensor:
    """The complaint about something else where a tensor belongs."""
    convertible = isinstance(given, list | tuple) or type(given).__module__ == "numpy"
    hint = "convert it with paddle.to_tensor(...)" if convertible else "pass a Tensor"
    shown = f" {given!r}" if len(repr(given)) < 60 else ""
    return NotATensor(
        f"[{function}] argument '{argument}' must be a Tensor. Received: "
        f"{type(given).__name__}{shown}; {hint}"
    )


def is_internal(filename: str) -> bool:
    return filename.startswith((_PACKAGE, "<bireme "))


def user_frame() -> FrameType | None:
    """The innermost frame outside Bireme: the line the user wrote."""
    frames = traceback.walk_stack(sys._getframe(1))
    return next((f for f, _ in frames if not is_internal(f.f_code.co_filename)), None)


def calling_modules() -> list[str]:
    """The names of the modules whose code is running, innermost first."""
    frames = traceback.walk_stack(sys._getframe(1))
    return [frame.f_globals.get("__name__", "") for frame, _ in frames]


def warn_user(message: str) -> None:
    """A UserWarning at the line that the user wrote."""
    frame = user_frame()
    where = ("unknown", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
    warnings.warn_explicit(message, UserWarning, *where)


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
    entries = [tb]
    while (inner := entries[-1].tb_next) is not None:
        entries.append(inner)
    return entries


def is_below(tb: TracebackType) -> bool:
    name = tb.tb_frame.f_code.co_filename
    return is_internal(name) or f"{os.sep}jax{os.sep}" in name or f"{os.sep}numpy{os.sep}" in name


def shows_internal_frames() -> bool:
    """Whether the user wants to see where in Bireme an error was raised."""
    return bool(os.environ.get("BIREME_FULL_TRACEBACK"))


def cut_internal_frames(error: BiremeError) -> None:
    """Leave Bireme's frames out of an error that is about to reach the user's code.

    For an `except` clause that ends in a bare `raise`: that adds no entry for its own frame.
    """
    if not shows_internal_frames():
        error.__traceback__ = without_internal_frames(error.__traceback__)
