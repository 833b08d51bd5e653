"""`python -m bench.gpu.spectral`: a pseudo-spectral Navier-Stokes step in three dimensions.

Velocity in a periodic box, rotational form, 2/3 dealiasing, Heun's method: 18 real transforms of
256^3 points a step. The same lines run on Bireme and on torch; the limit counts the bytes that the
transforms and the products must move.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.gpu.decode import MEMORY_CEILING
from bench.gpu.state import wait_for


class Solver:
    """`xp` is bireme (as paddle) or torch; `fft` its fft module."""

    def __init__(self, xp: Any, n: int, viscosity: float, dt: float, tensor: Any):
        k = np.fft.fftfreq(n, 1 / n).astype("float32")
        kz = np.fft.rfftfreq(n, 1 / n).astype("float32")
        grid = np.stack(np.meshgrid(k, k, kz, indexing="ij"))
        square = (grid**2).sum(0)
        keep = (np.abs(grid) < n / 3).all(0)
        self.xp, self.n, self.dt = xp, n, dt
        self.k = [tensor(g) for g in grid]
        self.over_square = tensor((keep / np.where(square == 0, 1, square)).astype("float32"))
        self.keep = tensor(keep.astype("float32"))
        self.decay = tensor((viscosity * square).astype("float32"))

    def to_space(self, hats: list[Any]) -> list[Any]:
        return [self.xp.fft.irfftn(h, s=(self.n,) * 3) for h in hats]

    def slope(self, u: list[Any]) -> list[Any]:
        kx, ky, kz = self.k
        curl = [
            1j * (ky * u[2] - kz * u[1]),
            1j * (kz * u[0] - kx * u[2]),
            1j * (kx * u[1] - ky * u[0]),
        ]
        (a, b, c), (p, q, r) = self.to_space(u), self.to_space(curl)
        cross = [b * r - c * q, c * p - a * r, a * q - b * p]
        f = [self.xp.fft.rfftn(x) for x in cross]
        along = (kx * f[0] + ky * f[1] + kz * f[2]) * self.over_square
        return [
            fi * self.keep - ki * along - self.decay * ui
            for fi, ki, ui in zip(f, self.k, u, strict=True)
        ]

    def step(self, u: list[Any]) -> list[Any]:
        first = self.slope(u)
        guess = [a + self.dt * s for a, s in zip(u, first, strict=True)]
        second = self.slope(guess)
        both = zip(u, first, second, strict=True)
        return [a + (self.dt / 2) * (s + t) for a, s, t in both]

    def bytes_moved(self) -> float:
        """Each transform reads and writes its points twice over (two passes in device memory), and
        the rest reads and writes each field once."""
        real, half = self.n**3 * 4, self.n**2 * (self.n // 2 + 1) * 8
        transforms = 18 * 2 * (real + half)
        pointwise = 2 * ((3 + 6) * half + (6 + 3) * real + (3 + 3 + 3) * half) + 9 * half
        return transforms + pointwise


def taylor_green(n: int) -> list[np.ndarray]:
    x = np.arange(n, dtype="float32") * np.float32(2 * np.pi / n)
    X, Y, Z = np.meshgrid(x, x, x, indexing="ij")
    field = [np.sin(X) * np.cos(Y) * np.cos(Z), -np.cos(X) * np.sin(Y) * np.cos(Z), 0 * X]
    return [np.fft.rfftn(f).astype("complex64") for f in field]


def prepare(peer: str, points: int, steps: int) -> Callable[[], dict[str, Any]]:
    """Build, compile and warm up; what is returned then measures stretches of `steps` steps."""
    solver, u, wait = (on_bireme if peer == "bireme" else on_torch)(points)
    for _ in range(6):
        u = solver.step(u)
        wait(u)

    def measure() -> dict[str, Any]:
        nonlocal u  # the only name of a state, so that the next step may write over it
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            for _ in range(steps):
                u = solver.step(u)
                flush(u)
            wait(u)
            best = min(best, (time.perf_counter() - start) / steps)
        limit = solver.bytes_moved() / MEMORY_CEILING
        return {"ms": best * 1e3, "of_ceiling": limit / best, "energy": energy(u)}

    return measure


def flush(u: list[Any]) -> None:
    """A time step is a step: what was recorded starts to run."""
    if hasattr(u[0], "_value"):
        from bireme.core import trace

        trace.flush()


def on_bireme(n: int) -> tuple[Solver, list[Any], Any]:
    import bireme as paddle

    def wait(u: list[Any]) -> None:
        for x in u:
            wait_for(x)

    solver = Solver(paddle, n, 1e-3, 1e-3, paddle.to_tensor)
    return solver, [paddle.to_tensor(h) for h in taylor_green(n)], wait


def on_torch(n: int) -> tuple[Solver, list[Any], Any]:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"

    def tensor(a: np.ndarray) -> Any:
        return torch.tensor(a, device=device)

    def wait(u: list[Any]) -> None:
        if u[0].is_cuda:
            torch.cuda.synchronize()

    return Solver(torch, n, 1e-3, 1e-3, tensor), [tensor(h) for h in taylor_green(n)], wait


def energy(u: list[Any]) -> float:
    arrays = [x.numpy() if hasattr(x, "_value") else x.cpu().numpy() for x in u]
    return sum(float((np.abs(a) ** 2).sum()) for a in arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    n = options.points
    times = []
    for label, peer in (("Bireme", "bireme"), ("torch", "torch")):
        row = prepare(peer, n, options.steps)()
        times.append(row["ms"])
        print(
            f"{n}^3 {label:7s} {row['ms']:8.2f} ms a step, {row['of_ceiling']:4.0%} of the "
            f"bandwidth limit, energy {row['energy']:.6e}",
            flush=True,
        )
    print(f"ours / torch {times[0] / times[1]:.2f}")


if __name__ == "__main__":
    main()
