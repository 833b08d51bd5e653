"""The reader: image → lines → text → blocks."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bireme.ocr import models
from bireme.ocr.bidi import runs_backward
from bireme.ocr.detect import Found, detect
from bireme.ocr.document.blocks import blocks_of
from bireme.ocr.document.rules import Rules, find_rules, parted
from bireme.ocr.document.turn import quarters, turned_back
from bireme.ocr.errors import OcrError
from bireme.ocr.geometry import cut, turned
from bireme.ocr.image import Source, contents, frames, name_of, package
from bireme.ocr.nets import Net, Running
from bireme.ocr.pdf import is_pdf
from bireme.ocr.pdf import pages as pdf_pages
from bireme.ocr.recognise import PROGRAMS, Reading, read_lines, upside_down, words_of
from bireme.ocr.result import Document, Line, Page, Polygon
from bireme.ocr.script import script_of_text

if TYPE_CHECKING:
    from PIL.Image import Image

SURE = 0.5  # lines that were read with less are left out
DOUBTFUL = 0.85  # a line read with less may be upside down
DETECTOR_PROGRAMS = 24
CONTRAST = 48  # from the darkest to the lightest: less is paper
NEARLY = 0.95  # of the certainty: a level page is preferred to one of lines that run down
STRIP = 64  # pixels: an image this low without a line found is read as one


@dataclass(frozen=True, slots=True)
class _Line:
    """A line that was found, and what it says."""

    found: Found
    polygon: Polygon
    reading: Reading


class _Other:
    """A recogniser of further scripts, loaded when a line is met that the usual one cannot read."""

    def __init__(self, files: models.Files, running: Running):
        self._files, self._running = files, running
        self._scripts = models.MODELS[files.name].scripts
        self._loading = threading.Lock()
        self._net: Net | None = None

    def read(self, pieces: Sequence[Image]) -> list[Reading]:
        with self._loading:
            if self._net is None:
                self._net = Net(self._files.paths, self._running, PROGRAMS, self._files.tiled)
        return read_lines(self._net, self._files.charset, pieces)

    def writes(self, text: str) -> bool:
        """Whether a text is in a script that this one is for."""
        return script_of_text(text) in self._scripts


class Reader:
    """Reads images. It does not change once it is made, and any number of threads may use it.

    tier: 'small' or 'tiny' (see `models.TIERS`); None takes the best that is on this machine.
    engine: what runs the nets, as in `inference.Config.set_engine`; 'auto' measures all that are
    installed, which takes seconds, and remembers the fastest.
    turn_pages: whether pages on a side or on their heads are turned.
    turn_lines: whether lines that read badly are tried upside down.
    min_score: lines that were read with less are left out.
    device: 'cpu', 'gpu', 'gpu:1'; None takes what `bireme.device.get_device()` says.
    """

    def __init__(
        self,
        tier: str | None = None,
        engine: str = "xla",
        device: str | None = None,
        *,
        turn_pages: bool = True,
        turn_lines: bool = True,
        min_score: float = SURE,
    ):
        chosen = models.usual_tier() if tier is None else tier
        if chosen not in models.TIERS:
            raise OcrError(f"tier {chosen!r}", f"there is none. Take {' or '.join(models.TIERS)}")
        self._tier = models.TIERS[chosen]
        self._turn_pages, self._turn_lines, self._min_score = turn_pages, turn_lines, min_score
        running = Running(engine, device)
        detector = models.find(self._tier.detector)
        recogniser = models.find(self._tier.recogniser)
        direction = models.find(self._tier.direction)
        self._detector = Net(detector.paths, running, DETECTOR_PROGRAMS, detector.tiled)
        self._recogniser = Net(recogniser.paths, running, PROGRAMS, recogniser.tiled)
        self._direction = Net(direction.paths, running, 2, direction.tiled)
        self._charset = recogniser.charset
        self._others = tuple([_Other(models.find(name), running) for name in models.others()])

    @property
    def tier(self) -> str:
        """The name of the nets that are used."""
        return self._tier.name

    def read(self, source: Source) -> Document:
        """All pages of a source: a path, a file's bytes, an image of Pillow's, an array."""
        return Document(name_of(source), tuple(self.pages(source)))

    def pages(self, source: Source) -> Iterator[Page]:
        """The pages of a source one by one: of a long PDF, only one is in memory."""
        data = None if isinstance(source, np.ndarray) else contents(source)
        if data is not None and is_pdf(data):
            for found in pdf_pages(data, name_of(source)):
                if found.pixels is not None:
                    yield self.page(found.pixels, found.number)
                    continue
                blocks = blocks_of(found.lines)
                yield Page(found.number, found.width, found.height, blocks, source="pdf")
            return
        name = name_of(source)
        for i, pixels in enumerate(frames(source if data is None else data, name), 1):
            yield self.page(pixels, i)

    def stream(self, sources: Iterable[Source]) -> Iterator[Document]:
        """A document for each source, one after the other; only one is in memory."""
        for source in sources:
            yield self.read(source)

    def page(self, pixels: np.ndarray, number: int = 1) -> Page:
        """What stands in an RGB image."""
        height, width = pixels.shape[:2]
        rules = find_rules(pixels)
        lines = self._lines(pixels, rules)
        turns = quarters(lines) if self._turn_pages else 0
        if turns:
            upright = np.ascontiguousarray(np.rot90(pixels, turns))
            its_rules = find_rules(upright)
            level = self._lines(upright, its_rules)
            if _certainty(level) >= NEARLY * _certainty(lines):
                blocks = turned_back(blocks_of(level, its_rules), turns, width, height)
                return Page(number, width, height, blocks, 90 * turns)
        return Page(number, width, height, blocks_of(lines, rules))

    def _lines(self, pixels: np.ndarray, rules: Rules) -> list[Line]:
        image = package("PIL.Image").fromarray(pixels)
        found = parted(detect(self._detector, pixels), rules)
        if not found and min(image.size) <= STRIP and np.ptp(pixels) >= CONTRAST:
            w, h = float(image.width), float(image.height)
            found = [Found(((0.0, 0.0), (w, 0.0), (w, h), (0.0, h)), 1.0, h)]
        read = self._read(image, found)
        return [_finished(one) for one in read if self._counts(one.reading)]

    def _counts(self, reading: Reading) -> bool:
        return bool(reading.text) and reading.score >= self._min_score

    def _read(self, image: Image, found: Sequence[Found]) -> list[_Line]:
        pieces = [cut(image, f.polygon) for f in found]
        readings = read_lines(self._recogniser, self._charset, pieces)
        for other in self._others:
            unread = [i for i, reading in enumerate(readings) if reading.score < DOUBTFUL]
            again = other.read([pieces[i] for i in unread]) if unread else []
            for i, reading in zip(unread, again, strict=True):
                if reading.score > readings[i].score and other.writes(reading.text):
                    readings[i] = reading
        lines = [_Line(f, f.polygon, r) for f, r in zip(found, readings, strict=True)]
        if not self._turn_lines:
            return lines
        doubtful = [i for i, line in enumerate(lines) if line.reading.score < DOUBTFUL]
        if not doubtful:
            return lines
        again = doubtful
        if len(doubtful) <= len(lines) / 2:  # else it is the page: all are tried
            wrong = upside_down(self._direction, [pieces[i] for i in doubtful])
            again = [i for i, turn in zip(doubtful, wrong, strict=True) if turn]
        flipped = [turned(found[i].polygon) for i in again]
        second = read_lines(self._recogniser, self._charset, [cut(image, p) for p in flipped])
        for i, polygon, reading in zip(again, flipped, second, strict=True):
            if reading.score > lines[i].reading.score:
                lines[i] = replace(lines[i], polygon=polygon, reading=reading)
        return lines


def _certainty(lines: Sequence[Line]) -> float:
    """How many characters were read, each as far as it is sure."""
    return sum([line.score * len(line.text) for line in lines])


def _finished(line: _Line) -> Line:
    text = line.reading.text
    backward = runs_backward([c.text for c in line.reading.characters])
    return Line(
        text=text,
        score=round(line.reading.score, 4),
        polygon=line.polygon,
        words=words_of(line.reading, line.polygon),
        direction="rtl" if backward else "ltr",
        script=script_of_text(text),
        detected=round(line.found.score, 4),
    )


_usual: dict[int, Reader] = {}
_making = threading.Lock()


def read(source: Source) -> Document:
    """All pages of a source, by a reader with the usual settings that is made once."""
    with _making:
        reader = _usual.get(os.getpid())
        if reader is None:
            _usual.clear()
            reader = _usual[os.getpid()] = Reader()
    return reader.read(source)
