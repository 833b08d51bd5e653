"""The scheduler by simulation: no page lost, none shared wrongly, nobody starved."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bireme.serving.language.pages import Pages
from bireme.serving.language.scheduler import Scheduler, Text


class World(RuleBasedStateMachine):
    """Texts come, are computed and go. `memory` plays the device: what each page's slots hold."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler(Pages(9, 4), rows=3, budget=6, chunk=4)
        self.memory: dict[tuple[int, int], tuple[int, ...]] = {}
        self.live: list[Text] = []
        self.now = 0.0

    @rule(
        prompt=st.lists(st.integers(0, 1), min_size=1, max_size=12),
        new=st.integers(1, 12),
        priority=st.integers(0, 1),
        deadline=st.sampled_from([math.inf, math.inf, 5.0]),
    )
    def add(self, prompt: list[int], new: int, priority: int, deadline: float) -> None:
        text = Text(list(prompt), len(prompt) + new, None, priority, self.now + deadline)
        assert self.scheduler.fits(text.longest)
        self.scheduler.add(text)
        self.live.append(text)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        data.draw(st.sampled_from(self.live)).cancelled = True

    @rule(passed=st.sampled_from([0.0, 0.0, 2.0]))
    def run(self, passed: float) -> None:
        self.now += passed
        busy = bool(self.live)
        plan = self.scheduler.plan(self.now)
        for text in plan.expired:
            assert text.cancelled or text.deadline <= self.now
            self.live.remove(text)
        assert sum(c.count for c in plan.extend) <= 6
        assert len({id(t) for t in plan.step}) == len(plan.step)
        for chunk in plan.extend:
            assert chunk.count <= 4
            self._compute(chunk.text, chunk.start, chunk.count)
            if chunk.ends:
                self._grow(chunk.text)
        for text in plan.step:
            self._compute(text, len(text.tokens) - 1, 1)
            self._grow(text)
        assert bool(plan.extend or plan.step or plan.expired) == busy

    def _compute(self, text: Text, start: int, count: int) -> None:
        """Write what depends on the whole beginning, and read all before, as attention does."""
        assert text.computed == start
        for at in range(start + count):
            slot = text.pages[at // 4], at % 4
            wanted = tuple(text.tokens[: at + 1])
            if at >= start:
                self.memory[slot] = wanted
            assert self.memory[slot] == wanted, "a page holds another text"
        self.scheduler.computed(text, count)

    def _grow(self, text: Text) -> None:
        text.tokens.append((len(text.tokens) * 7 + text.number) % 2)
        if len(text.tokens) >= text.longest:
            self.scheduler.end(text)
            self.live.remove(text)

    @invariant()
    def pages_are_counted(self) -> None:
        scheduler = self.scheduler
        scheduler.pages.check([t.pages for t in (*scheduler.running, *scheduler.waiting)])
        assert len(scheduler.running) <= 3
        assert {id(t) for t in (*scheduler.running, *scheduler.waiting)} == set(map(id, self.live))

    def teardown(self) -> None:
        for _ in range(2000):
            if not self.live:
                break
            self.run(0.0)
        assert not self.live, "a text never came to its end"
        assert self.scheduler.pages.used == 0


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def finish(scheduler: Scheduler) -> list[Text]:
    """Compute all texts; returns them in the order of their ends."""
    ended: list[Text] = []
    while scheduler.running or scheduler.waiting:
        plan = scheduler.plan(0.0)
        chunks = [(c.text, c.count, c.ends) for c in plan.extend]
        for text, count, ends in [*chunks, *[(t, 1, True) for t in plan.step]]:
            scheduler.computed(text, count)
            if ends:
                text.tokens.append(0)
                if len(text.tokens) >= text.longest:
                    scheduler.end(text)
                    ended.append(text)
    return ended


def test_a_common_beginning_is_computed_once() -> None:
    scheduler = Scheduler(Pages(20, 4), rows=2, budget=100, chunk=100)
    prompt = list(range(10))
    scheduler.add(Text(list(prompt), 12))
    finish(scheduler)
    again = Text([*prompt[:8], 99, 98], 12)
    scheduler.add(again)
    (chunk,) = scheduler.plan(0.0).extend
    assert (chunk.start, chunk.count) == (8, 2)
    other = Scheduler(Pages(20, 4, sharing=False), rows=2, budget=100, chunk=100)
    for _ in range(2):
        other.add(Text(list(prompt), 12))
        assert other.plan(0.0).extend[0].start == 0
        finish_from = other.running[0]
        other.end(finish_from)


def test_the_last_token_is_always_computed() -> None:
    scheduler = Scheduler(Pages(20, 4), rows=1, budget=100, chunk=100)
    for _ in range(2):
        scheduler.add(Text(list(range(8)), 9))
        finish(scheduler)
    scheduler.add(Text(list(range(8)), 9))
    assert scheduler.plan(0.0).extend[0].start == 4


def test_preempted_texts_end_too() -> None:
    scheduler = Scheduler(Pages(6, 4), rows=4, budget=100, chunk=8)
    texts = [Text([i, i, i], 16) for i in range(4)]
    for text in texts:
        scheduler.add(text)
    assert sorted(map(id, finish(scheduler))) == sorted(map(id, texts))
    assert scheduler.preempted
    assert texts[0].preemptions == 0


@pytest.mark.parametrize("size", [1, 16])
def test_what_fits(size: int) -> None:
    scheduler = Scheduler(Pages(5, size), rows=1, budget=8, chunk=8)
    assert scheduler.fits(4 * size)
    assert not scheduler.fits(4 * size + 1)
