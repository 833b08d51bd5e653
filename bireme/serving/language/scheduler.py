"""Which tokens are computed next: admission, chunks of prompts, steps, preemption.

Plain Python without arrays and without a clock. Texts are served in the order of priority and
arrival. A text is admitted when there are pages for all its tokens so far. When a step finds no
page, the text that came last gives up its pages and is computed again later; the first one always
goes on, so that all come to their end.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, field
from typing import Any

from bireme.serving.language.pages import START, Pages


@dataclass(slots=True, eq=False)
class Text:
    """A text that grows. `owner` is for the caller."""

    tokens: list[int]
    longest: int  # tokens at its end, with the prompt
    owner: Any = None
    priority: int = 0
    deadline: float = math.inf
    number: int = 0
    pages: list[int] = field(default_factory=list)
    computed: int = 0  # tokens whose keys and values are in the pages
    cancelled: bool = False
    preemptions: int = 0
    remembered: int = 0  # full pages that are known to others
    contents: int = START  # of the last of them

    @property
    def order(self) -> tuple[int, int]:
        return self.priority, self.number


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens of a text to compute: from `start` on, `count` of them."""

    text: Text
    start: int
    count: int

    @property
    def ends(self) -> bool:
        """Whether the chunk reaches the text's last token, so that the next one is chosen."""
        return self.start + self.count == len(self.text.tokens)


@dataclass(slots=True)
class Plan:
    """What to compute now, and which texts ended without being computed."""

    extend: list[Chunk] = field(default_factory=list)
    step: list[Text] = field(default_factory=list)
    expired: list[Text] = field(default_factory=list)


class Scheduler:
    """Texts on a number of pages: at most `rows` at once, and `budget` prompt tokens per plan in
    chunks of at most `chunk`."""

    def __init__(self, pages: Pages, rows: int, budget: int, chunk: int):
        self.pages, self.rows, self.budget, self.chunk = pages, rows, budget, chunk
        self.waiting: list[Text] = []
        self.running: list[Text] = []
        self.preempted = 0
        self._number = 0

    def needed(self, tokens: int) -> int:
        """How many pages so many tokens take."""
        return -(-tokens // self.pages.size)

    def fits(self, tokens: int) -> bool:
        """Whether a text of so many tokens can be computed at all."""
        return self.needed(tokens) <= self.pages.count - 1

    def add(self, text: Text) -> None:
        """A new text, which must fit."""
        text.number = self._number
        self._number += 1
        bisect.insort(self.waiting, text, key=_order)

    def plan(self, now: float) -> Plan:
        """What is computed next."""
        plan = Plan()
        for text in (*self.running, *self.waiting):
            if text.cancelled or text.deadline <= now:
                self.end(text)
                plan.expired.append(text)
        for text in sorted(self.running, key=_order):
            if text in self.running and len(text.tokens) - text.computed == 1:
                self._plan_step(text, plan)
        plan.step = [t for t in plan.step if t in self.running]
        left = self.budget
        for text in sorted(self.running, key=_order):
            if len(text.tokens) - text.computed > 1:
                left -= self._plan_chunks(text, plan, left)
        while left > 0 and self.waiting and len(self.running) < self.rows and self._admit():
            left -= self._plan_chunks(self.running[-1], plan, left)
        return plan

    def _plan_step(self, text: Text, plan: Plan) -> None:
        while self.needed(len(text.tokens)) > len(text.pages):
            if self.pages.available:
                text.pages.append(self.pages.take())
                continue
            last = max(self.running, key=_order)
            self._preempt(last)
            if last is text:
                return
        plan.step.append(text)

    def _plan_chunks(self, text: Text, plan: Plan, left: int) -> int:
        """Add chunks of one text within what is left of the budget; returns their tokens."""
        start, end = text.computed, min(len(text.tokens), text.computed + max(left, 0))
        for at in range(start, end, self.chunk):
            plan.extend.append(Chunk(text, at, min(self.chunk, end - at)))
        return end - start

    def _admit(self) -> bool:
        """Let the first waiting text run if there are pages for its tokens."""
        text = self.waiting[0]
        found = self.pages.found(text.tokens) if self.pages.sharing else []
        need = self.needed(len(text.tokens)) - len(found)
        if need > self.pages.available - self.pages.idle_among(found):
            return False
        del self.waiting[0]
        for page in found:
            self.pages.share(page)
        text.pages = [*found, *(self.pages.take() for _ in range(need))]
        text.computed = len(found) * self.pages.size
        text.remembered = len(found)
        text.contents = self.pages.contents(found[-1]) if found else START
        self.running.append(text)
        return True

    def _preempt(self, text: Text) -> None:
        self.running.remove(text)
        self._give_back(text)
        text.preemptions += 1
        self.preempted += 1
        bisect.insort(self.waiting, text, key=_order)

    def _give_back(self, text: Text) -> None:
        self.pages.release(text.pages)
        text.pages = []
        text.computed = text.remembered = 0
        text.contents = START

    def computed(self, text: Text, count: int) -> None:
        """`count` more tokens of a text are in its pages."""
        text.computed += count
        size = self.pages.size
        while (text.remembered + 1) * size <= text.computed:
            at = text.remembered
            tokens = text.tokens[at * size : (at + 1) * size]
            text.contents = self.pages.remember(text.pages[at], text.contents, tokens)
            text.remembered += 1

    def end(self, text: Text) -> None:
        """A text is finished, cancelled or expired."""
        if text in self.running:
            self.running.remove(text)
        elif text in self.waiting:
            self.waiting.remove(text)
        self._give_back(text)


def _order(text: Text) -> tuple[int, int]:
    return text.order
