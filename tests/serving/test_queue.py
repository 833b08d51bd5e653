"""The queue alone, with a made-up clock."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bireme.serving.errors import Expired, Overloaded, TooLarge
from bireme.serving.queue import Item, Limits, Queue


def item(rows: int = 1, key: Any = "k", outcomes: list[Any] | None = None, **more: Any) -> Item:
    return Item(object(), rows, key, (outcomes if outcomes is not None else []).append, **more)


def test_a_batch_is_what_came_while_the_last_one_ran() -> None:
    queue = Queue(Limits(), most=4)
    first = item()
    queue.put(first, 0.0)
    assert queue.take(0.0)[0] == [first]
    others = [item() for _ in range(6)]
    for other in others:
        queue.put(other, 0.1)
    queue.finished(0.1)
    assert queue.take(0.1)[0] == others[:4]
    assert queue.take(0.1)[0] == others[4:]
    assert queue.take(0.1) == ([], math.inf)
    assert (queue.count, queue.bytes, queue.rows) == (0, 0, 0)


def test_only_requests_of_one_key_and_no_more_rows_than_fit_run_together() -> None:
    queue = Queue(Limits(), most=4)
    a, b, c, d = item(3), item(1, "other"), item(2), item(1)
    for one in (a, b, c, d):
        queue.put(one, 0.0)
    assert queue.take(0.0)[0] == [a]  # c would not fit, and d does not overtake it
    assert queue.take(0.0)[0] == [b]
    assert queue.take(0.0)[0] == [c, d]


def test_a_delay_waits_for_a_full_batch() -> None:
    queue = Queue(Limits(), most=2, delay=1.0)
    queue.put(item(), 0.0)
    assert queue.take(0.5) == ([], 1.0)
    assert len(queue.take(1.0)[0]) == 1
    queue.put(item(), 2.0)
    queue.put(item(), 2.1)
    assert len(queue.take(2.1)[0]) == 2


def test_smaller_priorities_run_first() -> None:
    queue = Queue(Limits(), most=1)
    late, soon = item(priority=2), item(priority=1)
    queue.put(late, 0.0)
    queue.put(soon, 0.0)
    assert queue.take(0.0)[0] == [soon]
    assert queue.take(0.0)[0] == [late]


def test_what_has_expired_never_runs() -> None:
    outcomes: list[Any] = []
    queue = Queue(Limits(), most=4)
    queue.put(item(deadline=1.0, outcomes=outcomes), 0.0)
    alive = item(deadline=9.0)
    queue.put(alive, 0.0)
    queue.put(item(deadline=2.0, outcomes=outcomes), 0.0)
    assert queue.take(5.0)[0] == [alive]
    assert [type(o) for o in outcomes] == [Expired, Expired]
    with pytest.raises(Expired):
        queue.put(item(deadline=4.0), 5.0)


def test_an_abandoned_request_frees_its_room_at_once() -> None:
    queue = Queue(Limits(requests=1, bytes=10), most=4)
    gone = item(size=10)
    queue.put(gone, 0.0)
    queue.abandon(gone)
    queue.abandon(gone)
    assert (queue.count, queue.bytes) == (0, 0)
    kept = item(size=10)
    queue.put(kept, 0.0)
    assert queue.take(0.0)[0] == [kept]


def test_clients_that_come_and_go_leave_nothing() -> None:
    queue = Queue(Limits(), most=4)
    for _ in range(1000):
        gone = item()
        queue.put(gone, 0.0)
        queue.abandon(gone)
    assert sum(map(len, queue._lines.values())) <= 65


def test_limits_of_requests_bytes_and_wait() -> None:
    queue = Queue(Limits(requests=2, bytes=100, wait=10.0), most=1)
    with pytest.raises(TooLarge):
        queue.put(item(size=101), 0.0)
    queue.put(item(size=60), 0.0)
    with pytest.raises(Overloaded):
        queue.put(item(size=60), 0.0)
    queue.put(item(), 0.0)
    with pytest.raises(Overloaded):
        queue.put(item(), 0.0)

    queue = Queue(Limits(wait=2.0), most=1)
    queue.put(item(), 0.0)
    queue.take(0.0)
    queue.finished(1.5)  # a batch takes 1.5 s
    queue.put(item(), 0.0)
    with pytest.raises(Overloaded) as refused:  # it would come too late for its client
        queue.put(item(deadline=1.0), 0.0)
    assert refused.value.retry_after == pytest.approx(1.5)
    queue.put(item(), 0.0)
    with pytest.raises(Overloaded):
        queue.put(item(), 0.0)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_request_ends_exactly_once(data: st.DataObject) -> None:
    queue = Queue(
        Limits(requests=8, bytes=64), most=3, delay=data.draw(st.sampled_from([0.0, 2.0]))
    )
    ended: list[Item] = []
    live: list[Item] = []
    now = 0.0

    def end(item: Item) -> None:
        ended.append(item)

    for _ in range(data.draw(st.integers(1, 40))):
        now += data.draw(st.sampled_from([0.0, 0.5, 3.0]))
        match data.draw(st.sampled_from(["put", "put", "take", "abandon"])):
            case "put":
                made = item(
                    data.draw(st.integers(1, 3)),
                    data.draw(st.sampled_from("ab")),
                    size=data.draw(st.integers(0, 20)),
                    deadline=data.draw(st.sampled_from([math.inf, now + 1.0])),
                    priority=data.draw(st.integers(0, 1)),
                )
                made.done = lambda _, made=made: end(made)
                try:
                    queue.put(made, now)
                    live.append(made)
                except (Overloaded, TooLarge):
                    pass
            case "abandon" if live:
                gone = data.draw(st.sampled_from(live))
                if gone not in ended and gone.waiting:
                    queue.abandon(gone)
                    ended.append(gone)
            case "take":
                batch, _ = queue.take(now)
                assert not any(b.abandoned or b.deadline <= now for b in batch)
                assert len({b.key for b in batch}) <= 1
                assert sum(b.rows for b in batch) <= 3
                ended += batch
                if batch:
                    queue.finished(0.0)
    ended += queue.clear()
    assert sorted(map(id, ended)) == sorted(map(id, live))
    assert (queue.count, queue.bytes, queue.rows, queue.running) == (0, 0, 0, 0)
