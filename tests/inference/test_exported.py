"""Engines that take the graph as ONNX: how they are given their inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.inference.exported import _Request


class Recorder:
    """A request of OpenVINO's that only remembers what it was given."""

    def __init__(self) -> None:
        self.input_tensors = [None]
        self.output_tensors: list[Any] = []
        self.given: list[np.ndarray] = []

    def set_input_tensor(self, index: int, tensor: np.ndarray) -> None:
        self.given.append(tensor)

    def infer(self) -> None:
        pass


def test_an_input_is_set_again_when_its_memory_shape_or_type_is_another() -> None:
    request = Recorder()
    run = _Request(request, lambda array, shared_memory: array)
    array = np.arange(6, dtype=np.float32)
    run([array])
    run([array])
    assert len(request.given) == 1  # it is read where it lies
    run([array.view(np.int32)])
    assert request.given[-1].dtype == np.int32
    run([array.reshape(2, 3)])
    assert request.given[-1].shape == (2, 3)
    assert request.given[-1].dtype == np.float32
    other = array.copy()
    run([other])
    assert len(request.given) == 4
    assert all(np.shares_memory(g, array) for g in request.given[:3])
    assert np.shares_memory(request.given[3], other)
