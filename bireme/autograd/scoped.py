"""Settings of the recorder for a `with` block, restored whatever happens.

Python may raise KeyboardInterrupt at the first instruction of `__exit__`, before it has restored
anything. So each block that is entered is noted on a stack of its thread. The exit of an outer
block ends inner ones that are still noted, and so does the end of the block object's life.
"""

from __future__ import annotations

import threading
from typing import Any, ClassVar

from bireme.core.trace import state


class _Blocks(threading.local):
    """The blocks of this thread that were entered, innermost last: (token, setting, its value
    before)."""

    def __init__(self) -> None:
        self.entered: list[tuple[object, str, Any]] = []


_blocks = _Blocks()


class Scoped:
    """Base of context managers that change one setting of the recorder."""

    _attribute: ClassVar[str]  # the attribute of a trace

    def __init__(self) -> None:
        self._tokens: list[object] = []

    def _begin(self, value: Any) -> None:
        """Enter a block in which the setting is `value`."""
        token = object()
        self._tokens.append(token)
        # The current trace each time: a flush inside the block replaces it.
        _blocks.entered.append((token, self._attribute, getattr(state.trace, self._attribute)))
        setattr(state.trace, self._attribute, value)

    def __exit__(self, *exc: Any) -> None:
        if self._tokens:
            _end(self._tokens[-1])
            del self._tokens[-1:]

    def __del__(self) -> None:
        for token in getattr(self, "_tokens", ())[::-1]:
            _end(token)


def _end(token: object) -> None:
    """Restore the settings from before the block of this token; no effect if it has ended."""
    entered = _blocks.entered
    for at in range(len(entered) - 1, -1, -1):
        if entered[at][0] is token:
            for _, setting, before in reversed(entered[at:]):
                setattr(state.trace, setting, before)
            del entered[at:]
            return
