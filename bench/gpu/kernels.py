"""`python -m bench.gpu.kernels gpt2`: where a step's time goes, by GPU kernel.

`decode` shows a token of `bench.gpu.decode` (the prompt is among the kernels); `--peer compile` (or
`torch`) the same list for the other side.
"""

from __future__ import annotations

import argparse
import collections
import glob
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.gpu import decode
from bench.gpu.train import bireme_step, torch_step

CALLS = 3
TOKENS = 64
Span = tuple[float, float, str]


def subject(name: str) -> tuple[Callable[[int], Any], Callable[[Any], Any], int]:
    """What is called, what waits for its result, and the steps in a call."""
    if name != "decode":
        return *bireme_step(name), 1
    run = decode.bireme(decode.SIZES["1.1b"])
    return lambda i: run(TOKENS), lambda tokens: tokens, TOKENS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--top", type=int, default=45)
    parser.add_argument("--hlo", help="write the compiled program here")
    parser.add_argument("--peer", choices=("bireme", "torch", "compile"), default="bireme")
    options = parser.parse_args()
    if options.peer == "bireme":
        spans, steps = traced(options.model, options.hlo)
    else:
        spans, steps = traced_torch(options.model, options.peer == "compile")
    totals: collections.Counter[str] = collections.Counter()
    counts: collections.Counter[str] = collections.Counter()
    for start, stop, name in spans:
        totals[name] += stop - start
        counts[name] += 1
    print(f"{sum(totals.values()) / steps / 1e6:.2f} ms of kernels in a step")
    show_gaps(sorted(spans), steps)
    for name, spent in totals.most_common(options.top):
        print(f"{spent / steps / 1e6:8.3f} ms {counts[name] / steps:6.1f}x  {name[:150]}")


def traced(model: str, hlo: str | None) -> tuple[list[Span], int]:
    """Our kernels as (start, stop, name) in nanoseconds, and the steps that they belong to."""
    import jax

    step, wait, per_call = subject(model)
    for i in range(10):
        last = step(i)
    wait(last)
    if hlo:
        from bireme.core import executor

        largest = max(executor._programs.values(), key=lambda p: p.size if p.executable else 0)
        Path(hlo).write_text(largest.executable.compiled.as_text())
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for i in range(CALLS):
                last = step(i)
            wait(last)
        (path,) = glob.glob(folder + "/**/*.xplane.pb", recursive=True)
        data = jax.profiler.ProfileData.from_file(path)
        spans: list[Span] = []
        for plane in data.planes:
            if not plane.name.startswith("/device:GPU"):
                continue
            for line in plane.lines:
                if not line.name.startswith("Stream"):
                    continue
                for event in line.events:
                    stats = dict(event.stats)
                    name = f"{stats.get('hlo_op', '')} | {event.name}"
                    spans.append((event.start_ns, event.start_ns + event.duration_ns, name))
    return spans, CALLS * per_call


def traced_torch(model: str, compiled: bool) -> tuple[list[Span], int]:
    import torch
    from torch.profiler import ProfilerActivity, profile

    step, wait = torch_step(model, compiled)
    for i in range(10):
        last = step(i)
    wait(last)
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for i in range(CALLS):
            last = step(i)
        wait(last)
    on_gpu = [e for e in found.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    return [(e.time_range.start * 1e3, e.time_range.end * 1e3, e.name) for e in on_gpu], CALLS


def show_gaps(spans: list[Span], steps: int) -> None:
    """How long no kernel ran between the first and the last, and the longest pauses."""
    gaps = []
    end = spans[0][1]
    for (_, _, before), (start, stop, name) in itertools.pairwise(spans):
        if start > end:
            gaps.append((start - end, before, name))
        end = max(end, stop)
    whole = (end - spans[0][0]) / steps / 1e6
    print(f"{whole:.2f} ms from step to step, {sum(g[0] for g in gaps) / steps / 1e6:.2f} idle")
    for gap, before, name in sorted(gaps, reverse=True)[:8]:
        print(f"  idle {gap / 1e6:.3f} ms after {before[:60]} before {name[:60]}")


if __name__ == "__main__":
    main()
