"""The one cache: its bound, what it evicts, threads that share it, and its warning."""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.cache import BoundedCache, CacheThrashing

KEYS = st.integers(0, 9)


@given(st.integers(1, 6), st.lists(st.tuples(st.sampled_from(["get", "add", "entry"]), KEYS)))
def test_it_is_a_cache_of_the_latest_used(capacity: int, steps: list[tuple[str, int]]) -> None:
    cache: BoundedCache[int, str] = BoundedCache(capacity)
    model: OrderedDict[int, str] = OrderedDict()
    for number, (verb, key) in enumerate(steps):
        if verb == "add":
            had = key in model
            expected = model.setdefault(key, f"value {number}")
            assert cache.add(key, f"value {number}") == expected
            if not had and len(model) > capacity:
                model.popitem(last=False)
        else:
            if key in model:
                model.move_to_end(key)
            entry = cache.entry(key)
            got = cache.get(key) if verb == "get" else None if entry is None else entry.value
            assert got == model.get(key)
        assert dict(cache.items()) == model
        assert len(cache) == len(model) <= capacity
        assert (key in cache) is (key in model)


def test_an_entry_that_is_touched_stays() -> None:
    cache: BoundedCache[int, str] = BoundedCache(2)
    first = cache.add_entry(1, "one")
    for key in range(2, 20):
        first.touch()
        cache.add(key, "another")
    assert cache.get(1) == "one"


def test_the_capacity_may_change() -> None:
    capacity = [5]
    cache: BoundedCache[int, int] = BoundedCache(lambda: capacity[0])
    for key in range(5):
        cache.add(key, key)
    capacity[0] = 2
    cache.add(5, 5)
    assert cache.values() == [4, 5]


def test_threads_get_one_value_for_a_key() -> None:
    cache: BoundedCache[int, object] = BoundedCache(64)
    start = threading.Barrier(8)
    seen: list[list[object]] = []

    def work() -> None:
        start.wait()
        seen.append([cache.add(key, object()) for key in range(64)])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8
    assert all(values == seen[0] for values in seen)


def test_the_bound_holds_among_threads() -> None:
    cache: BoundedCache[int, int] = BoundedCache(8)

    def work(first: int) -> None:
        for key in range(first, 4000, 4):
            cache.add(key % 100, key)
            cache.get((key * 7) % 100)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache) == 8


def test_thrashing_is_loud_once() -> None:
    cache: BoundedCache[int, int] = BoundedCache(3, "set THE_SETTING")

    def thrash() -> None:
        for key in [*range(4)] * 10:
            cache.add(key, key)

    with pytest.warns(CacheThrashing, match=r"3 entries.*more than 6 .*set THE_SETTING") as caught:
        thrash()
    assert len(caught) == 1


def test_new_keys_are_no_thrashing() -> None:
    cache: BoundedCache[int, int] = BoundedCache(3, "set THE_SETTING")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for key in range(1000):
            cache.add(key, key)
    assert len(cache._evicted) <= 2 * 3 + 1


def test_an_eviction_hashes_no_other_key() -> None:
    """Keys of programs are long."""
    hashed: list[int] = []

    class Key(int):
        def __hash__(self) -> int:
            hashed.append(int(self))
            return int(self)

    cache: BoundedCache[Key, int] = BoundedCache(100)
    for i in range(300):
        hashed.clear()
        cache.add(Key(i), i)
        assert len(hashed) <= 5
    assert cache.values() == list(range(200, 300))
