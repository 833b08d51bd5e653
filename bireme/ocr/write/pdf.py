"""Searchable PDF: the image as it came, and its text over it, invisible.

JPEG files go in byte by byte. The text is set in fonts of empty glyphs (Type 3), so that no font
file is needed and any viewer can mark and copy it.
"""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bireme.ocr.bidi import reading_order
from bireme.ocr.errors import OcrError
from bireme.ocr.image import Source, contents, frames, name_of, package
from bireme.ocr.pdf import is_pdf
from bireme.ocr.result import Document, Line, Page, Point, Word
from bireme.ocr.script import WITHOUT_SPACES, script_of

DPI = 150  # of images that do not say
WIDE = 0.5  # of its height: every glyph
GAP = 0.2  # of its height: the least between words
BASELINE = 0.22  # of a line's height, from below
MAX_POINTS = 14_400  # a side of a page


@dataclass
class _File:
    """A PDF file in the making: numbered objects, written at the end."""

    objects: list[bytes] = field(default_factory=list)

    def add(self, body: bytes) -> int:
        self.objects.append(body)
        return len(self.objects)

    def stream(self, entries: str, data: bytes) -> int:
        head = f"<< {entries} /Length {len(data)} >>\nstream\n".encode()
        return self.add(head + data + b"\nendstream")

    def packed(self, data: bytes) -> int:
        return self.stream("/Filter /FlateDecode", zlib.compress(data))

    def written(self, root: int) -> bytes:
        made, places = bytearray(b"%PDF-1.5\n%\xe2\xe3\xcf\xd3\n"), []
        for number, body in enumerate(self.objects, 1):
            places.append(len(made))
            made += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
        start = len(made)
        made += f"xref\n0 {len(places) + 1}\n0000000000 65535 f \n".encode()
        made += b"".join([f"{place:010} 00000 n \n".encode() for place in places])
        end = (
            f"trailer\n<< /Size {len(places) + 1} /Root {root} 0 R >>\nstartxref\n{start}\n%%EOF\n"
        )
        return bytes(made + end.encode())


@dataclass
class _Fonts:
    """Characters by font and code: 255 to a font."""

    codes: dict[str, tuple[int, int]] = field(default_factory=dict)

    def code(self, character: str) -> tuple[int, int]:
        found = self.codes.get(character)
        if found is None:
            n = len(self.codes)
            found = self.codes[character] = (n // 255, n % 255 + 1)
        return found

    def write(self, file: _File) -> list[int]:
        """The fonts' objects, in order."""
        fonts: list[dict[int, str]] = []
        for character, (font, code) in self.codes.items():
            if font == len(fonts):
                fonts.append({})
            fonts[font][code] = character
        return [_font(file, codes) for codes in fonts]


def _font(file: _File, codes: dict[int, str]) -> int:
    wide = round(1000 * WIDE)
    glyph = file.stream("", f"{wide} 0 0 -200 {wide} 800 d1".encode())
    lines = [f"<{code:02x}> <{c.encode('utf-16-be').hex()}>" for code, c in codes.items()]
    blocks = [lines[i : i + 100] for i in range(0, len(lines), 100)]
    table = "\n".join(
        f"{len(block)} beginbfchar\n" + "\n".join(block) + "\nendbfchar" for block in blocks
    )
    names = file.packed(
        (
            "/CIDInit /ProcSet findresource begin 12 dict begin begincmap\n"
            "/CIDSystemInfo << /Registry (Adobe) /Ordering (UCS) /Supplement 0 >> def\n"
            "/CMapName /Text def /CMapType 2 def\n"
            f"1 begincodespacerange <00> <ff> endcodespacerange\n{table}\n"
            "endcmap CMapName currentdict /CMap defineresource pop end end"
        ).encode()
    )
    last = max(codes)
    differences = " ".join(f"/g{code}" for code in range(1, last + 1))
    procedures = " ".join(f"/g{code} {glyph} 0 R" for code in range(1, last + 1))
    widths = " ".join([str(wide)] * last)
    return file.add(
        (
            "<< /Type /Font /Subtype /Type3 /FontMatrix [0.001 0 0 0.001 0 0] "
            f"/FontBBox [0 -200 {wide} 800] /FirstChar 1 /LastChar {last} /Widths [{widths}] "
            f"/Encoding << /Type /Encoding /Differences [1 {differences}] >> "
            f"/CharProcs << {procedures} >> /Resources << >> /ToUnicode {names} 0 R >>"
        ).encode()
    )


def to_pdf(document: Document, source: Source) -> bytes:
    """A PDF of the images with the text that was read over them."""
    data = None if isinstance(source, np.ndarray) else contents(source)
    name = name_of(source)
    if data is not None and is_pdf(data):
        raise OcrError(name, "is a PDF already; text can be laid over images only")
    file, fonts = _File(), _Fonts()
    tree = file.add(b"")  # filled in below
    images = _images(file, source, data, name)
    parts = []
    for page, (image, dpi) in zip(document.pages, images, strict=True):
        scale = 72 / dpi
        scale *= min(1.0, MAX_POINTS / (max(page.width, page.height) * scale))
        parts.append((page, image, scale, file.packed(_content(page, scale, fonts))))
    made = fonts.write(file)
    listed = " ".join(f"/F{i} {font} 0 R" for i, font in enumerate(made))
    kids = []
    for page, image, scale, content in parts:
        turn = f"/Rotate {-page.angle % 360} " * bool(page.angle)
        kids.append(
            file.add(
                (
                    f"<< /Type /Page /Parent {tree} 0 R {turn}"
                    f"/MediaBox [0 0 {page.width * scale:.3f} {page.height * scale:.3f}] "
                    f"/Resources << /XObject << /Im {image} 0 R >> /Font << {listed} >> >> "
                    f"/Contents {content} 0 R >>"
                ).encode()
            )
        )
    shown = " ".join(f"{kid} 0 R" for kid in kids)
    file.objects[tree - 1] = f"<< /Type /Pages /Count {len(kids)} /Kids [{shown}] >>".encode()
    return file.written(file.add(f"<< /Type /Catalog /Pages {tree} 0 R >>".encode()))


def _images(file: _File, source: Source, data: bytes | None, name: str) -> list[tuple[int, float]]:
    """The images as objects, with their dots per inch."""
    if data is not None and data[:3] == b"\xff\xd8\xff":
        with package("PIL.Image").open(io.BytesIO(data)) as image:
            plain = image.getexif().get(0x0112, 1) == 1
            space = {"RGB": "/DeviceRGB", "L": "/DeviceGray"}.get(image.mode)
            if plain and space is not None:
                entries = (
                    f"/Type /XObject /Subtype /Image /Width {image.width} /Height {image.height} "
                    f"/ColorSpace {space} /BitsPerComponent 8 /Filter /DCTDecode"
                )
                return [(file.stream(entries, data), _dpi(image.info))]
    dpi = DPI
    if data is not None:
        with package("PIL.Image").open(io.BytesIO(data)) as image:
            dpi = _dpi(image.info)
    made = []
    for pixels in frames(source if data is None else data):
        height, width = pixels.shape[:2]
        grey = bool((pixels == pixels[:, :, :1]).all())
        space = "/DeviceGray" if grey else "/DeviceRGB"
        entries = (
            f"/Type /XObject /Subtype /Image /Width {width} /Height {height} "
            f"/ColorSpace {space} /BitsPerComponent 8 /Filter /FlateDecode"
        )
        plain_bytes = (pixels[:, :, 0] if grey else pixels).tobytes()
        made.append((file.stream(entries, zlib.compress(plain_bytes)), dpi))
    return made


def _dpi(info: dict[str, Any]) -> float:
    try:
        found = float(info["dpi"][0])
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError):
        return DPI
    return found if 50 <= found <= 2400 else DPI


