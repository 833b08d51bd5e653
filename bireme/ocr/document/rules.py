"""Ruled lines of an image: thin straight strokes along its rows and columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from bireme.ocr.detect import Found
from bireme.ocr.geometry import between, sides
from bireme.ocr.image import package
from bireme.ocr.result import Point

USUAL = 1100  # pixels: about the longer side of the image in which rules are looked for
STEPS = (2, 4, 8)  # pixels: how far from a rule its paper is looked at, for thin and thick rules
CONTRAST = 24  # between a rule and the paper on both sides
PIECE = 14  # pixels: a straight run that counts
SHORTEST = 16  # pixels: of a rule
THICKEST = 9.0  # pixels
LONG = 100  # pixels: a rule that tells the angle of its page
LEANING = 0.2  # lines of text that lean more are not parted by rules
LONGER = 1.15  # times a line's height: a rule that parts it; shorter ones are letters
MARGIN = 0.3  # of a line's height: a rule nearer to its end is beside it
MAX_RULES = 3_000  # more of them are a photograph


@dataclass(frozen=True, slots=True)
class Rule:
    """A ruled line, in pixels of the image; it begins at the left, or at the top."""

    start: Point
    end: Point

    @property
    def length(self) -> float:
        return math.dist(self.start, self.end)


@dataclass(frozen=True, slots=True)
class Rules:
    """The ruled lines of an image: those that run along its rows, and along its columns."""

    across: tuple[Rule, ...] = ()
    down: tuple[Rule, ...] = ()
    near: float = 7.0  # pixels: rules that end so near to another meet it


NO_RULES = Rules()


def find_rules(pixels: np.ndarray) -> Rules:
    """The ruled lines of an RGB image."""
    factor = max(1, round(max(pixels.shape[:2]) / USUAL))
    grey = _darkest(pixels, factor).astype(np.int16)
    if min(grey.shape) <= 2 * max(STEPS):
        return NO_RULES
    across = _strokes(_thin(grey))
    down = _strokes(_thin(grey.T))
    if len(across) + len(down) > MAX_RULES:
        return NO_RULES

    def placed(point: Point) -> Point:
        return (point[0] + 0.5) * factor, (point[1] + 0.5) * factor

    return Rules(
        tuple([Rule(placed(a), placed(b)) for a, b in across]),
        tuple([Rule(placed((ax, ay)), placed((bx, by))) for (ay, ax), (by, bx) in down]),
        3.0 + 4.0 * factor,
    )


def _darkest(pixels: np.ndarray, factor: int) -> np.ndarray:
    """The image scaled down by a factor; each pixel is the darkest of those it stands for."""
    grey = pixels.min(axis=2)
    if factor == 1:
        return grey
    height, width = (side // factor * factor for side in grey.shape)
    grey = grey[:height, :width]
    rows = np.minimum.reduce([grey[i::factor] for i in range(factor)])
    return np.minimum.reduce([rows[:, i::factor] for i in range(factor)])


def _thin(grey: np.ndarray) -> np.ndarray:
    """Pixels that are darker than the paper above and below them."""
    found = np.zeros(grey.shape, bool)
    for step in STEPS:
        paper = np.minimum(grey[: -2 * step], grey[2 * step :])
        found[step:-step] |= paper - grey[step:-step] >= CONTRAST
    found[:, 1:-1] |= found[:, :-2] & found[:, 2:]  # closes gaps of a pixel
    return found


def _strokes(thin: np.ndarray) -> list[tuple[Point, Point]]:
    """Long runs along the rows, joined where one goes on in the next row: a slanted line does."""
    ndimage: Any = package("scipy.ndimage")
    labels, _ = ndimage.label(_long_runs(thin, PIECE), np.ones((3, 3)))
    made = []
    for number, window in enumerate(ndimage.find_objects(labels), 1):
        rows, columns = window
        width = columns.stop - columns.start
        if width < SHORTEST or rows.stop - rows.start > width / 4 + THICKEST:
            continue
        mask = labels[window] == number
        if mask.sum() > THICKEST * width:
            continue
        part = min(width, 8)
        first, last = _middle(mask[:, :part]), _middle(mask[:, -part:])
        start = float(columns.start), rows.start + first
        made.append((start, (float(columns.stop - 1), rows.start + last)))
    return made


def _long_runs(marked: np.ndarray, shortest: int) -> np.ndarray:
    """The marked pixels in runs along the rows of at least this length."""
    padded = np.zeros((marked.shape[0], marked.shape[1] + 2), np.int8)
    padded[:, 1:-1] = marked
    change = np.diff(padded, axis=1)
    begins, ends = np.nonzero(change == 1), np.nonzero(change == -1)
    long = ends[1] - begins[1] >= shortest
    edges = np.zeros(padded.shape, np.int8)
    edges[begins[0][long], begins[1][long]] = 1
    edges[ends[0][long], ends[1][long]] = -1
    return np.cumsum(edges, axis=1, dtype=np.int8)[:, : marked.shape[1]].astype(bool)


def _middle(mask: np.ndarray) -> float:
    return float(np.nonzero(mask)[0].mean())


def slant(rules: Rules) -> float | None:
    """The angle of the longest rules across, in radians: the median of those half as long as the
    longest. They tell it better than lines of text; None where there are too few."""
    longest = max([rule.length for rule in rules.across], default=0.0)
    angles = [
        math.atan2(r.end[1] - r.start[1], r.end[0] - r.start[0])
        for r in rules.across
        if r.length >= max(longest / 2, LONG)
    ]
    return median(angles) if len(angles) >= 2 else None


def parted(found: Sequence[Found], rules: Rules) -> list[Found]:
    """Lines of text that were found, parted where a ruled line runs through them."""
    return [piece for one in found for piece in _pieces(one, rules)]


def _pieces(found: Found, rules: Rules) -> list[Found]:
    (ax, ay), (bx, by), (_, cy), (_, dy) = found.polygon
    if abs(by - ay) > LEANING * (bx - ax):
        return [found]
    long, short = sides(found.polygon)
    top, bottom = max(ay, by), min(cy, dy)
    margin = MARGIN * short
    places = [
        _crossing(rule, (top + bottom) / 2)
        for rule in rules.down
        if rule.length >= LONGER * short
        and rule.start[1] <= top + 0.1 * short
        and rule.end[1] >= bottom - 0.1 * short
    ]
    cuts = [(x - ax) / (bx - ax) for x in sorted(places) if ax + margin < x < bx - margin]
    return [
        Found(between(found.polygon, low, high), found.score, found.height)
        for low, high in pairwise([0.0, *cuts, 1.0])
        if (high - low) * long > margin
    ]


def _crossing(rule: Rule, y: float) -> float:
    """Where a rule that runs down the page crosses a row."""
    (ax, ay), (bx, by) = rule.start, rule.end
    return ax + (bx - ax) * (y - ay) / (by - ay)
