"""From a net's chances to characters, words and their places."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from bireme.ocr.recognise import WIDTHS, Reading, _parts, _trimmed, decode, level, snapped, words_of
from bireme.ocr.result import box_of

CHARSET = ("a", "b", "ク", " ")


def chances(classes: str) -> np.ndarray:
    """Steps of these classes: '-' is the blank, others stand for themselves."""
    made = np.full((len(classes), len(CHARSET) + 1), 0.01, np.float32)
    for row, c in zip(made, classes, strict=True):
        row[0 if c == "-" else CHARSET.index(c) + 1] = 0.9
    return made


def reading(classes: str, stretch: float = 1.0) -> Reading:
    return Reading(tuple(_trimmed(decode(chances(classes), CHARSET, stretch))))


@pytest.mark.parametrize(
    ("classes", "text"),
    [("---", ""), ("a", "a"), ("aa-a", "aa"), ("ab", "ab"), ("-aa--bb", "ab"),
     ("a  b", "a b"), (" a - b ", "a b"), ("-- --", "")],
)  # fmt: skip
def test_repetitions_and_blanks_are_dropped(classes: str, text: str) -> None:
    assert reading(classes).text == text


def test_scores_are_the_chances() -> None:
    assert reading("-ab-").score == pytest.approx(0.9)
    assert reading("--").score == 0


def test_words_and_their_places() -> None:
    line = ((0.0, 0.0), (100.0, 0.0), (100.0, 10.0), (0.0, 10.0))
    words = words_of(reading("--ab--- --ba--------"), line)
    assert [w.text for w in words] == ["ab", "ba"]
    boxes = [box_of(w.polygon) for w in words]
    assert [b[0] for b in boxes] == pytest.approx([10, 50])
    assert [b[2] for b in boxes] == pytest.approx([20, 60])


def drawn(*letters: tuple[int, int]) -> np.ndarray:
    line = np.full((48, 400, 3), 255, np.uint8)
    for start, end in letters:
        line[10:38, start:end] = 0
    return line


def test_edges_of_words_are_where_the_ink_is() -> None:
    characters = decode(chances("-a-b- -a--"), CHARSET, 1.0)
    found = snapped(characters, drawn((20, 110), (115, 190), (250, 340)))
    assert [c.text for c in found] == ["a", "b", " ", "a"]
    assert found[0].start == 20 / 400
    assert (found[1].end, found[3].start) == (190 / 400, 250 / 400)
    assert found[3].end == 340 / 400


def test_a_space_that_the_net_missed() -> None:
    characters = decode(chances("-a-b-ab-a-"), CHARSET, 1.0)
    letters = ((20, 75), (80, 160), (210, 238), (242, 295), (300, 350))
    assert "".join(c.text for c in snapped(characters, drawn(*letters))) == "ab aba"
    close = ((20, 75), (80, 160), (168, 238), (242, 295), (300, 350))
    assert "".join(c.text for c in snapped(characters, drawn(*close))) == "ababa"
    assert snapped(characters, drawn()) == characters


def test_scripts_without_spaces_are_words_of_their_own() -> None:
    line = ((0.0, 0.0), (100.0, 0.0), (100.0, 10.0), (0.0, 10.0))
    words = words_of(reading("a-クク-ク-b"), line)
    assert [w.text for w in words] == ["a", "クク", "b"]


def test_padding_is_not_part_of_the_line() -> None:
    half = reading("--a-----", stretch=2.0).characters[0]
    assert (half.start, half.end) == (0.5, 0.75)


def test_lines_have_the_nets_height() -> None:
    assert level(Image.new("RGB", (100, 20))).shape == (48, 240, 3)
    assert level(Image.new("RGB", (1, 900))).shape == (48, 1, 3)
    assert level(Image.new("RGB", (3000, 1000))).shape == (48, 144, 3)


def test_long_lines_are_parted_where_they_are_empty() -> None:
    line = np.full((48, 4000, 3), 255, np.uint8)
    line[::2, :1490] = line[::2, 1530:2600] = line[::2, 2640:] = 0
    parts = _parts(line)
    assert [end for _, end in parts][-1] == 4000
    assert all(end - start <= WIDTHS[-1] for start, end in parts)
    assert any(1490 <= end <= 1530 for _, end in parts)
    assert _parts(line[:, :1600]) == [(0, 1600)]
