"""`python -m bench.gpu.first`: from the start of a process to its first loss on a GPU.

Plain eager code in bf16 autocast, every peer in a process of its own with empty caches. Columns:
seconds to the printed loss of the first step, and milliseconds of a steady step soon after.
`gpt_lengths` trains on texts of 24 lengths, `gpt_new_lengths` on lengths that do not come back:
seconds of `--steps` steps after the first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PEERS = ("bireme", "torch")
MODELS = ("vit", "gpt2", "unet", "resnet50", "lstm", "gpt_lengths", "gpt_new_lengths")
_ROUND = 10


def work(peer: str, model: str, steps: int) -> None:
    """What a process does; it prints its figures."""
    from bench.gpu import first_models, train

    if model in first_models.MODELS:
        kit = first_models.paddle_kit() if peer == "bireme" else first_models.torch_kit()
        step = first_models.stepper(kit, model)
    else:
        of_batch, _ = (
            train.bireme_step(model) if peer == "bireme" else train.torch_step(model, False)
        )
        step = lambda: of_batch(0)  # noqa: E731
    losses = [float(step())]
    first = time.time() - float(os.environ["BENCH_STARTED"])
    if model.endswith("_lengths"):
        start = time.perf_counter()
        losses += [float(step()) for _ in range(steps)]
        figures: dict[str, Any] = {"all_s": time.perf_counter() - start}
    else:
        best = float("inf")
        losses.append(float(step()))
        for _ in range(3):
            start = time.perf_counter()
            for _ in range(_ROUND):
                loss = step()
            losses.append(float(loss))
            best = min(best, (time.perf_counter() - start) / _ROUND)
        figures = {"step_ms": best * 1e3}
    print(json.dumps({"first_s": first, **figures, "losses": losses[:2]}))


def measure(peer: str, model: str, steps: int, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bireme-bench-") as caches:
        environment = {
            **os.environ, "BIREME_CACHE_DIR": f"{caches}/bireme",
            "TRITON_CACHE_DIR": f"{caches}/triton", "CUDA_CACHE_PATH": f"{caches}/cuda",
            "BENCH_STARTED": str(time.time()),
        }  # fmt: skip
        command = [sys.executable, "-m", "bench.gpu.first", "--work", peer, model]
        command += ["--steps", str(steps)]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=seconds,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"error": f"took more than {seconds:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"error": done.stderr.strip().splitlines()[-1:] or ["no output"]}
    return json.loads(lines[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--seconds", type=float, default=120.0, help="that a process may take")
    parser.add_argument("--steps", type=int, default=47, help="of the lengths, after the first")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="write the figures here")
    options = parser.parse_args()
    if options.work:
        work(*options.work, options.steps)
        return
    results: dict[str, Any] = {}
    for model in options.models:
        for peer in options.peers.split(","):
            found = measure(peer, model, options.steps, options.seconds)
            results.setdefault(model, {})[peer] = found
            print(f"{model:12} {peer:8} {found}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
