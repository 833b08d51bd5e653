"""Pages drawn with Pillow's own font are read back."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageDraw

from bireme import ocr
from bireme.ocr import OcrError, Reader, models
from bireme.ocr.geometry import cut
from bireme.ocr.recognise import Character, Reading
from tests.ocr.pages import TEXT, draw, font, page


def test_a_page(reader: Reader) -> None:
    (found,) = reader.read(page(TEXT))
    assert [line.text for line in found.lines] == list(TEXT)
    assert found.text == "\n".join(TEXT)
    assert (found.number, found.width, found.height, found.angle) == (1, 640, 320, 0)
    assert all(line.score > 0.9 and line.script == "Latn" for line in found.lines)


def test_words_lie_where_they_were_drawn(reader: Reader) -> None:
    image = page(TEXT)
    (found,) = reader.read(image)
    pen, face = ImageDraw.Draw(image), font(24)
    for i, line in enumerate(found.lines):
        assert [w.text for w in line.words] == TEXT[i].split()
        before = ""
        for word in line.words:
            left = 30 + pen.textlength(before, face)
            right = left + pen.textlength(word.text, face)
            assert word.box[0] == pytest.approx(left, abs=5)
            assert word.box[2] == pytest.approx(right, abs=5)
            before += word.text + " "


def test_nothing_on_a_page(reader: Reader) -> None:
    for size in [(640, 320), (1, 1), (5000, 2), (3, 700)]:
        (found,) = reader.read(Image.new("RGB", size, "white"))
        assert found.blocks == ()
        assert found.text == found.markdown == ""


def test_a_line_that_fills_its_image(reader: Reader) -> None:
    image = draw([(4, 2, "Two banks of oars")], (220, 32))
    assert reader.read(image).text == "Two banks of oars"


def test_a_page_larger_than_a_window(reader: Reader) -> None:
    lines = [(60, 60 + 70 * i, f"{TEXT[i % 3]} ({i})") for i in range(30)]
    image = draw(lines, (2000, 2400), 40)
    (found,) = reader.read(image)
    assert [line.text for line in found.lines] == [text for _, _, text in lines]


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_pages_that_were_turned(reader: Reader, degrees: int) -> None:
    """Read as if upright, with places in the image that was given."""
    image = page(TEXT)
    upright = reader.read(image)[0]
    turned = image.rotate(degrees, expand=True)
    (found,) = reader.read(turned)
    assert [line.text for line in found.lines] == list(TEXT)
    assert found.angle == 360 - degrees
    assert (found.width, found.height) == turned.size
    again = cut(turned, found.lines[1].polygon)
    expected = cut(image, upright.lines[1].polygon)
    assert again.size == pytest.approx(expected.size, abs=6)
    assert again.width > 5 * again.height
    assert reader.read(again).text == TEXT[1]


def test_a_page_with_a_small_slant(reader: Reader) -> None:
    image = page(TEXT, (700, 400)).rotate(3, fillcolor="white")
    assert [line.text for line in reader.read(image)[0].lines] == list(TEXT)


def test_results_do_not_change() -> None:
    line = ocr.Line("a", 1.0, ((0, 0), (1, 0), (1, 1), (0, 1)))
    with pytest.raises(AttributeError):
        line.text = "b"  # type: ignore[misc]


def test_an_unknown_tier_is_an_error() -> None:
    with pytest.raises(OcrError, match="Take small or tiny"):
        Reader(tier="huge")


def test_threads_read_the_same(reader: Reader) -> None:
    images = [page([f"{t} {i}" for t in TEXT]) for i in range(6)]
    alone = [reader.read(image) for image in images]
    barrier = threading.Barrier(4)

    def work(turn: int) -> list[ocr.Document]:
        barrier.wait()
        return [reader.read(images[(i + turn) % 6]) for i in range(6)]

    with ThreadPoolExecutor(4) as pool:
        for turn, documents in enumerate(pool.map(work, range(4))):
            expected = [alone[(i + turn) % 6] for i in range(6)]
            assert [d.pages for d in documents] == [d.pages for d in expected]


def test_streams(reader: Reader) -> None:
    images = [np.asarray(page([t])) for t in TEXT]
    assert [d.text for d in reader.stream(images)] == list(TEXT)


def test_lines_that_the_usual_net_cannot_read_go_to_the_others(
    monkeypatch: pytest.MonkeyPatch, reader: Reader
) -> None:
    """The net of another script gets those lines alone, and its text counts if it is of it."""
    said = ["\u05d3\u05d2\u05d1", "Latin", ""]
    given: list[int] = []

    def readings(net: object, charset: object, pieces: Sequence[object]) -> list[Reading]:
        scores = [0.9, 0.3, 0.4]
        if charset == ("other",):
            given.append(len(pieces))
            return [Reading(tuple([Character(c, 0.8, 0, 1) for c in t])) for t in said[:2]]
        return [Reading((Character("x", s, 0, 1),)) for s in scores[: len(pieces)]]

    monkeypatch.setattr("bireme.ocr.reader.read_lines", readings)
    monkeypatch.setattr(models, "others", lambda: ("arabic",))
    files = replace(models.find(reader._tier.recogniser), name="arabic", charset=("other",))
    real = models.find
    monkeypatch.setattr(models, "find", lambda name: files if name == "arabic" else real(name))
    made = {**models.MODELS, "arabic": replace(models.MODELS["arabic"], scripts={"Hebr"})}
    monkeypatch.setattr(models, "MODELS", made)
    two = Reader(tier="tiny", turn_lines=False, min_score=0.0)
    found = two.read(page(TEXT)).pages[0]
    assert given == [2]
    assert [line.text for line in found.lines] == ["x", "\u05d1\u05d2\u05d3", "x"]
    assert [line.direction for line in found.lines] == ["ltr", "rtl", "ltr"]
