"""A line that says how far a loop has come, how fast, and with what figures."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterable
from typing import Any, TextIO

import numpy as np


class ProgressBar:
    """Prints `step 3/10 - loss: 0.5 - 12ms/step`.

    `verbose` 1 redraws one line with a bar, 2 and 3 write a line at each update, 0 is silent.
    """

    def __init__(
        self,
        num: int | None = None,
        width: int = 30,
        verbose: int = 1,
        start: bool = True,
        file: TextIO | None = None,
        name: str = "step",
    ):
        if num is not None and num <= 0:
            raise TypeError(f"num must be None or positive. Received: {num}")
        columns = shutil.get_terminal_size().columns or 80
        self._num, self._verbose, self._name = num, verbose, name
        self._width = max(0, min(width, int(columns * 0.6), columns - 50))
        self._file = file
        self._drawn = 0
        self._start = time.time() if start else 0.0

    def start(self) -> None:
        """Measure from now on."""
        self._start = time.time()

    def update(self, current_num: float, values: Iterable[tuple[str, Any]] = ()) -> None:
        """Show that `current_num` steps are done, and the named values beside."""
        if not self._verbose:
            return
        each = (time.time() - self._start) / current_num if current_num else 0.0
        figures = "".join(f" - {name}: {_shown(value)}" for name, value in values)
        file = self._file or sys.stdout
        if self._verbose == 1:
            file.write(self._redrawn(current_num, figures, each))
        else:
            file.write(f"{self._count(current_num)}{figures}{self._speed(each)}\n")
        file.flush()

    def _count(self, current: float) -> str:
        if self._num is None:
            return f"{self._name} {current:3}"
        return f"{self._name} {int(current):{len(str(self._num))}d}/{self._num}"

    def _speed(self, seconds: float) -> str:
        if seconds >= 1 or seconds == 0:
            return f" - {seconds:.0f}s/{self._name}"
        if seconds >= 1e-3:
            return f" - {seconds * 1e3:.0f}ms/{self._name}"
        return f" - {seconds * 1e6:.0f}us/{self._name}"

    def _redrawn(self, current: float, figures: str, each: float) -> str:
        text = self._count(current)
        done = self._num is None or current >= self._num
        if self._num is not None:
            text += f" [{_bar(self._width, current / self._num)}]"
        text += figures
        if self._num is not None and not done:
            text += f" - ETA: {_duration(int(each * (self._num - current)))}"
        text += self._speed(each)
        before, self._drawn = self._drawn, len(text)
        start = "\r" if _can_redraw(self._file or sys.stdout) else "\n"
        return start + text.ljust(before) + ("\n" if done else "")


def _can_redraw(file: TextIO) -> bool:
    terminal = hasattr(file, "isatty") and file.isatty()
    return terminal or "ipykernel" in sys.modules or "PYCHARM_HOSTED" in os.environ


def _bar(width: int, part: float) -> str:
    full = int(width * min(part, 1.0))
    head = "" if full == 0 else "=" * (full - 1) + ("=" if part >= 1 else ">")
    return head + "." * (width - full)


def _duration(seconds: int) -> str:
    if seconds > 3600:
        return f"{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
    return f"{seconds // 60}:{seconds % 60:02}" if seconds > 60 else f"{seconds}s"


def _shown(value: Any) -> str:
    values = value if isinstance(value, list) else [value]
    return " ".join(_number(v) for v in values)


def _number(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    if isinstance(value, float | np.floating):
        return f"{value:.4f}" if abs(value) > 1e-3 else f"{value:.4e}"
    return str(value)
