"""The planner's choice against all it could choose, on eight virtual devices of this machine.

    python -m bench.planner [gpt mlp resnet dlrm moe]

Every division into data and tensor parallelism with every stage of ZeRO and with recomputation is
trained, in turns; each time is the shortest of several rounds. The planner's choice is compared
with the fastest, predictions with what was measured, and predicted memory with XLA's own figure.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import numpy as np

import bireme as paddle
from bireme import distributed as dist
from bireme import nn
from bireme.distributed.planner import Plan
from bireme.incubate.distributed.models import moe
from bireme.nn import functional as F

ROUNDS, STEPS = 5, 3


class GPT(nn.Layer):
    def __init__(self, width: int = 256, layers: int = 2, words: int = 2048) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        block = nn.TransformerEncoderLayer(
            width, 8, 4 * width, dropout=0.0, activation="gelu", normalize_before=True
        )
        self.blocks = nn.TransformerEncoder(block, layers)
        self.head = nn.Linear(width, words)

    def forward(self, ids: Any) -> Any:
        return self.head(self.blocks(self.words(ids)))


class DLRM(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(200_000, 32)
        self.bottom = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 32))
        self.top = nn.Sequential(nn.Linear(32 * 9, 256), nn.ReLU(), nn.Linear(256, 2))

    def forward(self, numbers: Any, ids: Any) -> Any:
        rows = self.table(ids).flatten(1)
        return self.top(paddle.concat([self.bottom(numbers), rows], axis=1))


class Mixture(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 128)
        gate = moe.GShardGate(128, 8, 1, capacity=(0.3, 0.3), random_routing=False)
        self.experts = moe.MoELayer(128, moe.StackedExperts(8, 128, 512), gate)
        self.last = nn.Linear(128, 16)

    def forward(self, x: Any) -> Any:
        return self.last(self.experts(self.first(x)))


def _case(name: str) -> tuple[Callable[[], nn.Layer], list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(0)
    if name == "gpt":
        ids = rng.integers(0, 2048, (16, 128))
        return GPT, [ids], rng.integers(0, 2048, (16, 128))
    if name == "mlp":
        x = rng.normal(size=(32, 1024)).astype("float32")
        return (
            lambda: nn.Sequential(
                nn.Linear(1024, 8192), nn.ReLU(), nn.Linear(8192, 1024), nn.ReLU(),
                nn.Linear(1024, 16),
            ),
            [x],
            rng.integers(0, 16, (32,)),
        )  # fmt: skip
    if name == "resnet":
        x = rng.normal(size=(32, 3, 32, 32)).astype("float32")
        build = lambda: paddle.vision.models.resnet18(num_classes=10)  # noqa: E731
        return build, [x], rng.integers(0, 10, (32,))
    if name == "dlrm":
        x = rng.normal(size=(1024, 16)).astype("float32")
        return DLRM, [x, rng.integers(0, 200_000, (1024, 8))], rng.integers(0, 2, (1024,))
    if name == "moe":
        x = rng.normal(size=(64, 16, 64)).astype("float32")
        return Mixture, [x], rng.integers(0, 16, (64, 16))
    raise SystemExit(f"there is no model {name!r}")


class Trial:
    """One candidate, laid out and ready to be timed."""

    def __init__(
        self, build: Callable[[], nn.Layer], inputs: list[np.ndarray], labels: np.ndarray,
        degrees: dict[str, int] | None, recompute: str,
    ) -> None:  # fmt: skip
        paddle.seed(0)
        model = build()
        optimizer = paddle.optimizer.AdamW(1e-4, parameters=model.parameters())
        mesh = dist.ProcessMesh(list(range(8)))
        self.plan: Plan = dist.plan(
            model, inputs, mesh, optimizer=optimizer, loss=F.cross_entropy, labels=[labels],
            degrees={"micro_batches": 1} | (degrees or {}), recompute=recompute,
        )  # fmt: skip
        self.model, self.optimizer = self.plan.apply(model, optimizer)
        placed = self.plan.mesh
        cut = [dist.Shard(0) if n == "dp" else dist.Replicate() for n in placed.dim_names]
        self.inputs = [dist.shard_tensor(x, placed, cut) for x in inputs]
        self.labels = dist.shard_tensor(labels, placed, cut)
        self.best = float("inf")

    def step(self) -> float:
        loss = F.cross_entropy(self.model(*self.inputs), self.labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.clear_grad()
        return loss.item()

    def time(self) -> None:
        start = time.perf_counter()
        for _ in range(STEPS):
            self.step()
        self.best = min(self.best, (time.perf_counter() - start) / STEPS)


def sweep(name: str) -> None:
    build, inputs, labels = _case(name)
    trials = []
    for mp in (1, 2, 4, 8):
        dp = 8 // mp
        for zero in (0, 1, 2, 3) if dp > 1 else (0,):
            for recompute, ep in (("none", 1), ("all", 1), ("none", dp)):
                if ep > 1 and name != "moe":
                    continue
                degrees = {"dp": dp, "mp": mp, "zero": zero, "ep": ep}
                try:
                    trial = Trial(build, inputs, labels, degrees, recompute)
                except ValueError as e:
                    print(f"  {degrees}: {e}")
                    continue
                if recompute == "all" and not trial.plan.recomputed():
                    continue
                trials.append((degrees, recompute, trial))
    chosen = Trial(build, inputs, labels, None, "auto")
    trials.append((dict(chosen.plan.degrees._asdict()), "chosen", chosen))
    for _, _, trial in trials:
        trial.step()
        trial.step()
    for _ in range(ROUNDS):
        for _, _, trial in trials:
            trial.time()
    trials.sort(key=lambda t: t[2].best)
    print(f"{name}: chosen {chosen.plan.degrees}")
    for degrees, recompute, trial in trials:
        shown = {k: degrees[k] for k in ("dp", "mp", "zero", "ep")}
        print(
            f"  {shown} {recompute:6} measured {trial.best * 1e3:7.1f} ms, predicted "
            f"{trial.plan.seconds * 1e3:7.1f} ms"
        )
    print(f"  the choice takes {chosen.best / trials[0][2].best:.3f} of the fastest's time")


if __name__ == "__main__":
    for case in sys.argv[1:] or ["gpt", "mlp", "resnet", "dlrm", "moe"]:
        sweep(case)
