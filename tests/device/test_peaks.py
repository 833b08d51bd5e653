"""Peaks that begin anew: an allocator that keeps one peak for good, and programs that we know."""

from __future__ import annotations

import numpy as np
import pytest

import bireme
from bireme import device
from bireme.core import checks
from bireme.device import memory
from bireme.host import config

FIGURES = {
    "bytes_in_use": 1000, "peak_bytes_in_use": 10**9, "pool_bytes": 4000, "peak_pool_bytes": 10**9,
}  # fmt: skip


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What the device's allocator says; the CPU's own says nothing."""
    found = dict(FIGURES)
    monkeypatch.setattr(memory, "statistics", lambda where: found)
    monkeypatch.setattr(memory, "_resets", {})
    monkeypatch.setattr(checks, "starting", [])
    monkeypatch.setattr(config, "compile_mode", "always")
    return found


def test_before_a_reset_the_peak_is_the_allocators(figures: dict[str, int]) -> None:
    assert device.max_memory_allocated() == device.max_memory_reserved() == 10**9


def test_a_reset_begins_with_what_is_in_use(figures: dict[str, int]) -> None:
    device.reset_max_memory_allocated()
    device.reset_max_memory_reserved()
    assert device.max_memory_allocated() == 1000
    assert device.max_memory_reserved() == 4000
    figures["bytes_in_use"] = 3000
    assert device.max_memory_allocated() == 3000
    figures["bytes_in_use"] = 2000
    assert device.max_memory_allocated() == 3000
    device.reset_peak_memory_stats()
    assert device.max_memory_allocated() == 2000


def test_programs_count_with_the_buffers_that_they_make(figures: dict[str, int]) -> None:
    x = bireme.to_tensor(np.ones((256, 256), "float32"))
    device.synchronize()
    device.reset_max_memory_allocated()
    y = bireme.matmul(x, x) + 1
    device.synchronize()
    assert y.shape == [256, 256]
    assert device.max_memory_allocated() >= 1000 + 256 * 256 * 4


def test_what_was_recorded_before_a_reset_does_not_count(figures: dict[str, int]) -> None:
    y = bireme.to_tensor(np.ones((256, 256), "float32")) + 1
    device.reset_max_memory_allocated()
    assert y.shape == [256, 256]
    assert device.max_memory_allocated() == 1000


def test_a_higher_peak_is_the_allocators(figures: dict[str, int]) -> None:
    device.reset_max_memory_allocated()
    figures["peak_bytes_in_use"] = 2 * 10**9
    assert device.max_memory_allocated() == 2 * 10**9


def test_a_captured_step_is_watched(figures: dict[str, int]) -> None:
    """Steps that go past the trace when nobody looks do not when somebody does."""
    net = bireme.nn.Linear(64, 64)
    opt = bireme.optimizer.SGD(0.1, parameters=net.parameters())

    @bireme.jit.to_static
    def step(x: bireme.Tensor) -> bireme.Tensor:
        loss = net(x).mean()
        loss.backward()
        opt.step()
        opt.clear_grad()
        return loss

    x = bireme.ones([512, 64])
    for _ in range(8):
        step(x)
    device.reset_max_memory_allocated()
    assert device.max_memory_allocated() == 1000
    step(x)
    assert device.max_memory_allocated() > 1000


def test_refused_where_nothing_is_counted() -> None:
    for reset in (device.reset_max_memory_allocated, device.reset_peak_memory_stats):
        with pytest.raises(ValueError, match="keeps no memory figures"):
            reset()
    for name in ("reset_max_memory_allocated", "reset_max_memory_reserved"):
        with pytest.raises(ValueError, match="needs a GPU; 0 found"):
            getattr(device.cuda, name)()
        with pytest.raises(ValueError, match="needs a plug-in's device"):
            getattr(device.custom_device, name)()
    with pytest.raises(ValueError, match="needs a GPU"):
        device.ipc_collect()
