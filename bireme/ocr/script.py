"""Writing systems of characters."""

from __future__ import annotations

import unicodedata
from collections import Counter
from functools import lru_cache

UNKNOWN = "Zyyy"  # ISO 15924's code for what all scripts share
# The first word of a character's Unicode name, where it says the script.
_NAMES = {
    "LATIN": "Latn", "GREEK": "Grek", "CYRILLIC": "Cyrl", "ARMENIAN": "Armn", "HEBREW": "Hebr",
    "ARABIC": "Arab", "SYRIAC": "Syrc", "THAANA": "Thaa", "DEVANAGARI": "Deva", "BENGALI": "Beng",
    "GURMUKHI": "Guru", "GUJARATI": "Gujr", "ORIYA": "Orya", "TAMIL": "Taml", "TELUGU": "Telu",
    "KANNADA": "Knda", "MALAYALAM": "Mlym", "SINHALA": "Sinh", "THAI": "Thai", "LAO": "Laoo",
    "TIBETAN": "Tibt", "MYANMAR": "Mymr", "GEORGIAN": "Geor", "HANGUL": "Hang", "ETHIOPIC": "Ethi",
    "KHMER": "Khmr", "MONGOLIAN": "Mong", "HIRAGANA": "Hira", "KATAKANA": "Kana", "CJK": "Hani",
    "BOPOMOFO": "Bopo", "KATAKANA-HIRAGANA": "Kana",
}  # fmt: skip
RIGHT_TO_LEFT = frozenset({"Arab", "Hebr", "Syrc", "Thaa"})
# Scripts whose words are not set apart by spaces.
WITHOUT_SPACES = frozenset({"Hani", "Hira", "Kana", "Thai", "Laoo", "Khmr", "Mymr", "Tibt"})


@lru_cache(maxsize=8192)
def script_of(character: str) -> str:
    """The script of a character, as ISO 15924 has it."""
    first = unicodedata.name(character, "").partition(" ")[0]
    if first in ("FULLWIDTH", "HALFWIDTH"):
        first = unicodedata.name(character).split(" ")[1]
    if not character.isalpha() and unicodedata.category(character)[0] != "M":
        return UNKNOWN
    return _NAMES.get(first, UNKNOWN)


def script_of_text(text: str) -> str:
    """The script of most letters; Japanese is told by its kana, whatever else there is."""
    counts = Counter(s for s in map(script_of, text) if s != UNKNOWN)
    if not counts:
        return UNKNOWN
    if counts["Hira"] + counts["Kana"] and counts["Hani"] + counts["Hira"] + counts["Kana"] > (
        sum(counts.values()) / 2
    ):
        return "Jpan"
    return counts.most_common(1)[0][0]
