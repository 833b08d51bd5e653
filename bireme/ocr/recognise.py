"""Reading the lines that were found: pieces of the image → a net → characters with their places."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bireme.ocr.bidi import reading_order
from bireme.ocr.geometry import between
from bireme.ocr.image import package
from bireme.ocr.models import LINE_HEIGHT
from bireme.ocr.nets import Net
from bireme.ocr.result import Polygon, Word
from bireme.ocr.script import WITHOUT_SPACES, script_of

if TYPE_CHECKING:
    from PIL.Image import Image

# Few widths and two sizes of batches, so that programs are few.
WIDTHS = (96, 160, 240, 320, 400, 480, 640, 800, 960, 1280, 1600)
BATCH = 4
PROGRAMS = 2 * len(WIDTHS) + 2
OPEN = 0.25  # of its width: a gap that this near the middle of a long line may part it
INK = 0.25  # of the most contrast in a line: a column with less is paper
LOST = 0.3  # of a line's height: so much paper between letters is a space
LOST_HANGUL = 0.2  # Korean's are narrow, and its letters square
DIRECTION_WIDTH, DIRECTION_SURE = 192, 0.9


@dataclass(frozen=True, slots=True)
class Character:
    """A character, how sure the net was, and where it is along the line (0 to 1)."""

    text: str
    score: float
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Reading:
    """The characters of a line, in the order in which they stand, from the left."""

    characters: tuple[Character, ...]

    @property
    def text(self) -> str:
        """As it is read: of a line in Arabic, from the right."""
        texts = [c.text for c in self.characters]
        return "".join([texts[i] for i in reading_order(texts)])

    @property
    def score(self) -> float:
        scores = [c.score for c in self.characters]
        return sum(scores) / len(scores) if scores else 0.0


def read_lines(net: Net, charset: tuple[str, ...], pieces: Sequence[Image]) -> list[Reading]:
    """The text of upright pieces of an image. `charset[i]` is what the net's class i + 1 says;
    class 0 is CTC's blank."""
    strips: list[tuple[int, float, float, np.ndarray]] = []  # (piece, start, end, pixels)
    for i, piece in enumerate(pieces):
        line = level(piece)
        for start, end in _parts(line):
            strips.append((i, start / line.shape[1], end / line.shape[1], line[:, start:end]))
    by_width: dict[int, list[int]] = defaultdict(list)
    for j, (_, _, _, pixels) in enumerate(strips):
        by_width[next(w for w in WIDTHS if w >= pixels.shape[1])].append(j)
    found: list[list[Character]] = [[] for _ in strips]
    for width, members in sorted(by_width.items()):
        while members:
            size = BATCH if len(members) >= BATCH else 1
            batch, members = members[:size], members[size:]
            chances = net(_batch([strips[j][3] for j in batch], width))
            for j, row in zip(batch, chances, strict=True):
                found[j] = snapped(
                    decode(row, charset, width / strips[j][3].shape[1]), strips[j][3]
                )
    readings: list[list[Character]] = [[] for _ in pieces]
    for (i, start, end, _), characters in zip(strips, found, strict=True):
        share = end - start
        readings[i] += [
            Character(c.text, c.score, start + c.start * share, start + c.end * share)
            for c in characters
        ]
    return [Reading(tuple(_trimmed(r))) for r in readings]


def level(piece: Image, height: int = LINE_HEIGHT, longest: int | None = None) -> np.ndarray:
    """A piece of an image at the net's height, squeezed if it would be longer than `longest`."""
    pillow = package("PIL.Image")
    width = max(1, math.ceil(height * piece.width / piece.height))
    width = width if longest is None else min(width, longest)
    if piece.height > 4 * height:  # a mean of pixels first
        piece = piece.reduce(max(1, piece.height // (2 * height)))
    return np.asarray(piece.resize((width, height), pillow.Resampling.BILINEAR))


def _parts(line: np.ndarray) -> list[tuple[int, int]]:
    """Where a line that is too long for the net is parted: at its emptiest places."""
    longest, width = WIDTHS[-1], line.shape[1]
    if width <= longest:
        return [(0, width)]
    grey = line.astype(np.float32).mean(axis=2)
    ink = np.convolve(np.ptp(grey, axis=0), np.ones(9) / 9, "same")
    parts, start = [], 0
    while width - start > longest:
        count = math.ceil((width - start) / longest)
        size = (width - start) / count
        low = start + int(size * (1 - OPEN))
        high = min(start + longest, start + int(size * (1 + OPEN)))
        end = low + int(ink[low:high].argmin())
        parts.append((start, end))
        start = end
    return [*parts, (start, width)]


def _batch(strips: Sequence[np.ndarray], width: int) -> np.ndarray:
    """Strips as one input: blue, green, red from -1 to 1, nothing (0) after their ends."""
    made = np.zeros((len(strips), 3, strips[0].shape[0], width), np.float32)
    for row, pixels in zip(made, strips, strict=True):
        part = row[:, :, : pixels.shape[1]]
        np.subtract(pixels.transpose(2, 0, 1)[::-1], 127.5, out=part)
        part /= 127.5
    return made


def decode(chances: np.ndarray, charset: tuple[str, ...], stretch: float) -> list[Character]:
    """The likeliest class of every step, without repetitions and blanks (CTC, greedy).

    The steps cover `stretch` times the line: what is beyond its end is padding.
    """
    best = chances.argmax(axis=1)
    new = np.ones(len(best), bool)
    new[1:] = best[1:] != best[:-1]
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], len(best))
    share = stretch / len(best)
    return [
        Character(
            charset[best[s] - 1],
            float(chances[s, best[s]]),
            min(s * share, 1.0),
            min(e * share, 1.0),
        )
        for s, e in zip(starts.tolist(), ends.tolist(), strict=True)
        if best[s]
    ]


