"""`python -m bench.gpu.check`: the same eager code on a GPU.

For every workload: losses of the first steps against the NumPy tier, time per step against torch
eager on the same GPU, that parameters are donated (updated in place), and that a steady step
copies nothing back to the host and compiles nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.workloads import WORKLOADS, make_weights, without_dropout


def first_losses(size: Any, steps: int = 4) -> list[float]:
    from bench.paddle_models import bireme_trainer

    trainer = bireme_trainer(size, make_weights(size))
    return [trainer.read(trainer.step(i)) for i in range(steps)]


def steady(trainer: Any, seconds: float, synchronize: Any) -> float:
    """Seconds per step, best of several stretches."""
    for i in range(8):
        last = trainer.step(i)
    trainer.read(last)
    count = 4
    while True:
        start = time.perf_counter()
        for i in range(count):
            last = trainer.step(i)
        synchronize(last)
        if time.perf_counter() - start > seconds / 4:
            break
        count *= 2
    best = float("inf")
    for _ in range(4):
        start = time.perf_counter()
        for i in range(count):
            last = trainer.step(i)
        synchronize(last)
        best = min(best, (time.perf_counter() - start) / count)
    return best


def check_workload(name: str, seconds: float) -> dict[str, Any]:
    import jax
    import torch

    from bench.paddle_models import bireme_trainer
    from bireme.core import config, executor, place, stats

    size = WORKLOADS[name]
    plain = without_dropout(size)
    on_gpu = first_losses(plain)
    gpu = place.default_place()
    place.set_default_place(place.CPUPlace())
    config.compile_mode = "never"
    on_cpu = first_losses(plain)
    config.compile_mode = "auto"
    place.set_default_place(gpu)

    executor.clear_programs()
    trainer = bireme_trainer(size, make_weights(size))
    ours = steady(trainer, seconds, lambda loss: loss._array().block_until_ready())
    with stats.count_compiles() as compiles, jax.transfer_guard_device_to_host("disallow"):
        for i in range(4):
            last = trainer.step(i)
        last._array().block_until_ready()
    step = max(executor._programs.values(), key=lambda program: program.hits)
    state = len(trainer.model.parameters())
    donated = f"{len(step.donated)} of {len(step.graph.inputs)} inputs, {state} parameters"
    del trainer

    from bench.torch_models import torch_trainer

    torch.set_default_device("cuda")
    peer = torch_trainer(size, make_weights(size))
    theirs = steady(peer, seconds, lambda loss: torch.cuda.synchronize())
    return {
        "workload": name,
        "bireme_ms": ours * 1e3,
        "torch_eager_ms": theirs * 1e3,
        "ratio": ours / theirs,
        "loss_difference": float(np.max(np.abs(np.subtract(on_gpu, on_cpu)))),
        "loss": on_gpu[0],
        "donated": donated,
        "compiles_in_steady_steps": compiles[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    args = parser.parse_args()

    import jax

    print(f"jax {jax.__version__} on {jax.devices()}")
    rows = []
    for name in args.workloads:
        try:
            rows.append(check_workload(name, args.seconds))
        except Exception as e:  # one broken workload must not hide the others
            rows.append({"workload": name, "error": f"{type(e).__name__}: {e}"})
        print(json.dumps(rows[-1]), flush=True)
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
