"""The communication graph of a plan as SVG."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from bireme.distributed.planner.explaining import named, seconds, size

if TYPE_CHECKING:
    from bireme.distributed.planner.plans import Plan
    from bireme.distributed.planner.schedule import Stage

_WIDE, _HIGH, _GAP = 210, 150, 90
_SHOWN = 4  # stages; the rest is a dotted line
_BLUE, _GREEN, _RED, _GREY = "#2563eb", "#15803d", "#b91c1c", "#64748b"


def draw(plan: Plan) -> str:
    """Stages as boxes with the groups inside them; arrows and loops say who sends how much."""
    best = plan.best
    stages = best.stages
    shown: list[int | None] = list(range(len(stages)))
    if len(stages) > _SHOWN:
        shown = [*range(_SHOWN - 2), None, len(stages) - 1]
    width = 40 + len(shown) * _WIDE + (len(shown) - 1) * _GAP
    out = [
        _text(
            20,
            28,
            f"{named(best.degrees)} on {plan.cluster.count} x {plan.cluster.device.name}",
            15,
            bold=True,
        ),
        _text(
            20,
            48,
            f"{seconds(best.seconds)} per step, MFU {best.mfu:.1%} (predicted); bytes "
            "are what a device sends in a step",
            12,
            _GREY,
        ),
    ]
    x, top = 20, 80
    for i, stage in enumerate(shown):
        if stage is None:
            out.append(_text(x + _WIDE / 2, top + _HIGH / 2, "…", 28, _GREY, "middle"))
        else:
            out += _stage(plan, stages[stage], stage, x, top)
        if i + 1 < len(shown):
            out += _arrow(x + _WIDE, top + _HIGH / 2, _GAP, size(best.sent.get("pipeline", 0.0)))
        x += _WIDE + _GAP
    out += _legend(plan, top + _HIGH + 78)
    width = max(width, 660)
    height = top + _HIGH + 160
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif">\n'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" '
        f'fill="{_RED}"/></marker></defs>\n'
        f'<rect width="{width}" height="{height}" fill="white"/>\n' + "\n".join(out) + "\n</svg>\n"
    )


def _stage(plan: Plan, stage: Stage, number: int, x: float, top: float) -> list[str]:
    d = plan.degrees
    blocks = sum(n for _, n in stage.units)
    title = f"stage {number}" if d.pp > 1 else "the model"
    out = [
        f'<rect x="{x}" y="{top}" width="{_WIDE}" height="{_HIGH}" rx="8" fill="#f8fafc" '
        f'stroke="{_GREY}"/>',
        _text(x + 10, top + 20, f"{title}: {blocks} parts, {size(stage.total)}", 12, bold=True),
    ]
    for i in range(2 if d.dp > 1 else 1):
        y = top + 34 + i * 44
        out.append(
            f'<rect x="{x + 10}" y="{y}" width="{_WIDE - 20}" height="34" rx="5" fill="white" '
            f'stroke="{_BLUE}"/>'
        )
        count = min(d.mp, 8)
        for j in range(count):
            out.append(
                f'<rect x="{x + 16 + j * 17}" y="{y + 10}" width="13" height="14" rx="2" '
                f'fill="{_BLUE}" fill-opacity="0.75"/>'
            )
        if d.mp > 8:
            out.append(_text(x + 16 + 8 * 17, y + 21, f"… {d.mp}", 10, _GREY))
    if d.dp > 1:
        y = top + 34
        right = x + _WIDE - 8
        out.append(
            f'<path d="M{right - 2} {y + 17}c16 8 16 36 0 44" fill="none" stroke="{_GREEN}" '
            'stroke-width="2"/>'
        )
        if d.dp > 2:
            out.append(_text(x + 10, top + _HIGH - 10, f"… {d.dp} copies", 11, _GREY))
    return out


def _arrow(x: float, y: float, wide: float, label: str) -> list[str]:
    return [
        f'<line x1="{x + 6}" y1="{y}" x2="{x + wide - 6}" y2="{y}" stroke="{_RED}" '
        'stroke-width="2" marker-end="url(#tip)" marker-start="url(#tip)"/>',
        _text(x + wide / 2, y - 8, label, 11, _RED, "middle"),
    ]


def _legend(plan: Plan, y: float) -> list[str]:
    best, d = plan.best, plan.degrees
    rows = []
    if d.mp > 1:
        rows.append(
            (
                _BLUE,
                f"tensor parallel, groups of {d.mp}: layouts change in "
                f"{seconds(best.parts['tensor messages'])}",
            )
        )
    if d.dp > 1:
        rows.append(
            (
                _GREEN,
                f"data parallel, groups of {d.dp}: gradients and weights, "
                f"{size(best.sent.get('gradients', 0.0))}",
            )
        )
    if d.pp > 1:
        rows.append(
            (
                _RED,
                "between stages: activations and their gradients, "
                f"{size(best.sent.get('pipeline', 0.0))}",
            )
        )
    out = []
    for i, (colour, text) in enumerate(rows):
        out.append(f'<rect x="20" y="{y - 10 + i * 22}" width="12" height="12" fill="{colour}"/>')
        out.append(_text(40, y + i * 22, text, 12))
    return out


def _text(
    x: float,
    y: float,
    text: str,
    high: int,
    colour: str = "#0f172a",
    anchor: str = "start",
    bold: bool = False,
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x}" y="{y}" font-size="{high}" fill="{colour}" text-anchor="{anchor}"{weight}>'
        f"{escape(text)}</text>"
    )
