"""The line that says what a program waits for."""

from __future__ import annotations

import io
import threading
from concurrent.futures import Future

import pytest

from bireme.host import waiting


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(waiting, "_SILENT", 0.02)
    monkeypatch.setattr(waiting, "_PAUSE", 0.01)


def wait(stream, monkeypatch, later: bool) -> tuple[int, str]:
    monkeypatch.setattr(waiting.sys, "stderr", stream)
    future: Future[int] = Future()
    asked = threading.Event()

    def what() -> str:
        asked.set()
        return "compiling 3 ops"

    def end() -> None:
        if later:
            asked.wait(0.2 if not stream.isatty() else None)
        future.set_result(7)

    if later:
        threading.Thread(target=end).start()
    else:
        end()
    return waiting.result(future, what), stream.getvalue()


def test_a_long_wait_at_a_terminal_is_explained(monkeypatch):
    made, shown = wait(Terminal(), monkeypatch, later=True)
    assert made == 7
    assert shown.startswith("\rcompiling 3 ops: 0 s")
    assert shown.endswith("\r" + " " * len("compiling 3 ops: 0 s") + "\r")


def test_a_short_wait_and_a_log_file_show_nothing(monkeypatch):
    assert wait(Terminal(), monkeypatch, later=False) == (7, "")
    assert wait(io.StringIO(), monkeypatch, later=True) == (7, "")


def test_an_error_is_raised(monkeypatch):
    future: Future[int] = Future()
    future.set_exception(ValueError("wrong"))
    with pytest.raises(ValueError, match="wrong"):
        waiting.result(future, str)
