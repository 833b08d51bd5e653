"""`python -m bench.gpu.tiers`: training does not depend on the tier that runs it.

Three small nets train for 50 steps on the default device, forced to the NumPy tier (never),
compiled at first sight (always), and as usual (auto). Their losses may differ by what rounding
makes of them: `noise` is how far the NumPy tier's own losses move if its first weights change by
one part in ten million. The masks of dropout are the same bit for bit. Float32 without TF32, then
with it.

Then what is new on a device: a table with gradients of rows, and large arrays that the host
overwrites as soon as the call has returned.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np

import bireme as paddle
from bireme import nn
from bireme.core import executor, trace
from bireme.host import config
from bireme.nn import functional as F

STEPS = 50
MODES = ("never", "always", "auto")
# Times the noise that losses may differ by, and a part of the loss at least.
_TIMES, _AT_LEAST = 20.0, 2e-6
_TF32_PART = 2e-2


class Perceptron(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(20, 64), nn.Linear(64, 5)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Any) -> Any:
        return self.last(self.drop(F.gelu(self.first(x))))


class Convolutions(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2D(3, 8, 3, padding=1), nn.BatchNorm2D(8)
        self.second, self.drop = nn.Conv2D(8, 16, 3, stride=2), nn.Dropout(0.2)
        self.last = nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        return self.last(self.drop(F.relu(self.second(x))).mean([2, 3]))


class Transformer(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.layers = nn.LayerList(
            [nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, activation="gelu") for _ in "12"]
        )
        self.last = nn.Linear(32, 5)

    def forward(self, ids: Any) -> Any:
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x)
        return self.last(x.mean(1))


def batches(name: str) -> Callable[[int], tuple[np.ndarray, np.ndarray]]:
    def of(step: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(step % 10)
        labels = rng.integers(0, 5, 16)
        if name == "transformer":
            return rng.integers(0, 50, (16, 11)), labels
        shape = (16, 20) if name == "mlp" else (16, 3, 13, 13)
        return rng.normal(size=shape).astype("float32"), labels

    return of


NETS: dict[str, Callable[[], nn.Layer]] = {
    "mlp": Perceptron, "conv": Convolutions, "transformer": Transformer,
}  # fmt: skip


@contextmanager
def forced(mode: str, tf32: bool = False) -> Any:
    before = config.compile_mode, config.tf32
    trace.flush()
    executor.clear_programs()
    config.compile_mode, config.tf32 = mode, tf32
    try:
        yield
        trace.flush()
    finally:
        config.compile_mode, config.tf32 = before


def losses(name: str, steps: int, change: float = 0.0) -> tuple[list[float], list[bytes]]:
    """The losses of a training, and a mask of dropout from each tenth step."""
    paddle.seed(5)
    net = NETS[name]()
    for p in net.parameters():
        p.set_value(p.numpy() * np.float32(1 + change))
    optimizer = paddle.optimizer.AdamW(3e-3, parameters=net.parameters())
    batch = batches(name)
    found: list[Any] = []
    masks: list[bytes] = []
    for step in range(steps):
        x, labels = map(paddle.to_tensor, batch(step))
        mask = F.dropout(paddle.ones([40, 10]), 0.3)
        loss = F.cross_entropy(net(x), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        found.append(loss)
        if step % 10 == 9:
            masks.append(mask.numpy().tobytes())
            found = [float(f) for f in found]
    return [float(f) for f in found], masks


def compare(name: str, steps: int = STEPS) -> list[str]:
    """What is wrong with a net; prints its figures."""
    wrong = []
    with forced("never"):
        want, masks = losses(name, steps)
        moved, _ = losses(name, steps, 1e-7)
    noise = _far(moved, want)
    for mode in MODES[1:]:
        for tf32 in (False, True):
            with forced(mode, tf32):
                found, its_masks = losses(name, steps)
            far = _far(found, want)
            allowed = max(_TIMES * noise, _AT_LEAST * max(want)) + tf32 * _TF32_PART * max(want)
            what = f"{name:12} {mode:7} {'TF32' if tf32 else 'exact'}"
            print(f"{what}: {far:.2e} from {want[0]:.4f} ... {want[-1]:.4f}, noise {noise:.2e}")
            if not far <= allowed:
                wrong.append(f"{what}: losses differ by {far:.3g}, allowed are {allowed:.3g}")
            if its_masks != masks:
                wrong.append(f"{what}: other masks of dropout")
    return wrong


def _far(a: list[float], b: list[float]) -> float:
    return float(np.max(np.abs(np.subtract(a, b))))


def lookups(optimizer: str, rows: int = 1000, steps: int = 6) -> list[np.ndarray]:
    """A table and its optimizer's state after steps with gradients of rows."""
    paddle.seed(3)
    table = nn.Embedding(rows, 24, padding_idx=7, sparse=True)
    rng = np.random.default_rng(1)
    table.weight.set_value(rng.normal(size=(rows, 24)).astype("float32"))
    made = {
        "SGD": lambda: paddle.optimizer.SGD(0.1, parameters=table.parameters()),
        "lazy Adam": lambda: paddle.optimizer.Adam(
            0.01, parameters=table.parameters(), lazy_mode=True
        ),
        "Adam": lambda: paddle.optimizer.Adam(0.01, parameters=table.parameters()),
        "clipped": lambda: paddle.optimizer.SGD(
            0.1, parameters=table.parameters(), grad_clip=nn.ClipGradByGlobalNorm(0.05)
        ),
    }[optimizer]()
    for _ in range(steps):
        first, second = (paddle.to_tensor(rng.integers(0, rows, (16, 5))) for _ in "12")
        loss = (table(first) * table(second)).square().mean() + table(first).mean()
        loss.backward()
        made.step()
        made.clear_grad()
    state = [v.numpy() for v in made.state_dict().values() if isinstance(v, paddle.Tensor)]
    return [table.weight.numpy(), *state]


def compare_lookups(optimizer: str) -> list[str]:
    with forced("never"):
        want = lookups(optimizer)
    wrong = []
    for mode in MODES[1:]:
        with forced(mode):
            found = lookups(optimizer)
        far = max(float(np.abs(a - b).max()) for a, b in zip(found, want, strict=True))
        print(f"rows, {optimizer:10} {mode:7}: {far:.2e}")
        if not far <= 1e-5:
            wrong.append(f"rows, {optimizer}, {mode}: {far:.3g}")
    return wrong


def compare_large(megabytes: int = 96) -> list[str]:
    """Large arrays that the host overwrites at once, in every tier and as batches of a loop."""
    wrong = []
    for mode in MODES:
        with forced(mode):
            array = np.empty((megabytes << 18,), np.float32)
            sums = []
            for step in range(4):
                array[:] = step + 1
                given = paddle.to_tensor(array)
                array[:] = -1
                sums.append((given * 2).mean())
            found = [float(s) for s in sums]
        print(f"large, {mode:7}: {found}")
        if found != [2.0, 4.0, 6.0, 8.0]:
            wrong.append(f"large arrays, {mode}: {found}")
    return wrong


def main() -> int:
    print(paddle.get_device())
    wrong = [line for name in NETS for line in compare(name)]
    for optimizer in ("SGD", "lazy Adam", "Adam", "clipped"):
        wrong += compare_lookups(optimizer)
    wrong += compare_large()
    for line in wrong:
        print("FAIL", line)
    print(f"{len(wrong)} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
