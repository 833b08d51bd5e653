"""Rectangles of any direction."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from PIL import Image, ImageDraw

from bireme.ocr.detect import _windows, outlines
from bireme.ocr.geometry import between, corners, cut, sides, smallest_rectangle, turned


@pytest.mark.parametrize("degrees", [-85, -60, -40, -20, -3, 0, 8, 30, 44, 50, 75, 90])
def test_the_smallest_rectangle_of_a_turned_bar(degrees: int) -> None:
    angle = math.radians(degrees)
    ys, xs = np.mgrid[:200, :200] - 100.0
    u, v = xs * math.cos(angle) + ys * math.sin(angle), ys * math.cos(angle) - xs * math.sin(angle)
    centre, (dx, dy), along, across = smallest_rectangle((abs(u) <= 60) & (abs(v) <= 10))
    assert centre == pytest.approx((100, 100), abs=0.6)
    assert sorted([along, across]) == pytest.approx([20, 120], abs=2)
    level = abs(degrees) <= 45
    assert (along > across) == level
    found = math.degrees(math.atan2(dy, dx))
    assert found == pytest.approx(degrees if level else degrees - math.copysign(90, degrees), abs=2)


def test_small_masks() -> None:
    for shape in [(1, 1), (1, 5), (5, 1), (2, 2)]:
        centre, _, along, across = smallest_rectangle(np.ones(shape, bool))
        assert centre == ((shape[1] - 1) / 2, (shape[0] - 1) / 2)
        assert sorted([along, across]) == sorted([shape[0] - 1, shape[1] - 1])


def test_a_line_that_is_nearly_level_is_level() -> None:
    mask = np.zeros((22, 300), bool)
    mask[:20, :150] = mask[1:21, 150:] = True
    assert smallest_rectangle(mask)[1] == (1.0, 0.0)


def test_corners_follow_the_text() -> None:
    assert corners((50, 10), (1, 0), 100, 20) == [(0, 0), (100, 0), (100, 20), (0, 20)]
    down = corners((10, 50), (1, 0), 20, 100)  # a tall one: its text runs down
    assert down == [(20, 0), (20, 100), (0, 100), (0, 0)]


@pytest.mark.parametrize("degrees", [0, 90, 180, 270, 20, -33])
def test_pieces_are_upright(degrees: int) -> None:
    """A bar whose first half is red and upper edge blue, cut out of a turned image."""
    image = Image.new("RGB", (300, 300))
    pen = ImageDraw.Draw(image)
    pen.rectangle((100, 140, 199, 159), "white")
    pen.rectangle((100, 140, 149, 159), "red")
    pen.rectangle((100, 140, 199, 144), "blue")
    image = image.rotate(degrees, Image.Resampling.BICUBIC)
    angle = math.radians(degrees)

    def place(x: float, y: float) -> tuple[float, float]:
        x, y = x - 150, y - 150
        return (
            150 + x * math.cos(angle) + y * math.sin(angle),
            150 + y * math.cos(angle) - x * math.sin(angle),
        )

    polygon = (place(100, 140), place(200, 140), place(200, 160), place(100, 160))
    assert sides(polygon) == pytest.approx((100, 20))
    piece = cut(image, polygon)
    assert piece.size == (100, 20)
    assert [piece.getpixel(p) for p in ((25, 12), (75, 12), (50, 2))] == [
        (255, 0, 0), (255, 255, 255), (0, 0, 255),
    ]  # fmt: skip
    other = cut(image, turned(polygon))
    assert other.getpixel((75, 7)) == (255, 0, 0)


def test_a_part_of_a_line() -> None:
    polygon = ((0.0, 0.0), (100.0, 10.0), (100.0, 30.0), (0.0, 20.0))
    assert between(polygon, 0.5, 1.0) == ((50, 5), (100, 10), (100, 30), (50, 25))


def test_outlines_are_grown_and_scaled() -> None:
    chances = np.zeros((60, 200), np.float32)
    chances[20:30, 20:120] = 0.9
    chances[40:50, 150:190] = 0.4  # not sure enough
    chances[5, 5] = 1.0  # a dot
    ((points, score, height),) = outlines(chances, 0.5, 400, 120)
    grown = 100 * 10 * 1.6 / (2 * (100 + 10))  # gaps of a pixel to the right and below are closed
    assert score == pytest.approx(0.9, abs=0.1)
    assert height == pytest.approx(2 * (10 + 2 * grown))
    assert points[0] == pytest.approx((2 * (20 - grown), 2 * (20 - grown)))
    assert points[2] == pytest.approx((2 * (120 + grown), 2 * (30 + grown)))


@pytest.mark.parametrize("length", [1, 1000, 1248, 1249, 2500, 20_000])
def test_windows_cover_everything(length: int) -> None:
    windows = _windows(length)
    assert windows[0][0] == 0
    assert windows[-1][1] == length
    assert all(b <= end - 100 for (_, end), (b, _) in itertools.pairwise(windows))
    assert all(end - start <= 1248 for start, end in windows)
