"""The scientific examples, in their quick modes, against exact solutions."""

from __future__ import annotations

import pathlib
import runpy
from typing import Any

import numpy as np
import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


def load(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / name), run_name="example")


def test_a_network_solves_burgers_equation(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "burgers.png"
    assert load("burgers_pinn.py")["main"](True, str(picture)) < 0.05
    assert picture.stat().st_size > 10_000


def test_the_reference_solves_burgers_equation() -> None:
    """The exact solution is checked too: finite differences of it leave nothing."""
    example = load("burgers_pinn.py")
    x, t = example["grid"](201)
    u = example["exact"](x, t, 0.1)
    dt, dx = t[1, 0] - t[0, 0], x[0, 1] - x[0, 0]
    u_t = (u[2:, 1:-1] - u[:-2, 1:-1]) / (2 * dt)
    u_x = (u[1:-1, 2:] - u[1:-1, :-2]) / (2 * dx)
    u_xx = (u[1:-1, 2:] - 2 * u[1:-1, 1:-1] + u[1:-1, :-2]) / dx**2
    assert np.abs(u_t + u[1:-1, 1:-1] * u_x - 0.1 * u_xx)[2:].max() < 1e-3
    np.testing.assert_allclose(u[0], -np.sin(np.pi * x[0]), atol=1e-5)


def test_flow_by_fourier_transforms(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "flow.png"
    error, energy_kept, strength = load("navier_stokes_fft.py")["main"](True, str(picture))
    assert error < 1e-5
    assert 0.9 < energy_kept < 1.0
    assert strength == pytest.approx(3.0, abs=0.15)
    assert picture.stat().st_size > 10_000


def test_time_steps_are_of_fourth_order() -> None:
    """Half the step, a sixteenth of the error."""
    carried = load("navier_stokes_fft.py")["carried_vortices"]
    assert carried(16, 10) / carried(16, 20) == pytest.approx(16, rel=0.2)


def test_energy_is_kept_without_viscosity() -> None:
    example = load("navier_stokes_fft.py")
    flow = example["Flow"](24, 0.0, 0.02)
    import bireme as paddle

    start = paddle.to_tensor(np.sin(flow.x) * np.cos(2 * flow.y) + np.cos(3 * flow.x + flow.y))
    end = flow.run(start, 25)
    assert flow.energy(end).item() == pytest.approx(flow.energy(start).item(), rel=1e-6)
