"""Generators: each hands out the keys of random ops.

A random op takes a key `(seed, offset)` of two Python integers, fixed when the call is recorded and
passed as run-time inputs. `ops/random_bits.py` turns a key into bits.
"""

from __future__ import annotations

import secrets
import threading
from typing import Any, NamedTuple

from bireme.core import trace
from bireme.core.errors import TypeMismatch


class RngState(NamedTuple):
    """All that a Generator remembers: its seed, and how many keys it has given. A tuple of plain
    numbers, so that every file format keeps it."""

    seed: int
    offset: int

    def current_seed(self) -> int:
        return self.seed


class Generator:
    """A stream of keys. Two generators with equal state hand out equal keys."""

    def __init__(self, seed: int | None = None):
        self._lock = threading.Lock()
        self._offset = 0
        self._seed = secrets.randbits(32) if seed is None else _as_int64(seed)

    def next_key(self) -> tuple[int, int]:
        """The key of a random op that is being recorded."""
        return trace.state.trace.next_key(self)

    def draw(self) -> tuple[int, int]:
        """A key that this generator has not given before."""
        with self._lock:
            offset = self._offset
            self._offset = offset + 1
            return self._seed, offset

    def give_back(self, key: tuple[int, int]) -> None:
        """Undo the last `draw`, which gave this key; nothing where others have drawn since."""
        with self._lock:
            if (self._seed, self._offset - 1) == key:
                self._offset -= 1

    def manual_seed(self, seed: int) -> Generator:
        """Start over from `seed`."""
        self.set_state((_as_int64(seed), 0))
        return self

    def initial_seed(self) -> int:
        return self._seed

    def get_state(self) -> RngState:
        with self._lock:
            return RngState(self._seed, self._offset)

    def set_state(self, state: RngState | tuple[int, int]) -> None:
        fits = isinstance(state, tuple | list) and len(state) == 2
        if not fits or not all(type(n) is int for n in state) or state[1] < 0:
            raise TypeMismatch(
                "a generator's state must come from get_state() or paddle.get_rng_state(), also by "
                f"way of paddle.save. Received: {state!r:.80}"
            )
        with self._lock:
            self._seed, self._offset = _as_int64(state[0]), state[1]


def _as_int64(seed: Any) -> int:
    try:
        number = int(seed)
    except (TypeError, ValueError):
        raise TypeMismatch(f"a seed must be an integer. Received: {seed!r}") from None
    number &= 2**64 - 1
    return number - 2**64 if number >= 2**63 else number


default_generator = Generator()


def seed(seed: int) -> Generator:
    """Make every random operation from here on repeatable."""
    return default_generator.manual_seed(seed)


def next_key() -> tuple[int, int]:
    """(seed, offset) for one random op, from the default generator."""
    return default_generator.next_key()


def get_rng_state(device: str | None = None) -> list[RngState]:
    """The default generator's state, for `set_rng_state`. One generator serves all devices."""
    return [default_generator.get_state()]


def set_rng_state(state_list: list[RngState], device: str | None = None) -> None:
    """Continue from a state that `get_rng_state` returned."""
    if not isinstance(state_list, list | tuple) or len(state_list) != 1:
        raise TypeMismatch(
            "set_rng_state takes the list that get_rng_state returned. "
            f"Received: {type(state_list).__name__}"
        )
    default_generator.set_state(state_list[0])
