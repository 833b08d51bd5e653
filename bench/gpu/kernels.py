"""`python -m bench.gpu.kernels gpt2`: where a step's time goes, by GPU kernel."""

from __future__ import annotations

import argparse
import collections
import glob
import tempfile

from bench.gpu.train import bireme_step

STEPS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--top", type=int, default=45)
    options = parser.parse_args()
    import jax

    step, wait = bireme_step(options.model)
    for i in range(10):
        last = step(i)
    wait(last)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for i in range(STEPS):
                last = step(i)
            wait(last)
        (path,) = glob.glob(folder + "/**/*.xplane.pb", recursive=True)
        data = jax.profiler.ProfileData.from_file(path)
        totals: collections.Counter[str] = collections.Counter()
        counts: collections.Counter[str] = collections.Counter()
        for plane in data.planes:
            if not plane.name.startswith("/device:GPU"):
                continue
            for line in plane.lines:
                if not line.name.startswith("Stream"):
                    continue
                for event in line.events:
                    stats = dict(event.stats)
                    name = f"{stats.get('hlo_op', '')} | {event.name}"
                    totals[name] += event.duration_ns
                    counts[name] += 1
    whole = sum(totals.values())
    print(f"{whole / STEPS / 1e6:.2f} ms of kernels in a step")
    for name, spent in totals.most_common(options.top):
        print(f"{spent / STEPS / 1e6:8.3f} ms {counts[name] / STEPS:6.1f}x  {name[:150]}")


if __name__ == "__main__":
    main()
