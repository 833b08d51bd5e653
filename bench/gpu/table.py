"""The figures of `python -m bench.gpu` as one table."""

from __future__ import annotations

from typing import Any

from bench import report
from bench.gpu.plan import DESCRIPTIONS, LIMITS, NAMES, Limit, label

# Workload -> peer -> {"figures": ..., "problem": ...}
Results = dict[str, dict[str, dict[str, Any]]]

_HEADER = (
    "workload", "against", "ours", "theirs", "ratio", "limit", "", "of the ceiling: ours, theirs",
    "GiB: ours, theirs", "prepared, s: ours, theirs",
)  # fmt: skip
_NONE = "-"


def figure(results: Results, workload: str, peer: str | None, name: str) -> float | None:
    found = results.get(workload, {}).get(peer or "", {"problem": "", "figures": {}})
    return None if found["problem"] else found["figures"].get(name)


def verdict(limit: Limit, results: Results) -> tuple[float | None, str]:
    """What is compared with the limit, and how that ends."""
    ours = figure(results, limit.workload, "bireme", limit.figure)
    theirs = figure(results, limit.workload, limit.against, limit.figure)
    if ours is None or (limit.against and theirs is None):
        return None, "not measured"
    value = ours / theirs if theirs is not None else ours
    if limit.at_most is not None:
        return value, "met" if value <= limit.at_most else "**missed**"
    if limit.at_least is not None:
        return value, "met" if value >= limit.at_least else "**missed**"
    return value, _NONE


def render(results: Results, ceilings: str) -> str:
    """Rows of what was asked for, in the order of the limits; then why figures lack."""
    rows = [_row(limit, results) for limit in LIMITS if limit.workload in results]
    lines = [report.table(_HEADER, rows), ""]
    lines += [f"- `{name}`: {DESCRIPTIONS[name]}" for name in NAMES if name in results]
    for workload, peers in results.items():
        for peer, found in peers.items():
            if found["problem"]:
                lines.append(f"- n/a: `{workload}`, {label(workload, peer)}: {found['problem']}")
    return "\n".join([*lines, "", ceilings])


def page(results: Results) -> str:
    """The table without shares of the ceiling and times of preparation."""
    rows = [_row(limit, results) for limit in LIMITS if limit.workload in results]
    return report.compact_table(_HEADER[:7], [row[:7] for row in rows])


def _row(limit: Limit, results: Results) -> list[str]:
    value, result = verdict(limit, results)
    name, peer = limit.workload, limit.against

    def both(key: str, form: str) -> str:
        return ", ".join(_text(figure(results, name, p, key), form) for p in ("bireme", peer))

    if limit.figure == "of_ceiling":
        one, row = "{:.1%}", f"`{name}`, bandwidth"
    elif limit.figure == "memory_gib":
        one, row = "{:.2f} GiB", f"`{name}`, peak memory"
    else:
        one, row = "{:.3f} ms", f"`{name}`"
    bound, sign = limit.at_most, "≤"
    if bound is None:
        bound, sign = limit.at_least, "≥"
    shares = limit.figure == "ms"
    return [
        row,
        label(name, peer) if peer else "the ceiling",
        _text(figure(results, name, "bireme", limit.figure), one),
        _text(figure(results, name, peer, limit.figure), one),
        _text(value, "{:.3f}"),
        _NONE if bound is None else f"{sign} {bound:.2f}",
        result,
        both("of_ceiling", "{:.0%}") if shares else "",
        both("memory_gib", "{:.1f}") if shares else "",
        both("ready_s", "{:.0f}") if shares else "",
    ]


def _text(value: float | None, form: str) -> str:
    return _NONE if value is None else form.format(value)


def incomplete(results: Results) -> bool:
    return any(found["problem"] for peers in results.values() for found in peers.values())
