"""What a client's case is: how to build its model, what goes in, which loss.

The functions that build import client modules inside: by then `import paddle` means the engine that
is being looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.clients.run import plain_loss


@dataclass
class Net:
    model: Any
    inputs: Callable[[Any, Any], Any]
    call: Callable[[Any, Any], Any] = lambda model, inputs: model(inputs)
    loss: Callable[[Any, Any], Any] = plain_loss


@dataclass
class Case:
    package: str
    build: Callable[[], Net]
    quick: bool = False
    # Its own code says float32 in places that do not mix with float64 on Paddle.
    float32_only: bool = False
    # How far the engines may be apart in float64. Paddle keeps an epsilon or a slope as a float32.
    formula: float = 2e-5
    rounding: float = 1e-6  # allowed beside Paddle's own distance in float32


CASES: dict[str, Case] = {}


def case(package: str, **settings: Any) -> Callable[[Callable[[], Net]], Callable[[], Net]]:
    def add(build: Callable[[], Net]) -> Callable[[], Net]:
        CASES[build.__name__] = Case(package, build, **settings)
        return build

    return add


def floats(paddle: Any, rng: Any, *shape: int) -> Any:
    return paddle.to_tensor(rng.normal(size=shape).astype(paddle.get_default_dtype()))


def images(*shape: int) -> Callable[[Any, Any], Any]:
    return lambda paddle, rng: floats(paddle, rng, *shape)


def tokens(size: int, *shape: int) -> Callable[[Any, Any], Any]:
    return lambda paddle, rng: paddle.to_tensor(rng.integers(1, size, shape))
