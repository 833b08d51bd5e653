"""Train a small network on the CPU and on the demo chip: the losses are the same."""

from __future__ import annotations

import demo_chip
import numpy as np

import bireme as paddle
from bireme import nn


def train(device: str, steps: int = 20) -> list[float]:
    paddle.set_device(device)
    paddle.seed(0)
    net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = paddle.optimizer.Adam(0.01, parameters=net.parameters())
    rng = np.random.default_rng(0)
    x, label = rng.normal(size=(64, 8)).astype("float32"), rng.integers(0, 3, 64)
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(net(paddle.to_tensor(x)), paddle.to_tensor(label))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss.item())
    return losses


def main() -> None:
    on_cpu = train("cpu")
    on_chip = train("demo_chip")
    np.testing.assert_allclose(on_chip, on_cpu, rtol=1e-4)
    assert on_chip[-1] < on_chip[0]
    print(f"loss {on_chip[0]:.4f} to {on_chip[-1]:.4f}, on the CPU to {on_cpu[-1]:.4f}")
    print("the chip ran", ", ".join(f"{op} {n} times" for op, n in demo_chip.ran.most_common(3)))


if __name__ == "__main__":
    main()
