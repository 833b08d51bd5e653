"""`paddle.set_flags` and `paddle.get_flags`: the switches of Paddle that mean something here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from bireme.core import config, trace
from bireme.core.errors import InvalidArgument, TypeMismatch


class _Flag(NamedTuple):
    """Reads and writes one setting of the engine."""

    read: Callable[[], Any]
    write: Callable[[Any], None]


def _check_nan_inf(value: Any) -> None:
    trace.flush()  # what was recorded before belongs to the setting of before
    config.check_nan_inf = bool(value)


def _run_each_op(value: Any) -> None:
    trace.flush()
    config.eager_mode = "op" if value else "step"
    trace.state.trace.limit = config.trace_limit()


def _always_on(value: Any) -> None:
    if not value:
        raise InvalidArgument(
            "[set_flags] reshape, transpose, slices and the like always share memory here, so "
            "FLAGS_use_stride_kernel cannot be False; write x.clone() where you need a copy"
        )


_FLAGS = {
    # A NaN or an infinity in a result raises and names the op that made it.
    "FLAGS_check_nan_inf": _Flag(lambda: config.check_nan_inf, _check_nan_inf),
    # Every op runs at its call, so that time is spent where it belongs.
    "FLAGS_benchmark": _Flag(lambda: config.eager_mode == "op", _run_each_op),
    # Views share memory with what they are views of.
    "FLAGS_use_stride_kernel": _Flag(lambda: True, _always_on),
}


def _flag(function: str, name: Any) -> _Flag:
    found = _FLAGS.get(name)
    if found is None:
        raise InvalidArgument(
            f"[{function}] {name!r} is no flag of this engine; it has {', '.join(_FLAGS)}. "
            "Settings of XLA are environment variables such as XLA_FLAGS"
        )
    return found


def set_flags(flags: dict[str, Any]) -> None:
    """Change switches at run time.

    >>> set_flags({"FLAGS_check_nan_inf": True})
    """
    if not isinstance(flags, dict):
        raise TypeMismatch(f"[set_flags] takes a dict. Received: {type(flags).__name__}")
    chosen = [(_flag("set_flags", name), value) for name, value in flags.items()]
    for flag, value in chosen:
        flag.write(value)


def get_flags(flags: str | Iterable[str]) -> dict[str, Any]:
    """The present values of one or several switches."""
    if not isinstance(flags, str | list | tuple):
        raise TypeMismatch(
            f"[get_flags] takes a name or a list of them. Received: {type(flags).__name__}"
        )
    names = [flags] if isinstance(flags, str) else flags
    return {name: _flag("get_flags", name).read() for name in names}


def disable_signal_handler() -> None:
    """Leave signals to the program. Bireme installs no handlers, so there is nothing to undo."""


__all__ = ["disable_signal_handler", "get_flags", "set_flags"]
