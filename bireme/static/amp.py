"""paddle.static.amp: a program in mixed precision records under `paddle.amp.auto_cast`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def fp16_guard() -> Iterator[None]:
    """Marks a part of a program that a rewriting to float16 may take.

    Programs are not rewritten here, they record the types that `auto_cast` gives; so models that
    mark such parts run as they are.
    """
    yield


__all__ = ["fp16_guard"]
