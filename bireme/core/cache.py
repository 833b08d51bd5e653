"""A cache with a bound: when it is full, the entry unused for longest is evicted.

A hit notes when it happened and moves nothing, so it costs little more than a dict look-up and
takes no lock. The oldest entry is searched for when one must go, which a miss can afford: it has
just compiled a program, or captured a graph.
"""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Callable, ItemsView
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_clock = itertools.count(1)  # of all hits, in all caches


class CacheThrashing(UserWarning):
    """A cache evicts entries that are needed again."""


class Entry(Generic[V]):
    """A cached value, and when it was last used."""

    __slots__ = ("used", "value")

    def __init__(self, value: V):
        self.value = value
        self.used = next(_clock)

    def touch(self) -> None:
        """Note a use without a look-up, by the owner of a kept entry."""
        self.used = next(_clock)


def _used(item: tuple[Any, Entry[Any]]) -> int:
    return item[1].used


class BoundedCache(Generic[K, V]):
    """At most `capacity` values by their keys, for any number of threads.

    `capacity` may be a function, for a setting that changes at run time. With the name of a
    `setting` the cache warns, once, when it is too small: when more than twice its capacity of
    entries were made again after they had been evicted.
    """

    def __init__(self, capacity: int | Callable[[], int], setting: str | None = None):
        self._capacity = capacity
        self._setting = setting
        self._entries: dict[K, Entry[V]] = {}
        self._lock = threading.RLock()  # a destructor may run a program of its own
        self._oldest: list[tuple[K, Entry[V], int]] = []  # to evict next, from the end
        self._evicted: dict[int, None] = {}  # hashes of keys, the latest last
        self._made_again = 0

    @property
    def capacity(self) -> int:
        return self._capacity if isinstance(self._capacity, int) else self._capacity()

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.used = next(_clock)
        return entry.value

    def add(self, key: K, value: V) -> V:
        """The value of this key from now on: another thread may have been first."""
        return self.add_entry(key, value).value

    def entry(self, key: K) -> Entry[V] | None:
        """`get`, for callers that keep the entry and touch it instead of looking it up again."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.used = next(_clock)
        return entry

    def add_entry(self, key: K, value: V) -> Entry[V]:
        """`add`, for callers that keep the entry."""
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                return found
            capacity = self.capacity
            while self._entries and len(self._entries) >= capacity:
                self._evict()
            made = self._entries[key] = Entry(value)
            is_thrashing = self._setting is not None and self._returns_too_often(key, capacity)
        if is_thrashing:
            warnings.warn(
                f"a cache of {capacity} entries is too small: more than {2 * capacity} were made "
                f"again after they had been evicted. Make it larger: {self._setting}",
                CacheThrashing,
                stacklevel=3,
            )
        return made

    def _evict(self) -> None:
        entries = self._entries
        while True:
            if not self._oldest:
                # The oldest eighth: what is used after this is younger than all of it.
                order = sorted(entries.items(), key=_used, reverse=True)
                self._oldest = [(k, e, e.used) for k, e in order[-(1 + len(order) // 8) :]]
            oldest, entry, used = self._oldest.pop()
            if entry.used == used and entries.get(oldest) is entry:
                break
        del entries[oldest]
        if self._setting is not None:
            self._evicted[hash(oldest)] = None

    def _returns_too_often(self, key: K, capacity: int) -> bool:
        """Count an entry that was evicted before; True in the moment when it is one too many."""
        while len(self._evicted) > 2 * capacity:
            del self._evicted[next(iter(self._evicted))]
        if hash(key) not in self._evicted:
            return False
        del self._evicted[hash(key)]
        self._made_again += 1
        return self._made_again == 2 * capacity + 1

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._oldest = []

    def items(self) -> ItemsView[K, V]:
        """The entries of this moment. This does not count as using them."""
        return {key: entry.value for key, entry in list(self._entries.items())}.items()

    def values(self) -> list[V]:
        return [value for _, value in self.items()]

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries
