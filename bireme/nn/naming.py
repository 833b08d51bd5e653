"""Unique names for layers, parameters and optimizer state: `linear_0`, `linear_0.w_0` …

Names are what optimizer checkpoints are keyed by, so they follow Paddle's scheme exactly:
a key and a running number per key.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterator

_CAMEL = re.compile(r"(.)([A-Z][a-z]+)")
_CAMEL_END = re.compile(r"([a-z])([A-Z])")


class UniqueNames:
    """Hands out `prefix + key + '_' + n`, with a counter per key."""

    def __init__(self, prefix: str = ""):
        self.prefix = prefix
        self.counts: defaultdict[str, int] = defaultdict(int)

    def __call__(self, key: str) -> str:
        number = self.counts[key]
        self.counts[key] = number + 1
        return f"{self.prefix}{key}_{number}"


_current = UniqueNames()


def generate(key: str) -> str:
    """The next unused name for `key`."""
    return _current(key)


def switch(new_generator: UniqueNames | None = None) -> UniqueNames:
    """Use another set of counters from now on; returns the previous one."""
    global _current
    old, _current = _current, new_generator or UniqueNames()
    return old


@contextlib.contextmanager
def guard(new_generator: UniqueNames | str | None = None) -> Iterator[None]:
    """Names start afresh inside the block; a string becomes their prefix."""
    if isinstance(new_generator, str):
        new_generator = UniqueNames(new_generator)
    old = switch(new_generator)
    try:
        yield
    finally:
        switch(old)


def snake_case(name: str) -> str:
    """`BatchNorm2D` becomes `batch_norm2d`."""
    return _CAMEL_END.sub(r"\1_\2", _CAMEL.sub(r"\1_\2", name)).lower()
