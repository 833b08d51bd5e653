"""Where a pass of a DataLoader over its data is, so that another process can go on from there.

The order of a pass is not kept: it is drawn again. A pass remembers the states in which NumPy's
generator and ours stood when its order was drawn, what its sampler says of itself, how many batches
were handed out, and a checksum of their sample numbers. Going on means drawing the order again from
those states and leaving out what was handed out; the checksum tells whether it is the same order.
"""

from __future__ import annotations

import itertools
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bireme.core import random as core_random
from bireme.core.errors import ExecutionError, InvalidArgument

_KEYS = {"batches", "order", "start", "sampler"}
_END = object()


def generators() -> dict[str, Any]:
    """The states of NumPy's global generator and of ours, in plain values."""
    found: Any = np.random.get_state(legacy=False)
    numpy = None
    if found["bit_generator"] == "MT19937":
        numpy = {
            "key": found["state"]["key"].astype("<u4").tobytes(),
            "pos": int(found["state"]["pos"]),
            "has_gauss": int(found["has_gauss"]),
            "gauss": float(found["gauss"]),
        }
    return {"numpy": numpy, "rng": list(core_random.default_generator.get_state())}


def _set_generators(states: dict[str, Any]) -> None:
    numpy = states["numpy"]
    if numpy is not None:
        key = np.frombuffer(numpy["key"], "<u4").astype(np.uint32)
        np.random.set_state(("MT19937", key, numpy["pos"], numpy["has_gauss"], numpy["gauss"]))
    core_random.default_generator.set_state(tuple(states["rng"]))


@contextmanager
def borrowed(states: dict[str, Any] | None = None) -> Iterator[None]:
    """Draw from generators in `states` inside the block; outside they are as before it."""
    numpy, ours = np.random.get_state(), core_random.default_generator.get_state()
    try:
        if states is not None:
            _set_generators(states)
        yield
    finally:
        np.random.set_state(numpy)
        core_random.default_generator.set_state(ours)


def sampler_state(sampler: object) -> Any:
    """What a sampler says of itself; None if it does not."""
    state = getattr(sampler, "state_dict", None)
    return None if state is None else state()


def set_sampler_state(sampler: object, state: object) -> None:
    load = getattr(sampler, "set_state_dict", None) or getattr(sampler, "load_state_dict", None)
    if state is None:
        return
    if load is None:
        raise InvalidArgument(
            "[DataLoader.set_state_dict] the state is that of a sampler with set_state_dict(). "
            f"Received: a {type(sampler).__name__}, which has none"
        )
    load(state)


class Position:
    """How far a pass is."""

    def __init__(self, start: dict[str, Any] | None, sampler: object):
        self.start = start
        self.sampler = sampler
        self.batches = 0
        self.order = 0  # the checksum of what was handed out
        self.over = False
        self._checks: deque[int] = deque()  # of what was asked for and not yet handed out

    def noted(self, requests: Iterator[Any]) -> Iterator[Any]:
        """The same requests, remembered until their batches are handed out."""
        check = self.order
        for request in requests:
            check = _checksum(request, check)
            self._checks.append(check)
            yield request

    def hand_out(self) -> None:
        self.batches += 1
        if self._checks:
            self.order = self._checks.popleft()

    def state(self) -> dict[str, Any]:
        return {
            "batches": self.batches,
            "order": self.order,
            "start": self.start,
            "sampler": self.sampler,
        }


def begin(
    requests: Callable[[], Iterator[Any]], sampler: object, resumed: dict[str, Any] | None
) -> tuple[Position, Iterator[Any]]:
    """A pass and what it asks for. The order is drawn here, in the thread of the loop."""
    if resumed is None:
        position = Position(generators(), sampler_state(sampler))
        return position, _drawn(position.noted(requests()))
    position = Position(resumed["start"], resumed["sampler"])
    with borrowed(resumed["start"]):
        rest = _drawn(position.noted(requests()))
        for done in range(resumed["batches"]):
            if next(rest, _END) is _END:
                raise ExecutionError(
                    f"[DataLoader] the state is at batch {resumed['batches']}, and the data have "
                    f"{done} batches now"
                )
            position.hand_out()
    if position.order != resumed["order"]:
        raise ExecutionError(
            f"[DataLoader] the first {resumed['batches']} batches are not those that were handed "
            "out before the state was saved. The dataset's length, the batch size or the sampler "
            "is another, or the sampler draws its order from elsewhere than numpy.random and "
            "paddle's generator: give it state_dict() and set_state_dict()"
        )
    return position, rest


def _drawn(items: Iterator[Any]) -> Iterator[Any]:
    """The same items, the first of them drawn now, and with it whatever order they are in."""
    first = next(items, _END)
    return iter(()) if first is _END else itertools.chain([first], items)


def _checksum(request: Any, before: int) -> int:
    try:
        data = np.asarray(request, "<i8").tobytes()
    except (TypeError, ValueError, OverflowError):
        data = repr(request).encode()
    return zlib.crc32(data, before)


def checked(state: object) -> dict[str, Any]:
    """A copy of a state that `DataLoader.state_dict` gave, or an error."""
    if not isinstance(state, dict) or set(state) != _KEYS:
        given = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
        raise InvalidArgument(
            f"[DataLoader.set_state_dict] takes what state_dict() gave, a dict of {sorted(_KEYS)}. "
            f"Received: {given}"
        )
    batches, start = state["batches"], state["start"]
    if not isinstance(batches, int) or isinstance(batches, bool) or batches < 0:
        raise InvalidArgument(
            f"[DataLoader.set_state_dict] 'batches' must be 0 or more. Received: {batches!r}"
        )
    if start is None and batches:
        raise InvalidArgument("[DataLoader.set_state_dict] a state inside a pass needs 'start'")
    if start is not None:
        try:
            with borrowed(start):
                pass
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidArgument(
                "[DataLoader.set_state_dict] 'start' is not what state_dict() gave: it holds no "
                "states of generators"
            ) from None
    return dict(state)
