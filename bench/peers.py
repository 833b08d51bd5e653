"""The peers and what each of them can do; one process holds one peer."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol

import numpy as np

from bench.workloads import Size


class Trainer(Protocol):
    """One model in training, in one framework."""

    def step(self, i: int) -> object:
        """Train on batch `i` (counted round the batches) and return the unread loss."""
        ...

    def read(self, loss: object) -> float:
        """Wait for a loss and read it."""
        ...

    def settle(self) -> bool:
        """Wait for compilation in the background; True if there has been any since last time."""
        ...

    def step_of_length(self, length: int) -> object:
        """Train on the first `length` tokens of a batch (the encoder only)."""
        ...


# Peer -> (module that must be importable, factory "module:function", label in tables).
_PEERS = {
    "bireme": ("bireme", "bench.paddle_models:bireme_trainer", "Bireme"),
    "bireme_double": ("bireme", "bench.paddle_models:double_trainer", "Bireme in float64"),
    "captured": ("bireme", "bench.to_static:captured_trainer", "Bireme to_static"),
    "jax": ("jax", "bench.jax_models:jax_trainer", "jitted JAX"),
    "paddle": ("paddle", "bench.paddle_models:paddle_trainer", "Paddle eager"),
    "torch": ("torch", "bench.torch_models:torch_trainer", "torch eager"),
    "torch_nudged": ("torch", "bench.torch_models:torch_trainer", "torch from nudged weights"),
    "torch_double": ("torch", "bench.torch_models:double_trainer", "torch in float64"),
    "torch_compile": ("torch", "bench.torch_models:compiled_trainer", "torch.compile"),
}

# Peers of `bench to_static` and `bench curves`.
_ELSEWHERE = ("captured", "bireme_double", "torch_nudged", "torch_double")
NAMES = tuple(n for n in _PEERS if n not in _ELSEWHERE)


def label(peer: str) -> str:
    return _PEERS[peer][2]


def module(peer: str) -> str:
    return _PEERS[peer][0]


def installed(peer: str) -> bool:
    return find_spec(_PEERS[peer][0]) is not None


def factory(peer: str) -> Callable[[Size, dict[str, np.ndarray]], Trainer]:
    path, function = _PEERS[peer][1].split(":")
    return getattr(import_module(path), function)
