"""Rectangles of any direction, and pieces of images cut along them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from bireme.ocr.image import package
from bireme.ocr.result import Polygon

if TYPE_CHECKING:
    from PIL.Image import Image

Pair = tuple[float, float]
STEEP = 1.5  # times as tall as wide: a line that runs down the page
STRAIGHT = 0.12  # of its height: a line that rises by less is level


def smallest_rectangle(mask: np.ndarray) -> tuple[Pair, Pair, float, float]:
    """The smallest rectangle around the centres of the pixels of a mask: its centre, the direction
    of the side that is nearer to level, the lengths of that side and of the other."""
    hull = _hull(mask)
    if len(hull) < 3:
        low, high = hull.min(0), hull.max(0)
        (x0, y0), (x1, y1) = low, high
        return ((x0 + x1) / 2, (y0 + y1) / 2), (1.0, 0.0), float(x1 - x0), float(y1 - y0)
    edges = np.roll(hull, -1, axis=0) - hull
    along = edges / np.hypot(edges[:, 0], edges[:, 1])[:, None]
    along = np.concatenate([[[1.0, 0.0]], along])  # level, if it is as small as any
    across = np.stack([-along[:, 1], along[:, 0]], axis=1)
    u, v = along @ hull.T, across @ hull.T
    long, short = np.ptp(u, axis=1), np.ptp(v, axis=1)
    areas = long * short
    i = int(areas[1:].argmin()) + 1
    if _is_level(hull, along[i]):
        i = 0
    middle_u, middle_v = (u[i].max() + u[i].min()) / 2, (v[i].max() + v[i].min()) / 2
    centre = middle_u * along[i] + middle_v * across[i]
    (dx, dy), length, other = along[i], float(long[i]), float(short[i])
    if abs(dy) > abs(dx):  # the other side is nearer to level
        (dx, dy), length, other = (-dy, dx), other, length
    if dx < 0:
        dx, dy = -dx, -dy
    return (float(centre[0]), float(centre[1])), (float(dx), float(dy)), length, other


def _is_level(hull: np.ndarray, along: np.ndarray) -> bool:
    """Whether a rectangle of this direction leans by next to nothing over its length."""
    width, height = np.ptp(hull, axis=0).tolist()
    dx, dy = abs(float(along[0])), abs(float(along[1]))
    lean = min(dx, dy) / max(dx, dy) * max(height, width)
    return lean < max(1.5, STRAIGHT * min(height, width))


def _hull(mask: np.ndarray) -> np.ndarray:
    """The convex hull of the pixels of a mask, counter-clockwise, as x and y."""
    rows = np.flatnonzero(mask.any(axis=1))
    first = mask[rows].argmax(axis=1)
    last = mask.shape[1] - 1 - mask[rows, ::-1].argmax(axis=1)
    left = _chain([(float(x), float(y)) for x, y in zip(first, rows, strict=True)], -1)
    right = _chain([(float(x), float(y)) for x, y in zip(last, rows, strict=True)], 1)
    points = list(dict.fromkeys([*right, *reversed(left)]))
    return np.array(points)


def _chain(points: list[Pair], side: int) -> list[Pair]:
    """Those of points sorted by y that bulge to one side."""
    kept: list[Pair] = []
    for x, y in points:
        while len(kept) >= 2:
            (ax, ay), (bx, by) = kept[-2], kept[-1]
            if ((bx - ax) * (y - ay) - (by - ay) * (x - ax)) * side > 0:
                break
            kept.pop()
        kept.append((x, y))
    return kept


def corners(centre: Pair, along: Pair, long: float, short: float) -> list[Pair]:
    """The corners of a rectangle in the order in which its text runs. Text in a tall one runs
    downwards, the tops of its letters to the right."""
    (x, y), (dx, dy) = centre, along
    a, b = (dx * long / 2, dy * long / 2), (-dy * short / 2, dx * short / 2)
    upper_left, upper_right = (x - a[0] - b[0], y - a[1] - b[1]), (x + a[0] - b[0], y + a[1] - b[1])
    lower_right, lower_left = (x + a[0] + b[0], y + a[1] + b[1]), (x - a[0] + b[0], y - a[1] + b[1])
    if short >= STEEP * long:
        return [upper_right, lower_right, lower_left, upper_left]
    return [upper_left, upper_right, lower_right, lower_left]


def inside(values: np.ndarray, centre: Pair, along: Pair, long: float, short: float) -> float:
    """The mean of the values whose pixels lie in a rectangle."""
    if along == (1.0, 0.0):
        x0, x1 = math.floor(centre[0] - long / 2), math.ceil(centre[0] + long / 2)
        y0, y1 = math.floor(centre[1] - short / 2), math.ceil(centre[1] + short / 2)
        return float(values[max(y0, 0) : y1 + 1, max(x0, 0) : x1 + 1].mean())
    ys, xs = np.mgrid[: values.shape[0], : values.shape[1]]
    (dx, dy), (x, y) = along, centre
    u, v = (xs - x) * dx + (ys - y) * dy, (ys - y) * dx - (xs - x) * dy
    within = (np.abs(u) <= long / 2 + 0.5) & (np.abs(v) <= short / 2 + 0.5)
    return float(values[within].mean()) if within.any() else 0.0


def sides(polygon: Polygon) -> Pair:
    """The lengths of a line along its text and across."""
    a, b, c, d = polygon
    return max(math.dist(a, b), math.dist(d, c)), max(math.dist(a, d), math.dist(b, c))


def turned(polygon: Polygon) -> Polygon:
    """The same rectangle with its text running the other way."""
    a, b, c, d = polygon
    return c, d, a, b


def cut(image: Image, polygon: Polygon) -> Image:
    """The piece of an image under a polygon, its text level and upright."""
    pillow = package("PIL.Image")
    (ax, ay), (bx, by), (cx, cy), (dx, dy) = polygon
    long, short = sides(polygon)
    size = max(1, round(long)), max(1, round(short))
    if (ay == by and bx == cx) or (ax == bx and by == cy):
        box = (min(ax, cx), min(ay, cy), max(ax, cx), max(ay, cy))
        whole = [round(v) for v in box]
        whole[2], whole[3] = max(whole[2], whole[0] + 1), max(whole[3], whole[1] + 1)
        piece = image.crop((whole[0], whole[1], whole[2], whole[3]))
        if ay == by:
            return piece if bx > ax else piece.transpose(pillow.Transpose.ROTATE_180)
        down = by > ay
        turn = pillow.Transpose.ROTATE_90 if down else pillow.Transpose.ROTATE_270
        return piece.transpose(turn)
    data = (ax, ay, dx, dy, cx, cy, bx, by)
    return image.transform(size, pillow.Transform.QUAD, data, pillow.Resampling.BICUBIC)


def between(polygon: Polygon, start: float, end: float) -> Polygon:
    """The part of a line from one share of its length to another."""
    a, b, c, d = polygon

    def at(p: Pair, q: Pair, share: float) -> Pair:
        return p[0] + (q[0] - p[0]) * share, p[1] + (q[1] - p[1]) * share

    return at(a, b, start), at(a, b, end), at(d, c, end), at(d, c, start)
