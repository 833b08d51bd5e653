"""Pages of text for tests, drawn with the font that Pillow carries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont


def font(size: int) -> Any:
    return ImageFont.load_default(size)


def draw(
    lines: Sequence[tuple[int, int, str]], size: tuple[int, int], px: int = 24, ink: str = "black"
) -> Image.Image:
    """An image with text at places."""
    image = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(image)
    for x, y, text in lines:
        pen.text((x, y), text, ink, font(px))
    return image


def page(lines: Sequence[str], size: tuple[int, int] = (640, 320), px: int = 24) -> Image.Image:
    """Lines of text, one under the other."""
    return draw([(30, 30 + int(1.6 * px * i), t) for i, t in enumerate(lines)], size, px)


def pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image)


TEXT = ("Two banks of oars", "moved the bireme over 24 miles", "without a word, they say.")
