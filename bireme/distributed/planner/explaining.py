"""A plan in words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bireme.distributed.planner.schedule import Degrees, Outcome
from bireme.distributed.planner.splits import WHOLE

if TYPE_CHECKING:
    from bireme.distributed.planner.plans import Plan

_RIVALS = 8


def named(d: Degrees) -> str:
    """Degrees as people say them."""
    words = [
        f"{word} ({size})"
        for word, size in (
            ("data parallel", d.dp),
            ("tensor parallel", d.mp),
            ("pipeline", d.pp),
            ("experts", d.ep),
        )
        if size > 1
    ]
    if d.zero:
        words.append(f"ZeRO-{d.zero}")
    return " x ".join(words) or "one device"


def seconds(s: float) -> str:
    return f"{s * 1e6:.3g} us" if s < 1e-3 else f"{s * 1e3:.3g} ms" if s < 1 else f"{s:.3g} s"


def size(b: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if b >= scale:
            return f"{b / scale:.3g} {unit}"
    return f"{b:.0f} B"


def summary(plan: Plan) -> str:
    """The choice and its rivals, one line each."""
    best = plan.best
    lines = [f"chosen: {named(best.degrees)}, {seconds(best.seconds)} per step (predicted)"]
    lines += [f"  {n}: {k}" for n, k in _grouped(plan) if k != WHOLE]
    lines += [f"rival: {named(r.degrees)}, {seconds(r.seconds)}" for r in plan.rivals[1:_RIVALS]]
    return "\n".join(lines)


def explain(plan: Plan) -> str:
    """All that was decided and predicted."""
    best, cluster = plan.best, plan.cluster
    d = best.degrees
    lines = [
        f"{cluster.count} x {cluster.device.name}, a batch of {plan.batch}",
        f"chosen: {named(d)}",
        f"  {d.micro_batches} micro-batches of {d.micro_batch} rows"
        + (f", {d.virtual} parts a stage" if d.virtual > 1 else ""),
        f"  {seconds(best.seconds)} per step, MFU {best.mfu:.1%} (predicted)",
        "",
        "time of a step",
    ]
    lines += [f"  {name}: {seconds(s)}" for name, s in best.parts.items() if s > 0]
    full = max(best.stages, key=lambda s: s.total)
    lines += ["", f"memory of the fullest device: {size(best.memory)}"]
    lines += [f"  {name}: {size(b)}" for name, b in full.memory.items() if b > 0]
    if best.recomputed:
        lines.append(f"  {best.recomputed} blocks run again in the backward pass")
    lines += ["", "sent by a device in a step"]
    lines += [f"  {name}: {size(b)}" for name, b in sent(best).items() if b > 0]
    lines += ["", "layout"]
    lines += [f"  {n}: {k}" for n, k in _grouped(plan)]
    if len(plan.rivals) > 1:
        lines += ["", "rivals"]
        lines += [_rival(r) for r in plan.rivals[1 : _RIVALS + 1]]
        if len(plan.rivals) > _RIVALS + 1:
            lines.append(f"  and {len(plan.rivals) - _RIVALS - 1} more")
    return "\n".join(lines)


def sent(outcome: Outcome) -> dict[str, float]:
    """Bytes that a device sends in a step, by cause."""
    return {k: v for k, v in outcome.sent.items() if v > 0}


def _rival(r: Outcome) -> str:
    return f"  {named(r.degrees)}: {seconds(r.seconds)}, MFU {r.mfu:.1%}, {size(r.memory)}" + (
        f", {r.recomputed} blocks run again" if r.recomputed else ""
    )


def _grouped(plan: Plan) -> list[tuple[str, str]]:
    """(names, layout) of weights; equal ones of numbered layers in one line."""
    found: dict[tuple[str, str], list[int]] = {}
    sequences = {plan.reading.weights[r].name for r in plan.best.solution.sequences}
    experts = {w.name for w in plan.reading.weights.values() if w.is_expert}
    for name, kind in plan.kinds.items():
        shown = kind + (", results in parts of the sequence" if name in sequences else "")
        if name in experts and plan.degrees.ep > 1:
            shown += f", experts over {plan.degrees.ep}"
        number = re.search(r"(^|\.)(\d+)\.", name)
        if number is None:
            found.setdefault((name, shown), []).append(-1)
        else:
            stem = f"{name[: number.start(2)]}*{name[number.end(2) :]}"
            found.setdefault((stem, shown), []).append(int(number.group(2)))
    lines = []
    for (stem, kind), numbers in found.items():
        low, high = min(numbers), max(numbers)
        if len(numbers) > 2 and high - low == len(numbers) - 1:
            lines.append((f"{stem} [{low}-{high}]", kind))
        else:
            lines += [(stem.replace("*", str(n), 1), kind) for n in numbers]
    return lines
