"""A picture of what was read: the image, a frame around every line, its text beside it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from bireme.ocr.image import Source, contents, frames, name_of, package
from bireme.ocr.pdf import is_pdf, pages
from bireme.ocr.result import Document, Page

if TYPE_CHECKING:
    from PIL.Image import Image

FRAME, NUMBER = (208, 48, 48), (32, 96, 192)


def images_of(source: Source) -> list[np.ndarray]:
    """The pixels of all pages of a source."""
    data = None if isinstance(source, np.ndarray) else contents(source)
    if data is not None and is_pdf(data):
        found = [page.pixels for page in pages(data, name_of(source), layers=False)]
        return [pixels for pixels in found if pixels is not None]
    return list(frames(source if data is None else data))


def to_picture(document: Document, source: Source) -> bytes:
    """All pages, one under the other, as PNG."""
    pillow = package("PIL.Image")
    shown = [draw(p, i) for p, i in zip(document.pages, images_of(source), strict=True)]
    whole = pillow.new(
        "RGB", (max(s.width for s in shown), sum(s.height for s in shown)), (128, 128, 128)
    )
    top = 0
    for image in shown:
        whole.paste(image, (0, top))
        top += image.height
    file = io.BytesIO()
    whole.save(file, "PNG")
    return file.getvalue()


def draw(page: Page, pixels: np.ndarray) -> Image:
    """A page with frames around its lines, numbered in reading order."""
    fonts = package("PIL.ImageFont")
    image = package("PIL.Image").fromarray(pixels)
    pen = package("PIL.ImageDraw").Draw(image)
    width = max(1, round(min(image.size) / 500))
    for number, line in enumerate(page.lines, 1):
        points = [(round(x), round(y)) for x, y in line.polygon]
        pen.polygon(points, outline=FRAME, width=width)
        left, top, _, bottom = line.box
        size = min(24, max(8, (bottom - top) * 0.5))
        place = (max(0, left - size * 1.6), top)
        pen.text(place, str(number), NUMBER, fonts.load_default(size))
    return image
