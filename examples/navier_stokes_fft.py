"""Two-dimensional flow by Fourier transforms, and a flow found again by its gradient.

    python examples/navier_stokes_fft.py [--quick] [--plot flow.png]

    w_t + (u . grad) w = v lap(w),    u = (psi_y, -psi_x),    lap(psi) = -w

Vorticity w on a periodic square. Derivatives are products in Fourier space, the advection is
computed in real space and its highest third of frequencies dropped, time goes by Runge-Kutta
steps with the viscous decay taken exactly.

1. Vortices that a wind carries along: compared with the exact solution.
2. Random vortices that merge, for the picture.
3. The solver is made of differentiable operations: the strength of a vortex at the start is
   found from where it leads.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

import bireme as paddle
from bireme import fft


class Flow:
    """A periodic square of side 2 pi with n * n points and a uniform wind."""

    def __init__(self, n: int, viscosity: float, dt: float, wind: tuple[float, float] = (0, 0)):
        self.n, self.viscosity, self.dt, self.wind = n, viscosity, dt, wind
        kx = fft.fftfreq(n, 1 / n, dtype="float64").unsqueeze(1)
        ky = fft.rfftfreq(n, 1 / n, dtype="float64").unsqueeze(0)
        square = kx * kx + ky * ky
        self.ikx, self.iky = kx * 1j, ky * 1j
        self.to_stream = 1.0 / paddle.where(square == 0, 1.0, square)  # lap(psi) = -w
        self.kept = ((kx.abs() < n / 3) & (ky.abs() < n / 3)).astype("float64")
        self.half_decay = paddle.exp(-viscosity * dt / 2 * square)
        side = np.arange(n) * 2 * math.pi / n
        self.x, self.y = np.meshgrid(side, side, indexing="ij")

    def to_waves(self, field: paddle.Tensor) -> paddle.Tensor:
        return fft.rfft2(field)

    def to_field(self, waves: paddle.Tensor) -> paddle.Tensor:
        return fft.irfft2(waves, s=(self.n, self.n))

    def advection(self, w: paddle.Tensor) -> paddle.Tensor:
        """-(u . grad) w, in Fourier space."""
        stream = w * self.to_stream
        u = self.to_field(self.iky * stream) + self.wind[0]
        v = self.to_field(-self.ikx * stream) + self.wind[1]
        carried = u * self.to_field(self.ikx * w) + v * self.to_field(self.iky * w)
        return -self.to_waves(carried) * self.kept

    def step(self, w: paddle.Tensor) -> paddle.Tensor:
        """One Runge-Kutta step of fourth order with an integrating factor."""
        dt, decay = self.dt, self.half_decay
        k1 = self.advection(w)
        start = w * decay
        k2 = self.advection(start + dt / 2 * k1 * decay)
        k3 = self.advection(start + dt / 2 * k2)
        k4 = self.advection(start * decay + dt * k3 * decay)
        end = start * decay + dt / 6 * k1 * decay * decay
        return end + dt / 3 * (k2 + k3) * decay + dt / 6 * k4

    def run(self, field: paddle.Tensor, steps: int) -> paddle.Tensor:
        """The vorticity after `steps` steps."""
        step = paddle.jit.to_static(self.step)  # captured once, not once per call
        w = self.to_waves(field)
        for _ in range(steps):
            w = step(w)
        return self.to_field(w)

    def energy(self, field: paddle.Tensor) -> paddle.Tensor:
        """The mean kinetic energy without the wind."""
        stream = self.to_field(self.to_waves(field) * self.to_stream)
        return 0.5 * (stream * field).mean()


def carried_vortices(n: int, steps: int) -> float:
    """Taylor-Green vortices in a wind; the largest distance from the exact solution."""
    flow = Flow(n, viscosity=0.02, dt=1.0 / steps, wind=(1.0, 0.5))
    start = paddle.to_tensor(2 * np.cos(flow.x) * np.cos(flow.y))
    found = flow.run(start, steps).numpy()
    moved = 2 * np.cos(flow.x - 1.0) * np.cos(flow.y - 0.5)
    return float(np.abs(found - moved * math.exp(-2 * flow.viscosity)).max())


def merging_vortices(n: int, steps: int) -> tuple[np.ndarray, np.ndarray, tuple[float, float]]:
    """Random vortices (before, after) and the energy of both."""
    flow = Flow(n, viscosity=1e-3, dt=0.02)
    rng = np.random.default_rng(3)
    kx, ky = np.fft.fftfreq(n, 1 / n)[:, None], np.fft.rfftfreq(n, 1 / n)[None]
    size = np.hypot(kx, ky)
    waves = size * np.exp(-((size / 6) ** 2)) * np.exp(2j * np.pi * rng.uniform(size=size.shape))
    field = np.fft.irfft2(waves, s=(n, n))
    start = paddle.to_tensor(4 * field / np.abs(field).max())
    end = flow.run(start, steps)
    energies = (flow.energy(start).item(), flow.energy(end).item())
    return start.numpy(), end.numpy(), energies


def recovered_strength(n: int, steps: int, rounds: int = 80) -> float:
    """How strong was the vortex that led to this flow? Gradient descent through the solver."""
    flow = Flow(n, viscosity=0.01, dt=0.05)
    vortex = paddle.to_tensor(np.exp(4 * (np.cos(flow.x - 2) + np.cos(flow.y - 3) - 2)))
    strain = paddle.to_tensor(np.sin(flow.x) * np.sin(flow.y))
    seen = flow.run(3.0 * vortex + strain, steps).detach()
    strength = paddle.to_tensor(1.0, dtype="float64", stop_gradient=False)
    optimizer = paddle.optimizer.Adam(0.3, parameters=[strength])
    for _ in range(rounds):
        loss = ((flow.run(strength * vortex + strain, steps) - seen) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
    return strength.item()


def plot(path: str, before: np.ndarray, after: np.ndarray) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 4.4))
    for axis, field, title in zip(axes, (before, after), ("start", "end"), strict=True):
        size = float(np.abs(field).max())
        axis.imshow(field.T, origin="lower", cmap="RdBu_r", vmin=-size, vmax=size)
        axis.set(title=f"vorticity at the {title}", xticks=[], yticks=[])
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(quick: bool = False, picture: str | None = None) -> tuple[float, float, float]:
    n, steps = (24, 20) if quick else (128, 200)
    error = carried_vortices(n, steps)
    print(f"vortices in a wind: largest distance from the exact solution {error:.1e}")
    before, after, (first, last) = merging_vortices(32 if quick else 256, 20 if quick else 600)
    print(f"merging vortices: energy {first:.4f} -> {last:.4f}")
    strength = recovered_strength(16 if quick else 32, 4 if quick else 20)
    print(f"strength of the vortex: 3.0, found {strength:.3f}")
    if picture is not None:
        plot(picture, before, after)
        print(f"plotted to {picture}")
    return error, last / first, strength


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Two-dimensional flow by Fourier transforms")
    parser.add_argument("--quick", action="store_true", help="small grids, a few seconds")
    parser.add_argument("--plot", metavar="FILE", default="flow.png")
    options = parser.parse_args()
    main(options.quick, options.plot)
