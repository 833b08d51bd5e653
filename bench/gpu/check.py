"""`python -m bench.gpu.check`: the same eager code on a GPU.

For every workload: losses of the first steps against the NumPy tier, time per step against torch
eager on the same GPU, that parameters are donated (updated in place), and that a steady step
copies nothing back to the host and compiles nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu.state import wait_for
from bench.workloads import WORKLOADS, make_weights, without_dropout


def first_losses(size: Any, steps: int = 4) -> list[float]:
    from bench.paddle_models import bireme_trainer

    trainer = bireme_trainer(size, make_weights(size))
    return [trainer.read(trainer.step(i)) for i in range(steps)]


def prepare(peer: str, workload: str, seconds: float) -> Callable[[], dict[str, Any]]:
    """Build, compile and warm up; what is returned then measures for about `seconds`, and looks
    into a steady step of ours."""
    size = WORKLOADS[workload]
    if peer == "bireme":
        from bench.paddle_models import bireme_trainer

        trainer, synchronize = bireme_trainer(size, make_weights(size)), wait_for
    else:
        import torch

        from bench.torch_models import torch_trainer

        torch.set_default_device("cuda")
        trainer = torch_trainer(size, make_weights(size))
        synchronize = lambda loss: torch.cuda.synchronize()  # noqa: E731
    for i in range(8):
        last = trainer.step(i)
    trainer.read(last)

    def measure() -> dict[str, Any]:
        found: dict[str, Any] = {"ms": steady(trainer, seconds, synchronize) * 1e3}
        return found | inside_a_step(trainer) if peer == "bireme" else found

    return measure


def steady(trainer: Any, seconds: float, synchronize: Any) -> float:
    """Seconds per step, best of several stretches."""
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


def inside_a_step(trainer: Any) -> dict[str, Any]:
    """What a steady step donates and compiles; copying anything back to the host is an error."""
    import jax

    from bireme.core import executor, stats

    with stats.count_compiles() as compiles, jax.transfer_guard_device_to_host("disallow"):
        for i in range(4):
            last = trainer.step(i)
        wait_for(last)
    step = max(executor._programs.values(), key=lambda program: program.runs)
    state = len(trainer.model.parameters())
    return {
        "donated": f"{len(step.donated)} of {len(step.graph.inputs)} inputs, {state} parameters",
        "compiles_in_steady_steps": compiles[0],
    }


def check_workload(name: str, seconds: float) -> dict[str, Any]:
    from bireme.core import executor, place
    from bireme.host import config

    plain = without_dropout(WORKLOADS[name])
    on_gpu = first_losses(plain)
    gpu = place.default_place()
    place.set_default_place(place.CPUPlace())
    config.compile_mode = "never"
    on_cpu = first_losses(plain)
    config.compile_mode = "auto"
    place.set_default_place(gpu)

    executor.clear_programs()
    ours = prepare("bireme", name, seconds)()
    theirs = prepare("torch", name, seconds)()
    return {
        "workload": name,
        "bireme_ms": ours["ms"],
        "torch_eager_ms": theirs["ms"],
        "ratio": ours["ms"] / theirs["ms"],
        "loss_difference": float(np.max(np.abs(np.subtract(on_gpu, on_cpu)))),
        "loss": on_gpu[0],
        "donated": ours["donated"],
        "compiles_in_steady_steps": ours["compiles_in_steady_steps"],
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