def _trimmed(characters: list[Character]) -> list[Character]:
    """Without spaces at the ends and without one of two neighbours."""
    kept: list[Character] = []
    for c in characters:
        if c.text.isspace() and (not kept or kept[-1].text.isspace()):
            continue
        kept.append(c)
    while kept and kept[-1].text.isspace():
        kept.pop()
    return kept


def words_of(reading: Reading, polygon: Polygon) -> tuple[Word, ...]:
    """The words of a line as they are read, with their places: between neighbours' middles, as far
    as the spaces around them allow."""
    words: list[tuple[int, Word]] = []
    run: list[int] = []
    cs = reading.characters
    turn = {place: i for i, place in enumerate(reading_order([c.text for c in cs]))}

    def finish() -> None:
        if not run:
            return
        inner = [cs[i] for i in sorted(run, key=turn.__getitem__)]
        start, end = _edges(cs, run[0], run[-1])
        word = Word(
            "".join([c.text for c in inner]),
            sum([c.score for c in inner]) / len(inner),
            between(polygon, start, end),
        )
        words.append((min([turn[i] for i in run]), word))
        run.clear()

    for i, c in enumerate(cs):
        if c.text.isspace():
            finish()
            continue
        if run and _without_spaces(cs[run[-1]].text) != _without_spaces(c.text):
            finish()
        run.append(i)
    finish()
    return tuple([word for _, word in sorted(words, key=lambda pair: pair[0])])


def _without_spaces(text: str) -> bool:
    return script_of(text[0]) in WITHOUT_SPACES


def _edges(cs: Sequence[Character], first: int, last: int) -> tuple[float, float]:
    """Where a word begins and ends."""
    low = (cs[first - 1].end + cs[first].start) / 2 if first else 0.0
    high = (cs[last].end + cs[last + 1].start) / 2 if last + 1 < len(cs) else 1.0
    return max(low, cs[first].start), min(high, cs[last].end)


def snapped(characters: list[Character], pixels: np.ndarray) -> list[Character]:
    """Characters whose edges beside a space, and at the ends of the line, are where the ink is.

    A net's steps tell where letters are about, not where they end. Where paper lies between two
    letters for much longer than between others, and the net saw no space, there is one.
    """
    empty = _empty(pixels)
    if not characters or empty.all():
        return characters
    inked = np.flatnonzero(~empty)
    width = len(empty)
    starts = [c.start for c in characters]
    ends = [c.end for c in characters]
    middles = [(c.start + c.end) / 2 * width for c in characters]
    pitch = (ends[-1] - starts[0]) / len(characters)
    shown = [i for i, c in enumerate(characters) if not c.text.isspace()]
    if not shown:
        return characters
    starts[shown[0]] = min(starts[shown[0]], float(inked[0] / width))
    ends[shown[-1]] = max(ends[shown[-1]], float((inked[-1] + 1) / width))
    gaps = [_gap(empty, middles[i], middles[j]) for i, j in pairwise(shown)]
    apart = [j > i + 1 for i, j in pairwise(shown)]
    near = [high - low for (low, high), space in zip(gaps, apart, strict=True) if not space]
    hangul = script_of(characters[shown[0]].text[0]) == "Hang"
    lost_at, times = (LOST_HANGUL, 2) if hangul else (LOST, 3)
    wide = max(lost_at * LINE_HEIGHT, times * float(np.median(near))) if near else math.inf
    lost = set()
    for (i, j), (low, high), space in zip(pairwise(shown), gaps, apart, strict=True):
        if not space and (high - low < wide or not _spaced(characters, i, j)):
            continue
        if not space:
            lost.add(j)
        if high - low >= 2:
            ends[i], starts[j] = low / width, high / width
        else:  # the ink runs on: a letter's share beyond its step
            ends[i], starts[j] = ends[i] + 0.2 * pitch, starts[j] - 0.2 * pitch
    made: list[Character] = []
    for i, c in enumerate(characters):
        if i in lost:
            made.append(Character(" ", made[-1].score, ends[i - 1], starts[i]))
        made.append(Character(c.text, c.score, starts[i], max(starts[i], ends[i])))
    return made


def _spaced(characters: Sequence[Character], i: int, j: int) -> bool:
    """Whether two neighbours are letters of scripts that set words apart."""
    pair = characters[i].text, characters[j].text
    return all(t[0].isalpha() and not _without_spaces(t) for t in pair)


def _empty(pixels: np.ndarray) -> np.ndarray:
    """The columns of a line that show paper only."""
    spread = np.ptp(pixels[2:-2].astype(np.int16).mean(axis=2), axis=0)
    low, high = np.percentile(spread, 2), float(spread.max())
    return spread <= low + INK * (high - low)


def _gap(empty: np.ndarray, low: float, high: float) -> tuple[int, int]:
    """The longest run of empty columns between two places."""
    start, end = int(low), max(int(low), math.ceil(high))
    part = np.concatenate([[False], empty[start:end], [False]])
    edges = np.flatnonzero(part[1:] != part[:-1])
    if not len(edges):
        return start, start
    begins, ends = edges[::2], edges[1::2]
    longest = int((ends - begins).argmax())
    return start + int(begins[longest]), start + int(ends[longest])


def upside_down(net: Net, pieces: Sequence[Image]) -> list[bool]:
    """Which pieces are turned by 180 degrees, where the net is sure of it."""
    made = []
    for piece in pieces:
        strip = level(piece, longest=DIRECTION_WIDTH)
        (chances,) = net(_batch([strip], DIRECTION_WIDTH))
        made.append(bool(chances[1] > DIRECTION_SURE))
    return made