def _content(page: Page, scale: float, fonts: _Fonts) -> bytes:
    width, height = page.width * scale, page.height * scale
    parts = [f"q {width:.3f} 0 0 {height:.3f} 0 0 cm /Im Do Q", "BT 3 Tr"]
    for line in page.lines:
        parts += _line(line, page.height, scale, fonts)
    return "\n".join([*parts, "ET"]).encode()


def _line(line: Line, tall: int, scale: float, fonts: _Fonts) -> list[str]:
    """A line's words, each stretched over its place, and the spaces between them."""
    parts = []
    words = _standing(line)
    for i, word in enumerate(words):
        a, b, c, d = word.polygon
        size = max(1.0, (math.dist(a, d) + math.dist(b, c)) / 2)
        start, end = _towards(d, a, BASELINE), _towards(c, b, BASELINE)
        if i + 1 < len(words) and _apart(word.text, words[i + 1].text):
            after = words[i + 1].polygon
            following = _towards(after[3], after[0], BASELINE)
            length = math.dist(start, following)
            # Viewers take a narrow gap for none.
            end = _towards(start, end, min(1.0, (length - GAP * size) / math.dist(start, end)))
            parts.append(_shown(word.text, start, end, size, tall, scale, fonts))
            parts.append(_shown(" ", end, following, size, tall, scale, fonts))
        else:
            parts.append(_shown(word.text, start, end, size, tall, scale, fonts))
    return parts


def _standing(line: Line) -> Sequence[Word]:
    """The words of a line, and their letters, as they stand from the left: PDF has them so."""
    if line.direction != "rtl":
        return line.words
    return [
        replace(word, text="".join([word.text[i] for i in reading_order(word.text)]))
        for word in sorted(line.words, key=lambda w: w.polygon[0][0])
    ]


def _apart(word: str, following: str) -> bool:
    inside = (script_of(word[-1]) in WITHOUT_SPACES, script_of(following[0]) in WITHOUT_SPACES)
    return not any(inside)


def _towards(p: Point, q: Point, share: float) -> Point:
    return p[0] + (q[0] - p[0]) * share, p[1] + (q[1] - p[1]) * share


def _shown(
    text: str, start: Point, end: Point, size: float, tall: int, scale: float, fonts: _Fonts
) -> str:
    """Text from one point to another, in the coordinates of PDF: upwards from below."""
    length = max(0.5, math.dist(start, end))
    cos, sin = (end[0] - start[0]) / length, (start[1] - end[1]) / length
    x, y = start[0] * scale, (tall - start[1]) * scale
    stretch = 100 * length / (len(text) * WIDE * size)
    parts = [
        f"{cos:.5f} {sin:.5f} {-sin:.5f} {cos:.5f} {x:.3f} {y:.3f} Tm {stretch:.3f} Tz",
    ]
    run, current = "", -1
    for character in text:
        font, code = fonts.code(character)
        if font != current:
            if run:
                parts.append(f"<{run}> Tj")
            parts.append(f"/F{font} {size * scale:.3f} Tf")
            run, current = "", font
        run += f"{code:02x}"
    return " ".join([*parts, f"<{run}> Tj"])
