"""Finding lines of text: a net marks the core of every line, geometry makes rectangles of that.

The net is one of differentiable binarization (DB): it is trained on shrunken outlines, so what it
marks is grown again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from bireme.ocr.geometry import corners, inside, smallest_rectangle
from bireme.ocr.image import package
from bireme.ocr.nets import TILE, Net
from bireme.ocr.result import Polygon

MARKED, SURE = 0.3, 0.5  # a pixel that counts as text; the mean over a line that is one
GROWTH = 1.6  # times area by perimeter: how far an outline is moved out again
MIN_SIDE = 3.0  # pixels of the net's image
MAX_LINES = 3_000
LOOK = 736  # the longer side of a first look at a large image
ENOUGH = 1056  # an image whose longer side is at most this is looked at once
TALL = 16.0  # pixels of the net's image that a small line should have
LARGEST = 1.0  # a second look never enlarges
MARGIN = 16  # pixels around the image, so that text at its edge has some ground
WINDOW, OVERLAP = 1280, 128  # larger images are looked at in windows
MEAN, SPREAD = 127.5, 127.5


@dataclass(frozen=True, slots=True)
class Found:
    """A rectangle around a line of text, in pixels of the image."""

    polygon: Polygon
    score: float
    height: float  # of the letters' side


@lru_cache(maxsize=1)
def sizes() -> tuple[int, ...]:
    """The sides that inputs have: few, so that programs are few."""
    return (*range(96, 961, 96), 1120, WINDOW)


def detect(net: Net, pixels: np.ndarray) -> list[Found]:
    """The lines of text in an RGB image, in no particular order."""
    height, width = pixels.shape[:2]
    longest = max(height, width)
    if longest <= ENOUGH:
        scale = min(2.0, max(1.0, 320 / longest)) if longest < 320 else 1.0
        return _look(net, pixels, scale)
    # A long strip is looked at by its height.
    scale = min(1.0, max(LOOK / longest, 2 * TILE / min(height, width)))
    found = _look(net, pixels, scale)
    if scale >= LARGEST:
        return found
    small = float(np.percentile([f.height for f in found], 20)) * scale if found else 0.0
    if found and small >= TALL:
        return found
    wanted = scale * TALL / small if small else 2 * scale
    return _look(net, pixels, min(LARGEST, max(wanted, 1.25 * scale)))


def _look(net: Net, pixels: np.ndarray, scale: float) -> list[Found]:
    """What is found in the image at this scale."""
    chances = _chances(net, _scaled(pixels, scale))
    return [
        Found(tuple([(x, y) for x, y in points]), score, tall)  # type: ignore[arg-type]
        for points, score, tall in outlines(chances, scale, pixels.shape[1], pixels.shape[0])
    ]


def _scaled(pixels: np.ndarray, scale: float) -> np.ndarray:
    if scale == 1.0:
        return pixels
    image = package("PIL.Image")
    size = [max(1, round(side * scale)) for side in (pixels.shape[1], pixels.shape[0])]
    return np.asarray(image.fromarray(pixels).resize(size, image.Resampling.BILINEAR))


def _chances(net: Net, pixels: np.ndarray) -> np.ndarray:
    """How likely each pixel is text. Windows of a large image are put together again."""
    height, width = pixels.shape[:2]
    ground = np.median(np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]), axis=0)
    rows, columns = _windows(height), _windows(width)
    chances = np.zeros((height, width), np.float32)
    for top, bottom in rows:
        for left, right in columns:
            part = _window(net, pixels[top:bottom, left:right], ground)
            target = chances[top:bottom, left:right]
            np.maximum(target, part, out=target)
    return chances


def _windows(length: int) -> list[tuple[int, int]]:
    """Where windows start and end along one side, each overlapping the next."""
    room = WINDOW - 2 * MARGIN
    if length <= room:
        return [(0, length)]
    count = math.ceil((length - OVERLAP) / (room - OVERLAP))
    size = math.ceil((length + (count - 1) * OVERLAP) / count)
    starts = [min(i * (size - OVERLAP), length - size) for i in range(count)]
    return [(start, start + size) for start in starts]


def _window(net: Net, pixels: np.ndarray, ground: np.ndarray) -> np.ndarray:
    height, width = pixels.shape[:2]
    tall, wide = [
        next(s for s in sizes() if s >= side + MARGIN or s == WINDOW) for side in (height, width)
    ]
    top, left = min(MARGIN, (tall - height) // 2), min(MARGIN, (wide - width) // 2)
    whole = np.empty((1, 3, tall, wide), np.float32)
    whole[0] = ((ground[::-1] - MEAN) / SPREAD)[:, None, None]
    part = whole[0, :, top : top + height, left : left + width]
    # The nets know blue, green, red.
    np.subtract(pixels.transpose(2, 0, 1)[::-1], MEAN, out=part)
    part /= SPREAD
    return net(whole)[0, 0, top : top + height, left : left + width]


def outlines(
    chances: np.ndarray, scale: float, width: int, height: int
) -> list[tuple[list[tuple[float, float]], float, float]]:
    """Rectangles (corners in image pixels, score, height) around what is marked in a map."""
    ndimage: Any = package("scipy.ndimage")
    marked = chances > MARKED
    marked[1:, 1:] |= marked[:-1, :-1] | marked[1:, :-1] | marked[:-1, 1:]  # closes hair gaps
    labels, count = ndimage.label(marked, np.ones((3, 3)))
    made = []
    for number, window in enumerate(ndimage.find_objects(labels), 1):
        if count > MAX_LINES and (window[1].stop - window[1].start) < 8:
            continue  # noise that looks like thousands of dots
        found = _outline(chances, labels, number, window)
        if found is None:
            continue
        centre, along, long, short, score = found
        points = corners(centre, along, long, short)
        shown = [
            (min(max(x / scale, 0.0), float(width)), min(max(y / scale, 0.0), float(height)))
            for x, y in points
        ]
        made.append((shown, score, min(long, short) / scale))
    if len(made) > MAX_LINES:
        made = sorted(made, key=lambda m: -m[1])[:MAX_LINES]
    return made


def _outline(
    chances: np.ndarray, labels: np.ndarray, number: int, window: tuple[slice, slice]
) -> tuple[tuple[float, float], tuple[float, float], float, float, float] | None:
    rows, columns = window
    if min(rows.stop - rows.start, columns.stop - columns.start) < MIN_SIDE - 1:
        return None
    mask = labels[window] == number
    centre, along, long, short = smallest_rectangle(mask)
    if min(long, short) < MIN_SIDE - 1:
        return None
    score = inside(chances[window], centre, along, long, short)
    if score < SURE:
        return None
    growth = long * short * GROWTH / (2 * (long + short))
    long, short = long + 2 * growth, short + 2 * growth
    if min(long, short) < MIN_SIDE + 2:
        return None
    x, y = centre[0] + columns.start, centre[1] + rows.start
    return (x, y), along, long, short, score
