"""A network learns to solve Burgers' equation from the equation itself.

    python examples/burgers_pinn.py [--quick] [--plot burgers.png]

    u_t + u u_x = v u_xx,    u(x, 0) = -sin(pi x),    u(-1, t) = u(1, t) = 0

A sine wave steepens into a front. The network sees no data: its loss is what is left of the
equation when its own derivatives, first and second, are put in. The answer is compared with the
exact solution (the Cole-Hopf transform).
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import numpy as np

import bireme as paddle
from bireme import nn


@dataclass
class Setting:
    """How hard the problem is and how long to try."""

    viscosity: float = 0.01 / math.pi
    width: int = 32
    depth: int = 4
    points: int = 2000
    steps: int = 1500
    learning_rate: float = 2e-3
    refinements: int = 12  # of 100 steps each with second-order information


QUICK = Setting(0.1, width=24, depth=3, points=500, steps=400, learning_rate=1e-2, refinements=1)


class Solution(nn.Layer):
    """u(x, t). Start and edges are built in, so that only the equation is left to learn."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        layers: list[nn.Layer] = [nn.Linear(2, width), nn.Tanh()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.Tanh()]
        self.network = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, x: paddle.Tensor, t: paddle.Tensor) -> paddle.Tensor:
        free = self.network(paddle.concat([x, 2 * t - 1], axis=-1))
        return -paddle.sin(math.pi * x) + t * (1 - x * x) * free


def residual(
    model: Solution, x: paddle.Tensor, t: paddle.Tensor, viscosity: float
) -> paddle.Tensor:
    """u_t + u u_x - v u_xx: zero where the equation holds."""
    u = model(x, t)
    u_x, u_t = paddle.grad(u.sum(), [x, t], create_graph=True)
    (u_xx,) = paddle.grad(u_x.sum(), x, create_graph=True)
    return u_t + u * u_x - viscosity * u_xx


def exact(x: np.ndarray, t: np.ndarray, viscosity: float) -> np.ndarray:
    """The exact solution, by Gauss-Hermite quadrature of Cole's integrals."""
    z, weight = np.polynomial.hermite.hermgauss(100)
    y = x[..., None] - 2 * np.sqrt(viscosity * np.maximum(t[..., None], 1e-12)) * z
    heat = weight * np.exp(-(np.cos(np.pi * y) + 1) / (2 * np.pi * viscosity))
    return -(np.sin(np.pi * y) * heat).sum(-1) / heat.sum(-1)


def draw_points(rng: np.random.Generator, count: int) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Places and times, half of them close to x = 0 where the front builds up."""
    x = rng.uniform(-1, 1, (count, 1))
    x[count // 2 :] = np.clip(0.1 * rng.normal(size=(count - count // 2, 1)), -1, 1)
    made = [paddle.to_tensor(a.astype("float32")) for a in (x, rng.uniform(0, 1, (count, 1)))]
    for one in made:
        one.stop_gradient = False
    return made[0], made[1]


def train(setting: Setting, log: bool = False) -> Solution:
    """Fit the network to the equation at points that are drawn anew now and then."""
    paddle.seed(0)
    rng = np.random.default_rng(0)
    model = Solution(setting.width, setting.depth)
    schedule = paddle.optimizer.lr.CosineAnnealingDecay(setting.learning_rate, setting.steps)
    optimizer = paddle.optimizer.Adam(schedule, parameters=model.parameters())
    x = t = paddle.zeros([0])
    for step in range(setting.steps):
        if step % 100 == 0:
            x, t = draw_points(rng, setting.points)
        loss = (residual(model, x, t, setting.viscosity) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        x.clear_gradient()
        t.clear_gradient()
        schedule.step()
        if log and (step + 1) % 500 == 0:
            print(f"step {step + 1:5}: mean squared residual {loss.item():.2e}")
    refine(model, setting, rng, log)
    return model


def refine(model: Solution, setting: Setting, rng: np.random.Generator, log: bool) -> None:
    """L-BFGS takes the residual down where Adam only wanders, at points that stay the same."""
    x, t = draw_points(rng, setting.points)
    optimizer = paddle.optimizer.LBFGS(
        max_iter=100, history_size=50, line_search_fn="strong_wolfe", tolerance_grad=0.0,
        tolerance_change=0.0, parameters=model.parameters(),
    )  # fmt: skip

    def loss() -> paddle.Tensor:
        optimizer.clear_grad()
        value = (residual(model, x, t, setting.viscosity) ** 2).mean()
        value.backward()
        return value

    for i in range(setting.refinements):
        before = optimizer.step(loss)
        if log:
            print(f"refinement {i + 1:2}: mean squared residual {float(before):.2e} before")


def grid(n: int = 101) -> tuple[np.ndarray, np.ndarray]:
    """Places and times to look at: [time, place]."""
    x, t = np.meshgrid(np.linspace(-1, 1, 2 * n - 1), np.linspace(0, 1, n))
    return x, t


def evaluate(model: Solution, x: np.ndarray, t: np.ndarray) -> np.ndarray:
    with paddle.no_grad():
        flat = [paddle.to_tensor(a.reshape(-1, 1).astype("float32")) for a in (x, t)]
        return model(*flat).numpy().reshape(x.shape)


def relative_error(found: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(found - reference) / np.linalg.norm(reference))


def plot(path: str, x: np.ndarray, t: np.ndarray, found: np.ndarray, reference: np.ndarray) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    image = left.pcolormesh(t, x, found, cmap="RdBu_r", vmin=-1, vmax=1, shading="auto")
    figure.colorbar(image, ax=left, label="u")
    left.set(xlabel="t", ylabel="x", title="the network's u(x, t)")
    for row in np.linspace(0, len(t) - 1, 5).astype(int):
        (line,) = right.plot(x[row], found[row], label=f"t = {t[row, 0]:.2f}")
        right.plot(x[row], reference[row], "--", color=line.get_color(), alpha=0.6)
    right.set(xlabel="x", ylabel="u", title="network (lines) and exact solution (dashes)")
    right.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(quick: bool = False, picture: str | None = None) -> float:
    setting = QUICK if quick else Setting()
    model = train(setting, log=not quick)
    x, t = grid()
    found, reference = evaluate(model, x, t), exact(x, t, setting.viscosity)
    error = relative_error(found, reference)
    print(f"relative error against the exact solution: {error:.2%}")
    if picture is not None:
        plot(picture, x, t, found, reference)
        print(f"plotted to {picture}")
    return error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Burgers' equation, solved by a network")
    parser.add_argument("--quick", action="store_true", help="an easier front in a few seconds")
    parser.add_argument("--plot", metavar="FILE", default="burgers.png")
    options = parser.parse_args()
    main(options.quick, options.plot)
