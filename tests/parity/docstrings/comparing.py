"""What of Bireme's record of an example is not what the wheel's is."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|inf\b|nan\b)")
NUMPY = re.compile(r"np\.\w+\(([^()]*)\)")
ADDRESS = re.compile(r"0x[0-9a-f]+")
RTOL, ATOL = 1e-4, 1e-5


def outcome(record: dict[str, Any]) -> str:
    """How an example ended: "ran", "raised" or "crashed"."""
    kinds = {event[0] for event in record["events"]}
    return "crashed" if "crashed" in kinds else "raised" if "raised" in kinds else "ran"


def differences(ours: Any, wheel: dict[str, Any], again: dict[str, Any]) -> list[str]:
    """One line per difference; `again` is the wheel with another seed."""
    found: list[str] = []
    for i, (a, b) in enumerate(zip(ours["events"], wheel["events"], strict=False)):
        c = again["events"][i] if i < len(again["events"]) else b
        found += _event(a, b, c)
    if len(ours["events"]) != len(wheel["events"]):
        found.append(f"{len(ours['events'])} lines instead of {len(wheel['events'])}")
    for name, b in wheel["left"].items():
        if name not in ours["left"]:
            found.append(f"{name}: not there")
        else:
            found += [
                f"{name}: {d}" for d in values(ours["left"][name], b, again["left"].get(name, b))
            ]
    return found


def _event(a: Any, b: Any, c: Any) -> list[str]:
    if a[0] != b[0]:
        return [f"{a[0]} {a[2][:300]!r} instead of {b[0]} {b[2][:120]!r}"]
    if a[0] == "raised":
        same = a[1][0] in b[1] or b[1][0] in a[1] or "Cannot download" in b[2]
        return [] if same else [f"{a[2][:200]} instead of {b[2][:120]}"]
    if a[0] != "shown":
        return []
    found = values(a[1], b[1], c[1])
    told = b[1][0] in ("plain", "tensor", "list", "tuple", "dict") and "array(" not in b[2]
    if not found and told and b[2] == c[2]:
        found = text(a[2], b[2])
    return found


def values(a: Any, b: Any, c: Any) -> list[str]:
    """Differences of two snapshots; where `c`, the wheel's other run, differs, only types count."""
    if a[0] != b[0]:
        return [f"a {a[0]} ({str(a[1:])[:80]}) instead of a {b[0]} ({str(b[1:])[:80]})"]
    kind = b[0]
    if kind == "plain":
        return _plain(a[1], b[1], c)
    if kind in ("tensor", "array"):
        return _arrays(a, b, c)
    if kind in ("list", "tuple"):
        if len(a[1]) != len(b[1]):
            same = c[0] != kind or len(c[1]) == len(b[1])
            return [f"{len(a[1])} elements instead of {len(b[1])}"] if same else []
        others = c[1] if c[0] == kind and len(c[1]) == len(b[1]) else b[1]
        return [d for x, y, z in zip(a[1], b[1], others, strict=True) for d in values(x, y, z)]
    if kind == "dict":
        mine, theirs = dict(a[1]), dict(b[1])
        if sorted(mine) != sorted(theirs):
            return [f"keys {sorted(mine)[:8]} instead of {sorted(theirs)[:8]}"]
        others = dict(c[1]) if c[0] == "dict" else theirs
        return [d for k in theirs for d in values(mine[k], theirs[k], others.get(k, theirs[k]))]
    return []


def _plain(a: Any, b: Any, c: Any) -> list[str]:
    if type(a) is not type(b):
        return [f"{a!r} instead of {b!r}"]
    if c != ("plain", b) and b == b:
        return []
    if isinstance(b, str):
        return text(a, b)
    if isinstance(b, float | complex):
        return [] if np.isclose(a, b, RTOL, ATOL, equal_nan=True) else [f"{a!r} instead of {b!r}"]
    return [] if a == b else [f"{a!r} instead of {b!r}"]


def _arrays(a: Any, b: Any, c: Any) -> list[str]:
    if a[1] != b[1] or (b[0] == "array" and a[2] != b[2]):
        random = c[0] == b[0] and c[1:-1] != b[1:-1]
        return [] if random else [f"{a[1:-1]} instead of {b[1:-1]}"]
    x, y, z = a[-1], b[-1], c[-1]
    if (x is None) != (y is None):
        return ["no contents" if x is None else "contents"]
    floating = y is not None and y.dtype.kind in "fc"
    if x is None or z is None or y.shape != z.shape or not np.array_equal(y, z, floating):
        return []
    if floating:
        same = np.allclose(x, y, RTOL, ATOL, equal_nan=True)
    else:
        same = np.array_equal(x, y)
    return [] if same else [f"{_short(x)} instead of {_short(y)}"]


def text(a: str, b: str) -> list[str]:
    """The same words, and numbers that are nearly the same."""
    a, b = (_settled(s) for s in (a, b))
    if NUMBER.sub("#", a).replace(" ", "") == NUMBER.sub("#", b).replace(" ", ""):
        pairs = zip(NUMBER.findall(a), NUMBER.findall(b), strict=True)
        if all(np.isclose(float(x), float(y), 1e-3, ATOL, equal_nan=True) for x, y in pairs):
            return []
    return [f"prints {a[:200]!r} instead of {b[:200]!r}"]


def _settled(shown: str) -> str:
    """Without addresses, line breaks, NumPy's names of its numbers, and the sign of "+-0"."""
    plain = NUMPY.sub(r"\1", ADDRESS.sub("0x", " ".join(shown.split())))
    return plain.replace("+-", "-")


def _short(x: np.ndarray) -> str:
    return " ".join(np.array2string(x, threshold=12, precision=6).split())[:160]
