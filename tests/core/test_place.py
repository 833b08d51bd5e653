"""Where a tensor says it is."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme.core import place


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> place.Place:
    """The current device is a GPU; nothing may be computed on it here."""
    gpu = place.CUDAPlace(0)
    monkeypatch.setattr(place, "_default", gpu)
    return gpu


def test_what_is_not_computed_yet_is_on_the_current_device(accelerator: place.Place) -> None:
    assert paddle.ones([1]).place == accelerator  # a host buffer until its first use
    assert paddle.ones([512, 512]).place == accelerator
    assert paddle.to_tensor([1.0, 2.0]).place == accelerator


def test_what_was_asked_for_on_the_host_stays_there(accelerator: place.Place) -> None:
    kept = paddle.to_tensor(np.ones(4, "float32"), place=paddle.CPUPlace())
    assert kept.place.is_cpu_place()
    key = id(kept._value.buf)
    assert key in place._kept_on_host
    del kept
    assert key not in place._kept_on_host


def test_cpu_gives_a_tensor_in_host_memory(accelerator: place.Place) -> None:
    here = paddle.to_tensor([1.0, 2.0])
    moved = here.cpu()
    assert moved.place.is_cpu_place()
    assert here.place == accelerator
    assert moved.cpu() is moved
    np.testing.assert_array_equal(moved.numpy(), [1.0, 2.0])


def test_on_a_machine_without_one() -> None:
    assert paddle.ones([1]).place.is_cpu_place()
    assert (paddle.ones([3]) + 1).place.is_cpu_place()
    kept = paddle.to_tensor(np.ones(4096, "float32"), place="cpu")
    np.testing.assert_array_equal((kept * 2).numpy(), np.full(4096, 2, "float32"))
    assert kept.place.is_cpu_place()
