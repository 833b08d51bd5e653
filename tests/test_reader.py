"""paddle.reader: readers made of readers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bireme import reader


def ten() -> Iterator[int]:
    yield from range(10)


def pairs() -> Iterator[tuple[int, int]]:
    yield from zip(range(10), range(10, 20), strict=True)


def test_against_paddle(paddle: Any) -> None:
    for lib in (paddle.reader, reader):
        assert list(lib.map_readers(lambda a, b: a * b, ten, ten)()) == [i * i for i in range(10)]
        assert list(lib.chain(ten, ten)()) == [*range(10)] * 2
        assert list(lib.compose(ten, pairs)())[3] == (3, 3, 13)
        assert list(lib.firstn(ten, 4)()) == [0, 1, 2, 3]
        assert list(lib.buffered(ten, 3)()) == [*range(10)]
        assert sorted(lib.shuffle(ten, 4)()) == [*range(10)]
        assert list(lib.cache(ten)()) == [*range(10)]
        for order in (True, False):
            mapped = list(lib.xmap_readers(lambda i: i + 1, ten, 3, 4, order)())
            assert (mapped if order else sorted(mapped)) == [*range(1, 11)]
    assert sorted(reader.multiprocess_reader([ten, ten])()) == sorted([*range(10)] * 2)


def test_errors_reach_the_program() -> None:
    def bad() -> Iterator[int]:
        yield 1
        raise KeyError("lost")

    for made in (reader.buffered(bad, 2), reader.multiprocess_reader([bad])):
        with pytest.raises(KeyError, match="lost"):
            list(made())
    with pytest.raises(reader.ComposeNotAligned, match="different numbers"):
        list(reader.compose(ten, reader.firstn(ten, 3))())
    assert len(list(reader.compose(ten, reader.firstn(ten, 3), check_alignment=False)())) == 3


def test_a_pass_that_is_left_ends_its_threads() -> None:
    import threading

    before = threading.active_count()
    samples = reader.buffered(lambda: iter(range(1000)), 2)()
    assert next(iter(samples)) == 0
    samples.close()  # pyright: ignore[reportAttributeAccessIssue]
    for thread in threading.enumerate():
        if thread.name.startswith("Thread-"):
            thread.join(2)
    assert threading.active_count() <= before


@pytest.mark.parametrize("size", [0, 1])
def test_blocks_of_one_sample_keep_the_order(size: int) -> None:
    assert list(reader.shuffle(ten, size)()) == list(range(10))
