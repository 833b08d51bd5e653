"""Gradients of gradients: a network that obeys a differential equation.

    python examples/second_derivatives.py

The network u(x) learns u'' = -u with u(0) = 0 and u'(0) = 1, whose solution is sin(x).
"""

from __future__ import annotations

import numpy as np

import bireme as paddle
from bireme import nn


def derivative(y: paddle.Tensor, x: paddle.Tensor) -> paddle.Tensor:
    """dy/dx for every row, itself differentiable."""
    return paddle.grad([y.sum()], [x], create_graph=True)[0]


def main(steps: int = 1500) -> float:
    paddle.seed(0)
    model = nn.Sequential(
        nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1)
    )
    schedule = paddle.optimizer.lr.CosineAnnealingDecay(0.01, steps)
    optimizer = paddle.optimizer.Adam(learning_rate=schedule, parameters=model.parameters())
    points = np.linspace(0, np.pi, 40, dtype="float32")[:, None]
    for step in range(steps):
        x = paddle.to_tensor(points, stop_gradient=False)
        u = model(x)
        slope = derivative(u, x)
        curvature = derivative(slope, x)
        equation = ((curvature + u) ** 2).mean()
        start = u[0, 0] ** 2 + (slope[0, 0] - 1) ** 2
        loss = equation + start
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        schedule.step()
        if step % 500 == 0:
            print(f"step {step}: loss {loss.item():.5f}")
    with paddle.no_grad():
        error = float(np.abs(model(paddle.to_tensor(points)).numpy() - np.sin(points)).max())
    print(f"largest distance from sin(x): {error:.4f}")
    return error


if __name__ == "__main__":
    main()
