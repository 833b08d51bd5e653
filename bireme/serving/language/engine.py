"""The engine: a thread that computes what the scheduler plans, and gives out tokens."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from bireme.serving.errors import (
    BadRequest,
    Expired,
    ModelFailed,
    Overloaded,
    ServingError,
    Unavailable,
)
from bireme.serving.language.pages import Pages
from bireme.serving.language.programs import Programs, Scores
from bireme.serving.language.sampling import Choice, Chooser
from bireme.serving.language.scheduler import Scheduler, Text

logger = logging.getLogger("bireme.serving")

# Told each token, with True for the last one that fits; an error ends the text. Returns whether
# the text goes on.
Sink = Callable[[Choice | Exception, bool], bool]


class Running:
    """A text in the engine: its chooser, and who is told of its tokens."""

    def __init__(self, chooser: Chooser, sink: Sink):
        self.chooser, self.sink = chooser, sink


class Engine:
    """Texts of one model, many at a time."""

    def __init__(
        self,
        programs: Programs,
        pages: Pages,
        rows: int,
        context: int,
        chunk: int = 256,
        most_waiting: int = 1024,
    ):
        self.context, self.most_waiting = context, most_waiting
        self.scheduler = Scheduler(pages, rows, chunk, chunk)
        self._programs = programs
        self._changed = threading.Condition()
        self._fresh: list[Text] = []
        self._open, self._ended = True, False
        self._thread = threading.Thread(target=self._work, name="serve-language", daemon=True)
        self._thread.start()

    def submit(
        self,
        prompt: Sequence[int],
        new: int | None,
        chooser: Chooser,
        sink: Sink,
        priority: int = 0,
    ) -> Text:
        """Continue a prompt by at most `new` tokens (None: as many as fit). `sink` is called from
        the engine's thread."""
        room = self.context - len(prompt)
        if room < 1 or not self.scheduler.fits(len(prompt) + 1):
            raise BadRequest(
                f"the prompt has {len(prompt)} tokens, and {self.context} fit with the answer"
            )
        most = (self.scheduler.pages.count - 1) * self.scheduler.pages.size
        longest = min(self.context, most, len(prompt) + (room if new is None else new))
        text = Text(list(prompt), longest, Running(chooser, sink), priority)
        with self._changed:
            if not self._open:
                raise Unavailable("the server is shutting down")
            if len(self._fresh) + len(self.scheduler.waiting) >= self.most_waiting:
                raise Overloaded(f"{self.most_waiting} texts wait already")
            self._fresh.append(text)
            self._changed.notify()
        return text

    def cancel(self, text: Text) -> None:
        """The client has gone; the text's pages are free before the next step."""
        with self._changed:
            text.cancelled = True
            self._changed.notify()

    @property
    def load(self) -> dict[str, int]:
        """Texts that run and wait, pages in use, preemptions so far."""
        s = self.scheduler
        return {
            "running": len(s.running),
            "waiting": len(s.waiting) + len(self._fresh),
            "pages": s.pages.used,
            "preempted": s.preempted,
        }

    def drain(self, seconds: float) -> None:
        """Take no more texts, finish those that are here, and end."""
        with self._changed:
            self._open = False
            self._changed.notify()
        self._thread.join(seconds)
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._fresh or self._busy or not self._open or self._ended):
                    self._changed.wait()
                fresh, self._fresh = self._fresh, []
                if self._ended or not (self._open or self._busy or fresh):
                    break
            for text in fresh:
                self.scheduler.add(text)
            try:
                self._turn()
            except Exception as e:  # the texts of this turn fail, and the engine goes on
                logger.exception("a language model failed")
                self._fail(ModelFailed(f"the model failed: {type(e).__name__}: {e}"))
                self._programs.reset()
                old = self.scheduler
                self.scheduler = Scheduler(old.pages.fresh(), old.rows, old.budget, old.chunk)
        self._fail(Unavailable("the server ended before the text did"), fresh)

    @property
    def _busy(self) -> bool:
        return bool(self.scheduler.running or self.scheduler.waiting)

    def _fail(self, error: Exception, more: Sequence[Text] = ()) -> None:
        s = self.scheduler
        for text in [*s.running, *s.waiting]:
            s.end(text)
            text.owner.sink(error, True)
        for text in more:
            text.owner.sink(error, True)

    def _turn(self) -> None:
        """One plan: chunks of prompts, then a step of every text that is that far."""
        plan = self.scheduler.plan(time.monotonic())
        for text in plan.expired:
            if not text.cancelled:
                text.owner.sink(Expired("the request's time is over"), True)
        for chunk in plan.extend:
            text = chunk.text
            tokens = text.tokens[chunk.start : chunk.start + chunk.count]
            scores = self._programs.run([tokens], [text.pages], [chunk.start])
            self.scheduler.computed(text, chunk.count)
            if chunk.ends:
                self._grow(text, scores, 0)
        if not plan.step:
            return
        texts = plan.step
        scores = self._programs.run(
            [t.tokens[-1:] for t in texts], [t.pages for t in texts], [t.computed for t in texts]
        )
        for row, text in enumerate(texts):
            self.scheduler.computed(text, 1)
            self._grow(text, scores, row)

    def _grow(self, text: Text, scores: Scores, row: int) -> None:
        """Choose a text's next token and give it out; end the text if it was the last one."""
        running: Any = text.owner
        try:
            choice = _chosen(running.chooser, scores, row)
            text.tokens.append(choice.token)
            last = len(text.tokens) >= text.longest
            goes_on = running.sink(choice, last)
        except ServingError as e:  # a form that turned out to be too complex
            running.sink(e, True)
            goes_on, last = False, True
        except Exception as e:  # of this text's own settings
            logger.exception("a text failed")
            running.sink(ModelFailed(f"{type(e).__name__}: {e}"), True)
            goes_on, last = False, True
        if last or not goes_on:
            self.scheduler.end(text)


def _chosen(chooser: Chooser, scores: Scores, row: int) -> Choice:
    if chooser.plain:
        return Choice(int(scores.best[row]))
    return chooser.choose(scores.row(row))
